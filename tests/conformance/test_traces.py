"""The shape of each adapter's trace, from its real host: a chain, three tools at once, a caller that leaves."""

import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from agentdyno.contract.adapter import find_variants
from agentdyno.contract.invoke import INVOKE_PATH
from agentdyno.contract.phases import Phase, Stretch, tile
from agentdyno.contract.scenario import BackendTiming
from agentdyno.record.folder import RunFolder
from agentdyno.record.spans import Span, SpanKind
from agentdyno.rig.conformance.subject import Subject, running
from agentdyno.rig.conformance.trace_shape import faults, of_kind, wait_for_trace
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.environments.frameworks import adapters_root

pytestmark = [pytest.mark.e2e, pytest.mark.frameworks]

VARIANTS = find_variants(adapters_root())
TOOL_MS = 60
AT_ONCE = BackendTiming(
    tool_latency_ms=dict.fromkeys(("order_status", "refund_policy", "resolution"), f"const:{TOOL_MS}")
)


def subject(name: str, scenario: str, timing: BackendTiming, folder: Path) -> Iterator[Subject]:
    adapter, variant = VARIANTS[name]
    ensure(adapter_environment(adapter.path))
    with running(adapter, variant, scenario, timing, RunFolder.create(folder, name)) as rig:
        yield rig


@pytest.fixture(scope="module", params=VARIANTS)
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    yield from subject(request.param, "chain", BackendTiming(), tmp_path_factory.mktemp("chain"))


@pytest.fixture(scope="module", params=VARIANTS)
def parallel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    yield from subject(request.param, "parallel", AT_ONCE, tmp_path_factory.mktemp("parallel"))


def phases_of(spans: list[Span]) -> tuple[Span, dict[Phase, int]]:
    (root,) = of_kind(spans, SpanKind.REQUEST)
    inner = of_kind(spans, SpanKind.CHAT, SpanKind.TOOL, SpanKind.PLANNING)
    return root, tile(root.start_ns, root.end_ns, [Stretch(s.phase, s.start_ns, s.end_ns) for s in inner])


def test_a_chain(chain: Subject) -> None:
    traced = chain.traced(chain.request(1))
    with_llm = chain.variant.plans_with == "llm"
    assert list(faults(traced.spans, traced.parent_span_id, traced.usage, plans_with_llm=with_llm)) == []
    chats, tools = of_kind(traced.spans, SpanKind.CHAT), of_kind(traced.spans, SpanKind.TOOL)
    plans = [Phase.PLAN] * 3 if with_llm else []
    assert [chat.phase for chat in chats] == [*plans, Phase.REFLECT]
    names = ("order_status", "refund_policy", "resolution")
    assert [tool.name for tool in tools] == [f"execute_tool {name}" for name in names]
    # Each tool after the plan that asked for it, and before the next.
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(tools))
    root, took = phases_of(traced.spans)
    assert sum(took.values()) == root.end_ns - root.start_ns
    assert min(took[phase] for phase in (Phase.PARSE, Phase.PLAN, Phase.TOOL, Phase.REFLECT, Phase.RESPOND)) > 0


def test_three_tools_at_once(parallel: Subject) -> None:
    traced = parallel.traced(parallel.request(1))
    root, took = phases_of(traced.spans)
    tools = of_kind(traced.spans, SpanKind.TOOL)
    assert {tool.parent_span_id for tool in tools} == {root.span_id}
    assert len(tools) == 3
    # At one moment all three ran, and the phase is their union: that time counts once.
    assert max(tool.start_ns for tool in tools) < min(tool.end_ns for tool in tools)
    assert took[Phase.TOOL] == max(tool.end_ns for tool in tools) - min(tool.start_ns for tool in tools)
    assert sum(took.values()) == root.end_ns - root.start_ns


def test_a_streamed_answer_keeps_its_time_to_first_token(chain: Subject) -> None:
    if "stream" not in chain.variant.capabilities:
        return
    traced = chain.traced(chain.request(2, stream=True))
    last = of_kind(traced.spans, SpanKind.CHAT)[-1]
    facts = msgspec.to_builtins(last.attributes)
    assert facts["gen_ai.request.stream"]
    assert 0 < facts["gen_ai.response.time_to_first_chunk"] <= (last.end_ns - last.start_ns) / 1e9


def test_a_caller_that_leaves_has_a_closed_trace(parallel: Subject) -> None:
    trace_id, parent = "ab" * 16, "cd" * 8
    body = msgspec.json.encode(parallel.request(3))
    head = f"POST {INVOKE_PATH} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n"
    head += f"traceparent: 00-{trace_id}-{parent}-01\r\ncontent-length: {len(body)}\r\n\r\n"
    address = parallel.host.url.removeprefix("http://").split(":")
    calls_before = parallel.served().calls
    with socket.create_connection((address[0], int(address[1]))) as caller:
        caller.sendall(head.encode() + body)
        while parallel.variant.plans_with == "llm" and parallel.served().calls == calls_before:
            pass  # until its tools run, which take a while
    spans = wait_for_trace(parallel.raw, trace_id, lambda found: bool(of_kind(found, SpanKind.REQUEST)), 5.0)
    assert list(faults(spans, parent, None, plans_with_llm=True)) == []
    (root,) = of_kind(spans, SpanKind.REQUEST)
    assert root.error == "client_gone"
