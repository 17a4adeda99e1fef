"""The scripted mock LLM: an OpenAI-compatible server that plays a scenario, for measuring what calls it.

Run it with `python -m agentdyno.backends.mock_llm`. script.py decides what it says, request.py reads and counts,
answer.py encodes, service.py keeps the time and the seats, http_reader.py and http.py speak HTTP/1.1, cli.py starts
and stops it.
"""
