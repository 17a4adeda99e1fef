"""When the schedule began, by the host's clock, though no clock of one machine is ever compared with another's.

A request cannot reach the host before it was sent, nor its answer arrive before the host had the LLM's last word for
it. Of every answered request the generator knows, since t0, when it sent it and had the answer; the host knows, on its
own clock, when it began it and when its last LLM call was over. (Its end says nothing: the host notes it when the
answer is on its way already.) So t0 on the host's clock is before (begin - sent) and after (last call over - had). The
narrowest of all requests leave an interval as wide as the quickest way there and back, the host's last words included.
Without traces the pods' clocks are each looked at from here, between two moments of our own clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentdyno.cluster.programs import Mark
from agentdyno.contract.run import Outcome, WorkerEnd
from agentdyno.contract.trace import RequestEvents
from agentdyno.record.spans import RAW_FILE, decode, frames


@dataclass(frozen=True, slots=True)
class Between:
    """A moment on one clock, known to lie between two; low above high where the clocks run apart over the run."""

    low_ns: int
    high_ns: int

    @property
    def middle_ns(self) -> int:
        """What is taken for it."""
        return (self.low_ns + self.high_ns) // 2

    @property
    def width_ns(self) -> int:
        """How far apart the two are."""
        return abs(self.high_ns - self.low_ns)


def by_causality(requests: pa.Table, raw: Path, workers: int) -> list[Between | None]:
    """t0 of each worker on the host's clock; None for one of which no answered request was traced.

    requests: all, as the run folder has them. raw: the folder with what the recorder took.
    """
    host = _host_times(raw)
    answered = pc.and_(pc.equal(requests["outcome"], Outcome.OK.value), requests["traced"])
    sent = requests.filter(answered).select(["trace_id", "worker", "sent_ns", "done_ns"])
    both = sent.join(host, "trace_id", join_type="inner")
    worker, at = both["worker"].to_numpy(), {name: both[name].to_numpy() for name in both.column_names if "_ns" in name}
    low, high = at["told_ns"] - at["done_ns"], at["begin_ns"] - at["sent_ns"]
    found: list[Between | None] = []
    for number in range(workers):
        own = worker == number
        found.append(Between(int(np.max(low[own])), int(np.min(high[own]))) if own.any() else None)
    return found


def by_marks(end: WorkerEnd, load: Mark, host: Mark) -> Between:
    """t0 of a worker on the host's clock, from a look at either clock, both from the same machine.

    The two looks are at most as far apart as our clock says, so each of the bounds adds what is not known of both.
    """
    since_t0_ns = load.there_ns - end.t0_monotonic_ns
    least_ns, most_ns = host.before_ns - load.after_ns, host.after_ns - load.before_ns  # from that look to this one
    return Between(host.there_ns - since_t0_ns - most_ns, host.there_ns - since_t0_ns - least_ns)


def earliest(found: Sequence[Between | None]) -> int | None:
    """The first worker's t0; None when none is known."""
    return min((one.middle_ns for one in found if one is not None), default=None)


def _host_times(raw: Path) -> pa.Table:
    """Of each request: when the host began it, and when its last good LLM call was over."""
    columns: dict[str, list[str | int]] = {"trace_id": [], "begin_ns": [], "told_ns": []}
    for event in _requests(raw / RAW_FILE):
        over = (call.end_ns for call in event.llm_calls if call.ok and call.end_ns is not None)
        columns["trace_id"].append(event.trace_id.hex())
        columns["begin_ns"].append(event.start_ns)
        columns["told_ns"].append(max(over, default=event.start_ns))
    types = {"trace_id": pa.string(), "begin_ns": pa.int64(), "told_ns": pa.int64()}
    return pa.table({name: pa.array(column, types[name]) for name, column in columns.items()})


def _requests(file: Path) -> Iterator[RequestEvents]:
    content = file.read_bytes() if file.exists() else b""
    for body in frames(content):
        with suppress(msgspec.MsgspecError):  # counted where the spans are made of them
            yield from (record for record in decode(body) if isinstance(record, RequestEvents))
