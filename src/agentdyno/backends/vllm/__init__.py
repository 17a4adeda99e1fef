"""A real vLLM as the backend: how one is served without a GPU, the model it serves, and its own count of its work."""
