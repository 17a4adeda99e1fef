"""The mock answers as vLLM does: the same requests to both, vLLM's answers from tests/golden/vllm.

What is compared of them, and the one accepted difference (ONLY_VLLM), is in tests/golden/vllm_facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.backends.mock_process import MODEL, MockServer
from tests.golden.vllm_facts import facts, of_vllm, steps
from tests.golden.vllm_recording import CASES, CONTEXT_TOKENS, Recorded, ask, recorded

KEY = "sk-not-a-secret"
ERRORS = [name for name in CASES if name[0] == "4"]
STREAMS = [name for name in CASES if "streamed" in name]
WHOLE = ["call", "call-required", "text", "text-cut", "text-without-tools"]


@pytest.fixture(scope="module")
def mock() -> Iterator[MockServer]:
    server = MockServer("--max-model-len", str(CONTEXT_TOKENS), "--api-key", KEY)
    yield server
    assert server.stop() == (0, "")


def of_mock(mock: MockServer, name: str) -> Recorded:
    return ask(mock.port, CASES[name], MODEL, KEY)


@pytest.mark.parametrize("name", CASES)
def test_status_and_headers(mock: MockServer, name: str) -> None:
    ours, theirs = of_mock(mock, name), recorded(name)
    assert ours.status == theirs.status
    if name == "health":  # only its status means anything; vLLM sends no body
        return
    assert meant(ours.headers) == meant(theirs.headers)


def meant(headers: dict[str, str]) -> dict[str, str]:
    """All that are recorded; of the content's type without its parameters."""
    return {name: value.partition(";")[0] if name == "content-type" else value for name, value in headers.items()}


@pytest.mark.parametrize("name", [*WHOLE, *ERRORS, "models"])
def test_bodies_say_the_same(mock: MockServer, name: str) -> None:
    assert facts(json.loads(of_mock(mock, name).body)) == of_vllm(json.loads(recorded(name).body))


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_the_same_events_in_the_same_order(mock: MockServer, name: str) -> None:
    ours, theirs = of_mock(mock, name).events, recorded(name).events
    assert steps([facts(event) for event in ours]) == steps([of_vllm(event) for event in theirs])


def test_the_metrics_of_the_mock_are_vllms(mock: MockServer) -> None:
    """Names, types, labels and the bounds of histograms: one dashboard serves both."""
    ours, theirs = (metrics(answer.body) for answer in (of_mock(mock, "metrics"), recorded("metrics")))
    assert ours
    assert {name: facts for name, facts in ours.items() if theirs.get(name) != facts} == {}


def metrics(exposition: str) -> dict[str, tuple[str, frozenset[str], frozenset[str | None]]]:
    """Type, label names and bounds of each family, without those that only a later OpenMetrics client adds."""
    return {
        family.name: (
            family.type,
            frozenset(label for sample in family.samples for label in sample.labels),
            frozenset(sample.labels.get("le") for sample in family.samples),
        )
        for family in text_string_to_metric_families(exposition)
        if family.name.startswith("vllm:")
    }
