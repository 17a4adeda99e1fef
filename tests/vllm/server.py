"""A real vLLM without a GPU, as the rig starts it, for recordings and tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentdyno.backends.vllm.guard import GRACE_S
from agentdyno.backends.vllm.serving import SOCKETS, arguments, environment, program
from agentdyno.rig.backends import VLLM_READY_S
from agentdyno.rig.processes import Children, free_port
from agentdyno.rig.vllm_cpu import cache_folder, make_ready, model_folder, python

WANTED = "AGENTDYNO_VLLM"
WHY_NOT = "needs an environment of 2 GB, which only make test-vllm asks for"
API_KEY = "sk-not-a-secret"


def wanted() -> bool:
    return bool(os.environ.get(WANTED))


@contextmanager
def served(log: Path, *, api_key: str | None = None, traces_url: str | None = None) -> Iterator[int]:
    """Its port, once it is ready. traces_url: where its spans go."""
    make_ready()
    port = free_port()
    settings = arguments(model_folder(), port=port, seed=1, parallel=False, traces_url=traces_url)
    settings += ["--api-key", api_key] if api_key else []
    children = Children()
    try:
        child = children.start(
            "backend",
            [*program(python()), *settings],
            log=log,
            environment=environment(cache_folder(), 1),
            folder=cache_folder() / SOCKETS,
            orphaned=signal.SIGTERM,
        )
        child.wait_ready(f"http://127.0.0.1:{port}/health", VLLM_READY_S)
        yield port
    finally:
        children.stop(GRACE_S)
