"""The raw record of one request: whose trace it continues, what it sums up, and what its end does to open calls."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.phases import Phase, Stretch, phase_of_call, tile
from agentdyno.contract.trace import LlmCall, RequestEvents
from agentdyno.host.trace import Planning, RequestOver, RequestTrace, ToolRun, open_trace

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"

hex_text = st.text("0123456789abcdef")
trace_ids = st.integers(1, 2**128 - 1)
span_ids = st.integers(1, 2**64 - 1)


def fresh(trace: RequestTrace) -> bool:
    return trace.parent_span_id is None and trace.trace_id != 0 and trace.sampled


@given(trace_ids, span_ids, st.integers(0, 255))
def test_a_valid_traceparent_is_continued(trace_id, parent, flags):
    trace = open_trace(f"00-{trace_id:032x}-{parent:016x}-{flags:02x}")
    assert (trace.trace_id, trace.parent_span_id, trace.sampled) == (trace_id, parent, bool(flags & 1))


@given(st.one_of(st.none(), st.text(), st.text("0123456789abcdef-+_x ", min_size=50, max_size=60)))
def test_no_text_raises_and_only_the_w3c_form_is_continued(text):
    trace = open_trace(text)
    if not fresh(trace):
        assert re.match(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-|$)", text)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-001",
        f"00-{TRACE}-{PARENT}-0x",
        f"00-{TRACE}-{PARENT}-01-more",
        f"ff-{TRACE}-{PARENT}-01",
        f"0-{TRACE}-{PARENT}-01",
        f"zz-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-0x{TRACE[2:]}-{PARENT}-01",
        f"00-0_{TRACE[2:]}-{PARENT}-01",
        f"00- {TRACE[1:]}-{PARENT}-01",
        f"00-+{TRACE[1:]}-{PARENT}-01",
        f"00-{'٣' * 32}-{PARENT}-01",
        f" 00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01\n",
    ],
)
def test_an_invalid_traceparent_starts_a_fresh_sampled_trace(text):
    assert fresh(open_trace(text))


def test_a_later_version_may_say_more():
    trace = open_trace(f"cc-{TRACE}-{PARENT}-01-what-the-future-brings")
    assert (trace.trace_id, trace.parent_span_id) == (int(TRACE, 16), int(PARENT, 16))


@given(trace_ids, span_ids, st.booleans())
def test_what_is_sent_on_is_continued_by_who_receives_it(trace_id, span_id, sampled):
    sent = RequestTrace(trace_id, None, sampled, 0).traceparent(span_id)
    received = open_trace(sent)
    assert (received.trace_id, received.parent_span_id, received.sampled) == (trace_id, span_id, sampled)


def test_fresh_traces_differ():
    assert len({open_trace(None).trace_id for _ in range(1000)}) == 1000
    assert len({open_trace(None).span_id for _ in range(1000)}) == 1000


def good_call(prompt_tokens: int | None, completion_tokens: int | None, prompt_bytes: int = 10) -> LlmCall:
    return LlmCall(
        *(1, 2, prompt_bytes),
        status=200,
        end_ns=3,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )


counts = st.integers(0, 10_000)


@given(st.lists(st.tuples(counts, counts, counts)), st.lists(counts), st.integers(0, 5))
def test_usage_sums_calls_and_counts_the_broken_ones_as_retries(good, broken, tools):
    trace = open_trace(None)
    trace.llm_calls += [good_call(prompt, completion, size) for prompt, completion, size in good]
    trace.llm_calls += [LlmCall(1, 2, size, status=503, end_ns=3) for size in broken]
    trace.tools += [ToolRun(1, "order_status", {}, 2)] * tools
    usage = trace.usage()
    assert usage.llm_calls == len(good)
    assert usage.retries == len(broken)
    assert usage.tool_calls == tools
    assert usage.prompt_bytes == sum(size for _, _, size in good) + sum(broken)
    assert usage.prompt_tokens == sum(prompt for prompt, _, _ in good)
    assert usage.completion_tokens == sum(completion for _, completion, _ in good)


@pytest.mark.parametrize("tokens", [(None, None), (5, None), (None, 5)])
def test_tokens_are_unknown_when_one_answer_did_not_report_them(tokens):
    trace = open_trace(None)
    trace.llm_calls += [good_call(3, 4), good_call(*tokens)]
    usage = trace.usage()
    assert (usage.llm_calls, usage.prompt_tokens, usage.completion_tokens) == (2, None, None)


def test_finish_closes_what_is_open_and_leaves_what_is_closed():
    trace = open_trace(None)
    ended, open_call = trace.begin_llm(1), trace.begin_llm(2)
    ended.status, ended.end_ns = 200, 77
    done, open_run = trace.begin_tool("order_status", {}), trace.begin_tool("refund_policy", {})
    trace.end_tool(done, result="yes", error=None)
    done_ns = done.end_ns
    planned, planning = trace.begin_planning(), trace.begin_planning()
    trace.end_planning(planned)
    planned_ns = planned.end_ns
    trace.finish()
    assert trace.end_ns is not None
    assert (planned.end_ns, planning.end_ns) == (planned_ns, trace.end_ns)
    trace.end_planning(planning)
    assert planning.end_ns == trace.end_ns
    assert (ended.end_ns, ended.error) == (77, None)
    assert (open_call.end_ns, open_call.error) == (trace.end_ns, "abandoned")
    assert (done.end_ns, done.error) == (done_ns, None)
    assert (open_run.end_ns, open_run.error) == (trace.end_ns, "abandoned")
    assert not open_call.ok


def test_a_call_that_ends_after_the_request_does_not_rewrite_its_record():
    trace = open_trace(None)
    run = trace.begin_tool("order_status", {})
    trace.finish()
    trace.end_tool(run, result="too late", error=None)
    assert (run.end_ns, run.result, run.error) == (trace.end_ns, None, "abandoned")


@pytest.mark.parametrize("end", ["close", "finish"])
def test_calls_for_a_request_that_is_over_are_refused_with_a_sentence(end):
    trace = open_trace(None)
    getattr(trace, end)()
    with pytest.raises(RequestOver, match=r"tried to call the LLM for a request that is already over\."):
        trace.begin_llm(0)
    with pytest.raises(RequestOver, match=r"tried to call the tool resolution for a request that is already over\."):
        trace.begin_tool("resolution", {})
    with pytest.raises(RequestOver, match=r"tried to plan for a request that is already over\."):
        trace.begin_planning()
    assert (trace.llm_calls, trace.tools, trace.plannings) == ([], [], [])


def test_the_listener_hears_calls_and_results_until_the_request_is_over():
    trace, heard = open_trace(None), []
    trace.listener = lambda kind, run: heard.append((kind, run.name))
    first, second = trace.begin_tool("order_status", {}), trace.begin_tool("refund_policy", {})
    trace.end_tool(first, result="x", error=None)
    trace.close()
    trace.end_tool(second, result=None, error="CancelledError")
    assert heard == [
        ("tool_call", "order_status"),
        ("tool_call", "refund_policy"),
        ("tool_result", "order_status"),
    ]


def test_connections_are_summed_and_unknown_when_one_call_could_not_tell():
    trace = open_trace(None)
    trace.llm_calls += [LlmCall(1, 2, connections=1), LlmCall(1, 2, connections=0), LlmCall(1, 2, connections=2)]
    assert trace.usage().connections == 3
    trace.llm_calls.append(LlmCall(1, 2))
    assert trace.usage().connections is None


def test_the_record_of_a_finished_request_survives_the_wire():
    trace = open_trace(f"00-{TRACE}-{PARENT}-01")
    call = trace.begin_llm(5)
    trace.end_tool(trace.begin_tool("order_status", {"reference": "x"}), result=None, error="refused")
    trace.begin_planning()
    trace.finish()
    record = trace.events("timeout")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=RequestEvents) == record
    assert (record.trace_id.hex(), record.parent_span_id, record.span_id) == (TRACE, int(PARENT, 16), trace.span_id)
    assert (record.start_ns, record.end_ns, record.outcome) == (trace.start_ns, trace.end_ns, "timeout")
    assert record.llm_calls == [call]
    (tool,) = record.tools
    assert (tool.name, tool.error) == ("order_status", "refused")
    assert record.plannings == [(trace.plannings[0].start_ns, trace.end_ns)]


@st.composite
def finished_traces(draw):
    """Requests whose calls come one after the other, or overlap as they like."""
    trace = RequestTrace(1, None, True, start_ns=1000)
    moments = st.tuples(st.integers(900, 3000), st.integers(0, 400))
    for start_ns, took_ns in draw(st.lists(moments, max_size=4)):
        wants_tools = draw(st.sampled_from([True, False, None]))
        trace.llm_calls.append(LlmCall(1, start_ns, status=200, end_ns=start_ns + took_ns, wants_tools=wants_tools))
    for start_ns, took_ns in draw(st.lists(moments, max_size=3)):
        trace.tools.append(ToolRun(1, "tool", {}, start_ns, start_ns + took_ns))
    for start_ns, took_ns in draw(st.lists(moments, max_size=2)):
        trace.plannings.append(Planning(start_ns, start_ns + took_ns))
    trace.end_ns = draw(st.integers(1000, 4000))
    return trace


@given(finished_traces())
def test_the_short_way_to_the_phases_gives_what_the_rule_gives(trace):
    stretches = [Stretch(Phase.PLAN, planning.start_ns, planning.end_ns) for planning in trace.plannings]
    stretches += [Stretch(phase_of_call(c.wants_tools), c.start_ns, c.end_ns) for c in trace.llm_calls]
    stretches += [Stretch(Phase.TOOL, run.start_ns, run.end_ns) for run in trace.tools]
    took = trace.phases_ns()
    assert dict(zip(Phase, took, strict=True)) == tile(trace.start_ns, trace.end_ns, stretches)
    assert sum(took) == trace.end_ns - trace.start_ns
