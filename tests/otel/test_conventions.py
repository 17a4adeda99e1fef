"""The conventions in prose say what the code does, and the example is a whole trace that says what the table says."""

import base64
import json
import re
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentdyno.analysis.served import ATTRIBUTES
from agentdyno.contract.phases import Phase
from agentdyno.record.otlp import is_usable, native_spans
from agentdyno.record.spans import (
    ChatAttributes,
    RequestAttributes,
    ServedAttributes,
    Span,
    SpanKind,
    ToolAttributes,
)
from agentdyno.rig.conformance.trace_shape import faults
from agentdyno.rig.environments.environment import ROOT

TEXT = (ROOT / "otel" / "CONVENTIONS.md").read_text(encoding="utf-8")
EXAMPLE = json.loads((ROOT / "otel" / "example-trace.json").read_text(encoding="utf-8"))
KINDS = {"invoke_agent": SpanKind.REQUEST, "chat": SpanKind.CHAT, "execute_tool": SpanKind.TOOL}
KINDS |= {"parse": SpanKind.DERIVED, "respond": SpanKind.DERIVED, "llm_request": SpanKind.SERVED}
KINDS |= {"POST": SpanKind.CLIENT}


def with_base64_ids(value: Any) -> Any:
    """OTLP's JSON has ids in hexadecimal, protobuf's own in base64."""
    if isinstance(value, list):
        return [with_base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode() if key in ids else with_base64_ids(item)
        for key, item in value.items()
    }


@pytest.fixture(scope="module")
def example() -> list[Span]:
    request = ParseDict(with_base64_ids(EXAMPLE), ExportTraceServiceRequest())
    assert all(is_usable(s) for r in request.resource_spans for scope in r.scope_spans for s in scope.spans)
    spans = []
    for span in native_spans(request.SerializeToString(), 0):
        phase = span.attributes.get("agentdyno.phase")
        kind = KINDS[span.name.partition(" ")[0]]
        spans.append(span._replace(kind=kind, phase=None if phase is None else Phase(phase)))
    return spans


def test_the_example_is_whole(example: list[Span]) -> None:
    (client,) = [span for span in example if span.kind is SpanKind.CLIENT]
    assert list(faults(example, client.span_id, None, plans_with_llm=True)) == []
    assert len(example) == 1 + 1 + 4 + 3 + 4 + 2


def test_the_table_is_the_example(example: list[Span]) -> None:
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \| ([\d.]+) \| ([\d.]+) \|$", TEXT, re.M)
    start_ns = min(span.start_ns for span in example)
    said = [(re.sub(r"&nbsp;|`", "", name), service, phase, at, took) for name, service, phase, at, took in rows]
    expected = [
        (
            span.name,
            "backend" if span.kind is SpanKind.SERVED else "generator" if span.kind is SpanKind.CLIENT else "host",
            span.phase or "",
            f"{(span.start_ns - start_ns) / 1e6:.2f}",
            f"{(span.end_ns - span.start_ns) / 1e6:.2f}",
        )
        for span in example
    ]
    assert sorted(said) == sorted(expected)


def test_every_attribute_of_the_code_is_explained() -> None:
    named = set(re.findall(r"^\| `([a-z0-9_.]+)` \| .* \| .* \|$", TEXT, re.M))
    structs = (RequestAttributes, ChatAttributes, ToolAttributes, ServedAttributes)
    used = {name for struct in structs for name in struct.__struct_encode_fields__}
    read = set(ATTRIBUTES.values())
    assert used | read | {"agentdyno.phase", "error.type"} == {name for name in named if "." in name}


def test_every_attribute_of_the_example_is_explained(example: list[Span]) -> None:
    names = {name for span in example for name in span.attributes} - {"otel.scope.name"}
    assert all(f"`{name}`" in TEXT for name in names)
    for resource in EXAMPLE["resourceSpans"]:
        assert all(f"`{pair['key']}`" in TEXT for pair in resource["resource"]["attributes"])


def test_every_phase_is_explained() -> None:
    assert set(re.findall(r"^\| `([a-z]+)` \| [^|]* \|$", TEXT, re.M)) == {phase.value for phase in Phase}


def test_every_kind_of_span_is_named() -> None:
    assert all(f"`{kind.value}`" in TEXT for kind in SpanKind)
