"""The mock answers as vLLM does: the same requests to both, vLLM's answers from tests/golden/vllm.

Shapes are compared, not words: statuses, headers, the fields of every object, and the types of their values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.backends.mock_process import MODEL, MockServer
from tests.golden.vllm_recording import CASES, CONTEXT_TOKENS, Recorded, ask, recorded

KEY = "sk-not-a-secret"
ERRORS = [name for name in CASES if name[0] == "4"]
STREAMS = [name for name in CASES if "streamed" in name]
WHOLE = ["call", "call-required", "text", "text-cut", "text-without-tools"]
# Fields that only vLLM has, all null but the last, in which it names its version: a client that needs one of them would
# not work with OpenAI's own service either. The mock leaves them out, for each costs every framework time to parse.
ONLY_VLLM = {
    *("annotations", "audio", "function_call", "reasoning", "stop_reason", "token_ids", "routed_experts"),
    *("service_tier", "prompt_tokens_details", "completion_tokens_details", "prompt_logprobs", "prompt_token_ids"),
    *("prompt_text", "kv_transfer_params", "ec_transfer_params", "metrics", "system_fingerprint"),
}
# Both are allowed: OpenAI's specification has a null usage in all chunks but the last, vLLM leaves it out of them; vLLM
# has an empty text beside forced calls, the mock none, like OpenAI's service.
EITHER = {"[].usage": {"null", None}, ".choices[].message.content": {"null", "str"}}


@pytest.fixture(scope="module")
def mock() -> Iterator[MockServer]:
    server = MockServer("--max-model-len", str(CONTEXT_TOKENS), "--api-key", KEY)
    yield server
    assert server.stop() == (0, "")


def of_mock(mock: MockServer, name: str) -> Recorded:
    return ask(mock.port, CASES[name], MODEL, KEY)


def shape(value: Any, at: str = "") -> dict[str, str]:
    """The type of each leaf by its path; the items of a list count as one."""
    if isinstance(value, dict):
        return {path: kind for name, item in value.items() for path, kind in shape(item, f"{at}.{name}").items()}
    if isinstance(value, list) and value:
        return {path: kind for item in value for path, kind in shape(item, f"{at}[]").items()}
    return {at: "null" if value is None else type(value).__name__}


def differences(of_mock: Any, of_vllm: Any) -> dict[str, tuple[str | None, str | None]]:
    ours, theirs = shape(of_mock), shape(of_vllm)
    paths = {path for path in ours | theirs if path.split(".")[-1] not in ONLY_VLLM}
    differ = {path: (ours.get(path), theirs.get(path)) for path in sorted(paths) if ours.get(path) != theirs.get(path)}
    return {path: kinds for path, kinds in differ.items() if set(kinds) != EITHER.get(path)}


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
def test_bodies_have_one_shape(mock: MockServer, name: str) -> None:
    assert differences(json.loads(of_mock(mock, name).body), json.loads(recorded(name).body)) == {}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_made_of_the_same_events(mock: MockServer, name: str) -> None:
    ours, theirs = of_mock(mock, name).events, recorded(name).events
    assert ours[-1] == theirs[-1] == "[DONE]"
    assert differences(ours[:-1], theirs[:-1]) == {}


def test_the_metrics_of_the_mock_are_vllms(mock: MockServer) -> None:
    """Names, types and labels: one dashboard serves both."""
    ours, theirs = (metrics(answer.body) for answer in (of_mock(mock, "metrics"), recorded("metrics")))
    assert ours
    assert {name: facts for name, facts in ours.items() if theirs.get(name) != facts} == {}


def metrics(exposition: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and label names of each family, without those that only a later OpenMetrics client adds."""
    return {
        family.name: (family.type, frozenset(label for sample in family.samples for label in sample.labels))
        for family in text_string_to_metric_families(exposition)
        if family.name.startswith("vllm:")
    }
