"""The LLM side: the scripted mock, and any OpenAI-compatible URL."""
