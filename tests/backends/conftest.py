"""Mock LLM processes as fixtures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.backends.mock_process import MockServer


@pytest.fixture
def start() -> Iterator[Callable[..., MockServer]]:
    """Starts mock LLMs with the given arguments and stops them at the end."""
    servers: list[MockServer] = []

    def _start(*arguments: str, timing: dict[str, Any] | None = None) -> MockServer:
        more = ("--timing", json.dumps(timing)) if timing else ()
        servers.append(MockServer(*arguments, *more))
        return servers[-1]

    yield _start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def shared() -> Iterator[MockServer]:
    """One mock LLM without delays for a whole module; it must have had nothing to complain of."""
    server = MockServer("--max-body-bytes", "300000")
    yield server
    assert server.stop() == (0, "")
