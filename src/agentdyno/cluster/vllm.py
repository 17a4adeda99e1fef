"""A release's own vLLM, asked from beside the host: what it served, and what it says of itself."""

from __future__ import annotations

from agentdyno.backends.vllm.counters import read_counters, since
from agentdyno.backends.vllm.told import Ask, facts_told, server_facts
from agentdyno.cluster.programs import Container
from agentdyno.cluster.settings import State
from agentdyno.contract.run import ServerCounters
from agentdyno.contract.summary import BackendFacts
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
    server = server_facts(_asked_of(beside, state), model)
    return Backend(kind=state.backend_kind, model=model, counters=served, server=server)


def told(beside: Container, state: State, model: str) -> BackendFacts:
    """For the manifest: see `facts_told`."""
    return facts_told(_asked_of(beside, state), model)


def _root(state: State) -> str:
    return f"http://{state.place.name('backend')}:{state.backend_port}"


def _asked_of(beside: Container, state: State) -> Ask:
    return lambda path: beside.offered(f"{_root(state)}{path}", _ANSWER_S)
