"""Time split and critical path of single requests: they add up to the whole, whatever happened in it."""

from hypothesis import given
from hypothesis import strategies as st

from agentdyno.analysis.traces import Event, Share, Step, TracedRequest, critical_path, time_split
from agentdyno.contract.phases import Phase
from agentdyno.record.spans import SpanKind

KINDS = {SpanKind.CHAT: Phase.PLAN, SpanKind.TOOL: Phase.TOOL, SpanKind.PLANNING: Phase.PLAN}


def event(kind: SpanKind, start: int, end: int, name: str = "x", phase: Phase | None = None) -> Event:
    return Event(kind, name, phase or KINDS.get(kind), start, end)


events = st.builds(
    lambda kind, start, length: event(kind, start, start + length),
    st.sampled_from(list(KINDS)),
    st.integers(0, 60),
    st.integers(0, 40),
)
served = st.builds(
    lambda start, length: event(SpanKind.SERVED, start, start + length), st.integers(0, 60), st.integers(0, 40)
)
requests = st.builds(
    lambda end, inner, backend: TracedRequest("t", 0, end, inner, backend),
    st.integers(0, 100),
    st.lists(events, max_size=7),
    st.lists(served, max_size=4),
)


@given(requests)
def test_the_split_adds_up_and_no_part_is_negative(request_):
    took = time_split(request_)
    assert sum(took.values()) == request_.end_ns
    assert min(took.values()) >= 0


@given(requests)
def test_the_path_adds_up_from_start_to_end(request_):
    steps = critical_path(request_)
    assert sum(step.took_ns for step in steps) == request_.end_ns
    assert all(step.took_ns >= 0 for step in steps)


def test_what_a_chains_time_went_into():
    chain = TracedRequest(
        *("t", 100, 200),
        [event(SpanKind.PLANNING, 105, 110), event(SpanKind.CHAT, 110, 150), event(SpanKind.TOOL, 145, 160)],
        [event(SpanKind.SERVED, 120, 140)],
    )
    assert time_split(chain) == {Share.LLM_WAIT: 20, Share.LLM_CLIENT: 15, Share.TOOL: 15, Share.FRAMEWORK: 50}


def test_without_the_backends_spans_the_whole_call_is_a_wait():
    request_ = TracedRequest("t", 0, 100, [event(SpanKind.CHAT, 10, 60)])
    assert time_split(request_) == {Share.LLM_WAIT: 50, Share.LLM_CLIENT: 0, Share.TOOL: 0, Share.FRAMEWORK: 50}


def test_of_tools_at_once_only_the_last_to_end_is_on_the_path():
    request_ = TracedRequest(
        *("t", 0, 100),
        [
            event(SpanKind.CHAT, 10, 20, "chat m"),
            *(event(SpanKind.TOOL, 25, end, f"tool {end}") for end in (40, 60, 50)),
            event(SpanKind.CHAT, 65, 90, "chat m", Phase.REFLECT),
        ],
    )
    assert critical_path(request_) == [
        Step("parse", 10),
        Step("plan: chat m", 10),
        Step("framework", 5),
        Step("tool: tool 60", 35),
        Step("framework", 5),
        Step("reflect: chat m", 25),
        Step("respond", 10),
    ]


def test_a_tool_that_begins_late_leaves_the_time_before_it_to_the_others():
    request_ = TracedRequest(
        "t", 0, 50, [event(SpanKind.TOOL, 0, 30, "tool a"), event(SpanKind.TOOL, 20, 50, "tool b")]
    )
    assert critical_path(request_) == [Step("tool: tool a", 20), Step("tool: tool b", 30)]


def test_a_request_without_a_call_is_the_frameworks():
    assert critical_path(TracedRequest("t", 0, 7)) == [Step("framework", 7)]
