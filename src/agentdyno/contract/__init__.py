"""What crosses a process border: invoke messages, proof of work, workloads, adapters, run records.

Everything else in the package may import from here; this package imports nothing of the rest.
"""
