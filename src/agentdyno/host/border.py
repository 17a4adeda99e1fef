"""The border to the LLM: every HTTP call on its way to the backend, whichever client makes it.

One rule for every framework: a call starts when the HTTP client is asked to send it and ends when the last byte
of its body was taken. The clients are wrapped at the one method through which all their requests go, so nothing
depends on a framework. What the answer says (tool calls or not, token counts) is read from a copy of its bytes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from agentdyno.host.observer import Origin
from agentdyno.host.trace import CURRENT


@contextmanager
def planning() -> Iterator[None]:
    """Marks planning that is done without an LLM, for a framework whose planner is its own code."""
    trace = CURRENT.get()
    if trace is None:
        yield
        return
    planned = trace.begin_planning()
    try:
        yield
    finally:
        trace.end_planning(planned)


class Border:
    """The border to one backend. It wraps a client library once the framework has imported it, and imports none
    itself: a process must not carry a client that its framework does not use.
    """

    def __init__(self, base_url: str) -> None:
        self._origin = Origin(base_url)
        self._modules = 0
        self.wrapped: list[str] = []

    def refresh(self) -> None:
        """Wrap what was imported since the last call; next to nothing when no module was.

        Called after each step that may import: loading the adapter, starting it, a request. A library that is
        first imported within a request is wrapped from the next one on; the first request is never a measured one.
        """
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        for library in LIBRARIES:
            if library in sys.modules and library not in self.wrapped:
                module = importlib.import_module(LIBRARIES[library])
                module.install(library, self._origin)
                self.wrapped.append(library)


# Client libraries, and the modules that wrap them (each imports its library, so only when that is there).
LIBRARIES = {
    "aiohttp": "agentdyno.host.border_aiohttp",
    "httpx": "agentdyno.host.border_httpx",
    "httpx2": "agentdyno.host.border_httpx",
}


def install(base_url: str) -> Border:
    """The border to `base_url`, with all that is imported by now wrapped."""
    border = Border(base_url)
    border.refresh()
    return border
