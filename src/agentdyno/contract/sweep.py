"""`sweep.json`: the same agent with more and more users at once, each waiting for its answer before it asks again.

A closed loop: it measures another thing than a bench does. How often a user asks depends on how fast the host answers,
so a slow host gets less load, and a stall delays only those who wait. There is no rate, and no capacity to be read off.
"""

from __future__ import annotations

import msgspec

from agentdyno.contract.run import SCHEMA_VERSION, Finding, Outcome
from agentdyno.contract.summary import Framework

CLOSED_LOOP = (
    "A closed loop: each user waits for its answer before it asks again, so a slow host is asked less often. "
    "These latencies are no bench's, and say nothing of a rate; for that there is `capacity`."
)


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`plan.json`: what was asked for. requests: the least number a tier has; each user makes the same number.

    stream: as server-sent events; False where the adapter does not stream, and then there is no first token.
    """

    schema_version: int = SCHEMA_VERSION
    concurrency: tuple[int, ...]
    requests: int
    timeout_s: float
    scenario: str
    seed: int
    stream: bool
    clean_bound_s: float


class TierRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request of one user, a JSON line. Times are ns since the tier's start on the load side's monotonic clock:
    sent, the answer's head complete, the first token with text, the last byte; None where it never came.
    """

    user: int
    index: int
    session_id: str
    sent_ns: int
    head_ns: int | None
    first_token_ns: int | None
    done_ns: int
    outcome: Outcome
    status: int | None
    reason: str | None


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """What the host holds at one moment; sums over its processes, None for what cannot be read.

    tasks: asyncio's, not done. open_sockets, open_files: descriptors.
    """

    monotonic_ns: int
    host_in_flight: int | None
    llm_in_flight: int | None
    tasks: int | None
    open_sockets: int | None
    open_files: int | None
    rss_bytes: int | None


class TierFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`tier.json`: what only the rig saw of one tier. deleted: sessions that DELETE took; not_deleted: why it took no
    more. looks: after that, until all was back at the level before or the time for it was up.
    """

    users: int
    requests_each: int
    began_ns: int
    ended_ns: int
    before: Levels
    deleted: int
    not_deleted: str | None
    looks: tuple[Levels, ...]


class Waits(msgspec.Struct, frozen=True):
    """A time of the right answers, ms. A percentile with too few samples is None."""

    n: int
    p50: float | None = None
    p95: float | None = None
    max: float | None = None


class Clean(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a tier left nothing behind: all its sessions deleted, nothing in flight, tasks and sockets back at the
    level before. seconds: from the tier's end until that was seen. left: what there was more of at the last look.
    """

    clean: bool
    seconds: float | None
    deleted: int
    left: tuple[str, ...]


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """One tier. submit: until the answer's head, which the host sends with its first event. first_token: until the
    first text. cpu_peak_percent: of one core, over the busiest second. rss: MB of the host's processes before, at most,
    and when cleaned up. notes: what could not be told, and why.
    """

    users: int
    requests_each: int
    arrivals: int
    ok: int
    outcomes: dict[str, int]
    failure_reasons: dict[str, int]
    seconds: float
    submit_ms: Waits
    first_token_ms: Waits
    total_ms: Waits
    rss_before_mb: float | None
    rss_peak_mb: float | None
    rss_after_mb: float | None
    cpu_peak_percent: float | None
    cpu_ms_per_request: float | None
    tasks_before: int | None
    clean: Clean
    notes: tuple[str, ...] = ()


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole sweep. complete: every tier was measured."""

    schema_version: int = SCHEMA_VERSION
    framework: Framework
    workload_hash: str
    closed_loop: str = CLOSED_LOOP
    admission: int | None
    plan: SweepPlan
    tiers: tuple[Tier, ...]
    complete: bool
    findings: tuple[Finding, ...] = ()
    files: dict[str, str] = {}
