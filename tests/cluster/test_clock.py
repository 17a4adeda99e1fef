"""t0 on the host's clock from causes and effects alone: right for any clocks and any way between machines."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.cluster.clock import Between, by_causality, by_marks, earliest
from agentdyno.cluster.programs import Mark
from agentdyno.contract.run import WorkerEnd
from agentdyno.contract.trace import LlmCall
from tests.record.recording import frame, goodbye, request

S = 10**9
WAYS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**8)), min_size=1, max_size=8)


def trace(number: int) -> bytes:
    return number.to_bytes(16, "big")


@given(t0_ns=st.integers(0, 10**15), ways=WAYS)
def test_t0_lies_between_whatever_the_ways_are(tmp_path_factory, t0_ns: int, ways: list[tuple[int, int, int]]) -> None:
    folder = tmp_path_factory.mktemp("raw")
    sent = [number * S for number in range(len(ways))]
    content, done = b"", []
    for number, (there, back, served) in enumerate(ways):
        begin = t0_ns + sent[number] + there
        call = LlmCall(number, begin, status=200, end_ns=begin + served)
        late = begin + served + back + S  # the host may note the end of a request at any time after it
        content += frame(request(trace_id=trace(number), start_ns=begin, end_ns=late, llm_calls=[call]), goodbye())
        done.append(sent[number] + there + served + back)
    (folder / "spans.frames").write_bytes(content)
    requests = pa.table({
        "trace_id": [trace(number).hex() for number in range(len(ways))],
        "worker": [0] * len(ways),
        "outcome": ["ok"] * len(ways),
        "traced": [True] * len(ways),
        "sent_ns": sent,
        "done_ns": done,
    })  # fmt: skip
    found, none = by_causality(requests, folder, 2)
    assert none is None
    assert found.low_ns <= t0_ns <= found.high_ns
    assert found.width_ns == min(there for there, _, _ in ways) + min(back for _, back, _ in ways)
    assert abs(found.middle_ns - t0_ns) <= found.width_ns / 2 + 1


def test_failed_and_untraced_requests_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "spans.frames").write_bytes(frame(request(trace_id=trace(1)), request(trace_id=trace(2)), goodbye()))
    columns = {"trace_id": [trace(1).hex(), trace(2).hex()], "worker": [0, 0], "sent_ns": [0, 0], "done_ns": [9, 9]}
    requests = pa.table({**columns, "outcome": ["timeout", "ok"], "traced": [True, False]})
    assert by_causality(requests, tmp_path, 1) == [None]
    assert earliest([None]) is None


@given(
    own_ns=st.integers(0, 10**15),
    looks=st.tuples(*[st.tuples(st.integers(0, S), st.integers(0, S)) for _ in range(2)]),
    gap_ns=st.integers(0, 10 * S),
    t0_ns=st.integers(0, 10**15),
    load_ahead_ns=st.integers(0, 10**15),
    host_ahead_ns=st.integers(0, 10**15),
)
def test_t0_lies_between_the_looks_at_two_clocks(own_ns, looks, gap_ns, t0_ns, load_ahead_ns, host_ahead_ns) -> None:
    (to_load, from_load), (to_host, from_host) = looks
    load_at = own_ns + to_load
    host_begin = load_at + from_load + gap_ns
    load = Mark(load_at + load_ahead_ns, own_ns, load_at + from_load)
    host = Mark(host_begin + to_host + host_ahead_ns, host_begin, host_begin + to_host + from_host)
    found = by_marks(WorkerEnd(0, True, t0_ns + load_ahead_ns, None, 0, 0, None), load, host)
    assert found.low_ns <= t0_ns + host_ahead_ns <= found.high_ns
    assert found.width_ns == to_load + from_load + to_host + from_host


def test_the_first_workers_t0_counts() -> None:
    assert earliest([Between(10, 20), None, Between(4, 6)]) == 5
