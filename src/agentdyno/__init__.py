"""AgentDyno: a dynamometer for LLM agent frameworks."""

__version__ = "0.1.0"
