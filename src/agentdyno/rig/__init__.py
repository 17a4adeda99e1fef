"""Environments, processes, core pinning, readiness, and the life of a run."""
