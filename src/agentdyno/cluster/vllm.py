"""A release's own vLLM, asked from beside the host: what it served, and what it says of itself."""

from __future__ import annotations

from typing import Any

import msgspec

from agentdyno.backends.vllm.counters import read_counters, server_facts, since
from agentdyno.cluster.programs import Container
from agentdyno.cluster.settings import State
from agentdyno.contract.run import ServerCounters
from agentdyno.record.manifest import Backend

_ANSWER_S = 30.0


def counters(beside: Container, state: State) -> ServerCounters:
    """Its totals now. Raises OSError when it does not answer, or is none that we know."""
    said = beside.offered(f"{_root(state)}/metrics", _ANSWER_S)
    try:
        return read_counters((said or b"").decode())
    except ValueError as error:
        raise OSError(f"vLLM's /metrics cannot be read: {error}") from error


def record(beside: Container, state: State, model: str) -> Backend:
    """What it counted since the load began, and its version and model. Raises OSError."""
    if state.vllm_before is None:
        return Backend(kind=state.backend_kind, model=model)
    served = since(state.vllm_before, counters(beside, state))
    version, models = (_told(beside, f"{_root(state)}{path}") for path in ("/version", "/v1/models"))
    return Backend(kind=state.backend_kind, model=model, counters=served, server=server_facts(version, models, model))


def _root(state: State) -> str:
    return f"http://{state.place.name('backend')}:{state.backend_port}"


def _told(beside: Container, url: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(beside.offered(url, _ANSWER_S) or b"{}", type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):  # the counters, which are checked, say whether it is there at all
        return {}
