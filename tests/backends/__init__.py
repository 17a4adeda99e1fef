"""Tests of the LLM side."""
