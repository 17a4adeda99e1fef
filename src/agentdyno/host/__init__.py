"""Runs one adapter: the ASGI application, its borders to the LLM and the tools, probes and metrics."""
