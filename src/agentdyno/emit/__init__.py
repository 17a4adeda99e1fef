"""Hands raw trace records from a process that is measured to the recorder, off the request path."""
