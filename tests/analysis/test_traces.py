"""Phases, time split and critical path of whole runs, held to their rules as written for one request alone."""

import tracemalloc

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.analysis.critical_path import usual_path
from agentdyno.analysis.tiling import Share, phases_ns, shares_ns
from agentdyno.analysis.traces import KINDS, NO_PHASE, PHASES, Inner, Traces
from agentdyno.contract.phases import Phase, Stretch, covered, tile
from agentdyno.contract.summary import Step
from agentdyno.record.spans import SpanKind
from tests.analysis.one_trace import Event, OneTrace, critical_path

PHASE_OF = {SpanKind.CHAT: Phase.PLAN, SpanKind.TOOL: Phase.TOOL, SpanKind.PLANNING: Phase.PLAN}


def event(kind: SpanKind, start: int, end: int, name: str = "x", phase: Phase | None = None) -> Event:
    return Event(kind, name, phase or PHASE_OF.get(kind), start, end)


def traces(*requests: OneTrace) -> Traces:
    rows = [(number, event) for number, request in enumerate(requests) for event in request.events]
    names = sorted({event.name for _, event in rows})
    columns = [
        [number for number, _ in rows],
        [KINDS.index(event.kind) for _, event in rows],
        [NO_PHASE if event.phase is None else PHASES.index(event.phase) for _, event in rows],
        [names.index(event.name) for _, event in rows],
        [event.start_ns for _, event in rows],
        [event.end_ns for _, event in rows],
    ]
    ids = pa.array([str(number) for number in range(len(requests))])
    times = (
        np.array([one.start_ns for one in requests], np.int64),
        np.array([one.end_ns for one in requests], np.int64),
    )
    return Traces(ids, *times, Inner(*(np.array(column, np.int64) for column in columns)), names)


kinds = st.sampled_from([*PHASE_OF, SpanKind.SERVED])
phases = st.sampled_from([None, Phase.REFLECT])
events = st.builds(
    lambda kind, start, length, name, phase: event(
        kind, start, start + length, name, phase if kind is SpanKind.CHAT else None
    ),
    *(kinds, st.integers(-5, 60), st.integers(0, 40), st.sampled_from("xy"), phases),
)
requests = st.builds(OneTrace, st.just(0), st.integers(0, 100), st.lists(events, max_size=8))
runs = st.lists(requests, min_size=1, max_size=5)


@given(runs)
def test_the_phases_are_those_of_the_rule_for_one(run):
    found = phases_ns(traces(*run))
    for number, request in enumerate(run):
        stretches = [Stretch(e.phase, e.start_ns, e.end_ns) for e in request.events if e.phase is not None]
        expected = tile(request.start_ns, request.end_ns, stretches)
        assert {phase: took[number] for phase, took in found.items()} == expected
        assert sum(expected.values()) == request.end_ns


@given(runs)
def test_the_split_adds_up_and_overlaps_go_to_the_first(run):
    found = shares_ns(traces(*run))
    for number, request in enumerate(run):
        calls = Share.LLM_CLIENT if any(lies_in(e, request) for e in request.of(SpanKind.SERVED)) else Share.LLM_WAIT
        shares = {SpanKind.TOOL: Share.TOOL, SpanKind.CHAT: calls, SpanKind.SERVED: Share.LLM_WAIT}
        inside = [
            (shares[e.kind], max(0, e.start_ns), min(e.end_ns, request.end_ns))
            for e in request.of(*shares)
            if lies_in(e, request)
        ]
        expected = covered(inside, (Share.TOOL, Share.LLM_WAIT, Share.LLM_CLIENT))
        took = {share: ns[number] for share, ns in found.items()}
        assert took == {**expected, Share.FRAMEWORK: request.end_ns - sum(expected.values())}


def lies_in(one: Event, request: OneTrace) -> bool:
    return one.end_ns > request.start_ns and one.start_ns < request.end_ns


@given(runs)
def test_the_usual_path_is_the_commonest_of_the_paths(run):
    paths = [critical_path(request) for request in run]
    names = [tuple(step.name for step in path) for path in paths]
    usual = max(names, key=names.count)
    found = usual_path(traces(*run))
    assert (found.requests, found.of_requests) == (names.count(usual), len(run))
    assert tuple(step.name for step in found.steps) == usual
    same = [path for path, its in zip(paths, names, strict=True) if its == usual]
    expected = [sum(path[at].took_ns for path in same) / len(same) / 1e6 for at in range(len(usual))]
    assert np.allclose([step.mean for step in found.steps], expected, rtol=1e-12, atol=0)
    assert all(sum(step.took_ns for step in path) == one.end_ns for path, one in zip(paths, run, strict=True))
    assert all(step.took_ns >= 0 for path in paths for step in path)


def test_what_a_chains_time_went_into():
    chain = OneTrace(
        *(100, 200),
        [
            *(event(SpanKind.PLANNING, 105, 110), event(SpanKind.CHAT, 110, 150), event(SpanKind.TOOL, 145, 160)),
            event(SpanKind.SERVED, 120, 140),
        ],
    )
    found = {share: int(took[0]) for share, took in shares_ns(traces(chain)).items()}
    assert found == {Share.LLM_WAIT: 20, Share.LLM_CLIENT: 15, Share.TOOL: 15, Share.FRAMEWORK: 50}


def test_without_the_backends_spans_the_whole_call_is_a_wait():
    found = shares_ns(traces(OneTrace(0, 100, [event(SpanKind.CHAT, 10, 60)])))
    assert {share: int(took[0]) for share, took in found.items()} == {
        Share.LLM_WAIT: 50,
        Share.LLM_CLIENT: 0,
        Share.TOOL: 0,
        Share.FRAMEWORK: 50,
    }


def steps(request: OneTrace) -> list[Step]:
    return [Step(step.name, round(step.mean * 1e6)) for step in usual_path(traces(request)).steps]


def test_of_tools_at_once_only_the_last_to_end_is_on_the_path():
    request = OneTrace(
        *(0, 100),
        [
            event(SpanKind.CHAT, 10, 20, "chat m"),
            *(event(SpanKind.TOOL, 25, end, f"tool {end}") for end in (40, 60, 50)),
            event(SpanKind.CHAT, 65, 90, "chat m", Phase.REFLECT),
        ],
    )
    assert steps(request) == [
        Step("parse", 10),
        Step("plan: chat m", 10),
        Step("framework", 5),
        Step("tool: tool 60", 35),
        Step("framework", 5),
        Step("reflect: chat m", 25),
        Step("respond", 10),
    ]


def test_a_tool_that_begins_late_leaves_the_time_before_it_to_the_others():
    request = OneTrace(0, 50, [event(SpanKind.TOOL, 0, 30, "tool a"), event(SpanKind.TOOL, 20, 50, "tool b")])
    assert steps(request) == [Step("tool: tool a", 20), Step("tool: tool b", 30)]


def test_a_request_without_a_call_is_the_frameworks():
    assert steps(OneTrace(0, 7, [])) == [Step("framework", 7)]


def test_a_run_is_walked_in_pieces(monkeypatch):
    run = traces(*(OneTrace(n, 100 + n, [event(SpanKind.CHAT, 10 + n, 20 + n)]) for n in range(7)))
    whole = usual_path(run)
    monkeypatch.setattr("agentdyno.analysis.critical_path._AT_ONCE", 2)
    assert usual_path(run) == whole
    assert whole.requests == 7


def test_one_endless_request_does_not_make_room_for_as_much_in_all_others():
    short = [OneTrace(n, 100 + n, [event(SpanKind.CHAT, 10 + n, 20 + n)]) for n in range(2000)]
    endless = OneTrace(0, 100_000, [event(SpanKind.TOOL, 20 * n, 20 * n + 10, "tool") for n in range(1, 3000)])
    run = traces(*short[:1000], endless, *short[1000:])
    tracemalloc.start()
    try:
        found = usual_path(run)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.requests, found.of_requests) == (2000, 2001)
    assert peak_bytes < 40e6  # room for 6,000 steps in each is 144 MB
