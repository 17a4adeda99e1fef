"""The border wraps what a framework imports, when it imports it, and imports nothing itself."""

import subprocess
import sys


def test_a_library_is_wrapped_once_it_is_imported_and_never_imported_for_it() -> None:
    """In a process of its own, since this one has imported them all."""
    code = """
import sys
from agentdyno.host.border import install
border = install("http://127.0.0.1:1/v1")
assert border.wrapped == [], border.wrapped
assert not {"aiohttp", "httpx", "httpx2"} & set(sys.modules)
import httpx
before = httpx.AsyncHTTPTransport.handle_async_request
border.refresh()
border.refresh()
assert border.wrapped == ["httpx"], border.wrapped
once = httpx.AsyncHTTPTransport.handle_async_request
assert once is not before
import aiohttp
border.refresh()
assert border.wrapped == ["httpx", "aiohttp"], border.wrapped
assert httpx.AsyncHTTPTransport.handle_async_request is once
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
