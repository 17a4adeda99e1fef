"""The verdict: every reason for which a run's figures cannot be trusted, each as a code and a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agentdyno.analysis.backend_count import other_counts
from agentdyno.analysis.figures import lateness_ms, mean_in_flight, run_queue_wait_seconds
from agentdyno.analysis.not_comparable import NOT_COMPARABLE, not_comparable
from agentdyno.analysis.run_data import Requests, RunData
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Finding, Outcome, Reason, Verdict
from agentdyno.contract.summary import Generator, Latencies, Latency, Load, SpanLedger
from agentdyno.record.manifest import Status

LATE_MS = 10.0
LATE_SHARE_MAX = 0.01
LATE_ALWAYS_ALLOWED = 2  # so that one hiccup among a few dozen arrivals does not void a short run
GENERATOR_CPU_MAX_PERCENT = 85.0
LITTLE_TOLERANCE = 0.10
LITTLE_FLOOR = 0.5  # mean requests in flight below which 10 % is within the reading error
OVERLOAD_SHARE = 0.01
NOISY_SHARE = 0.05
THROTTLED_SHARE = 0.01
CALIBRATION_RATIO_MAX = 1.25
_NOTES = frozenset(
    {
        Reason.OVERLOADED,
        Reason.FEW_SAMPLES,
        Reason.NOT_PINNED,
        Reason.NOISY,
        Reason.PROBES_LOST,
        Reason.PROFILED,
        Reason.NOT_READABLE,
        Reason.NATIVE_SPANS,
        Reason.PROTOCOL_ONLY,
        Reason.THROTTLED,
    }
)


def verdict(
    data: RunData, load: Load | None, latency: Latencies | None, spans: SpanLedger, *, phases_claimed: bool = True
) -> Verdict:
    """Put together what the rig saw happen and what the records say.

    phases_claimed: the summary prints phases, so that missing spans make it wrong. Otherwise they are worth a note.
    """
    missing = list(_spans(data, spans, phases_claimed))
    findings = list(data.manifest.findings)
    if all(finding.code in _NOTES for finding in findings):
        findings += _life(data)
    if data.requests is not None and load is not None and latency is not None:
        findings += _conservation(data, load)
        findings += _generator(data, load)
        findings += _success(data, load)
        findings += _order("intended", latency.intended)
        findings += _order("service", latency.service)
        findings += _little(data, data.requests)
        findings += _work(data, load)
        findings += missing if phases_claimed else []
        findings += _overload(load)
        findings += _samples(latency.intended)
    if data.manifest.cores.get("host") is None:
        alone = "it shared with the load side" if data.manifest.cluster is None else "it had its share of its node's"
        findings.append(Finding(Reason.NOT_PINNED, f"The host had no core of its own; {alone}."))
    findings += _noise(data)
    findings += _throttled(data)
    findings += not_comparable(data.manifest)
    reasons = tuple(f for f in findings if f.code not in _NOTES)
    notes = [f for f in findings if f.code in _NOTES]
    notes += [] if phases_claimed else missing
    comparable = all(finding.code not in NOT_COMPARABLE for finding in findings)
    return Verdict(not reasons, reasons, tuple(notes), comparable)


def is_overloaded(load: Load) -> bool:
    """More than 1 % of the arrivals were rejected, timed out or dropped: the framework did not keep up."""
    return load.arrivals > 0 and load.rejected + load.timeout + load.dropped > OVERLOAD_SHARE * load.arrivals


def generator(data: RunData, load: Load | None) -> Generator:
    """The load side's own state: CPU of its busiest worker, and whether it kept its schedule."""
    window_s = data.window().seconds
    used = [end.cpu_s for end in data.manifest.workers if end.cpu_s is not None]
    percent = max(used) / window_s * 100 if used and window_s > 0 else None
    late_ok = None if data.requests is None or load is None or not load.sent else not list(_late(data.requests, load))
    return Generator(cpu_percent=percent, lateness_ok=late_ok, workers=data.manifest.plan.workers)


def _life(data: RunData) -> Iterator[Finding]:
    """What the manifest and the files say of the run's life, where the rig itself has noted nothing."""
    manifest = data.manifest
    if manifest.status is not Status.FINISHED:
        code = Reason.RIG_FAILED if manifest.status is Status.FAILED else Reason.INTERRUPTED
        yield Finding(code, f"The run did not come to its end: its manifest says {manifest.status.value!r}.")
    elif data.requests is None or not len(data.requests):
        yield Finding(Reason.NO_SUCCESS, "Not one arrival is on record.")
    elif (finished := sum(end.finished for end in manifest.workers)) < manifest.plan.workers:
        text = f"Of {manifest.plan.workers} load workers {finished} followed the schedule to its end."
        yield Finding(Reason.GENERATOR_DIED, text)


def _conservation(data: RunData, load: Load) -> Iterator[Finding]:
    due = data.manifest.scheduled[Stage.MEASURE.value]
    counted = load.ok + load.failed + load.timeout + load.rejected + load.dropped
    if load.arrivals != counted:
        text = f"{load.arrivals} arrivals, but their outcomes add up to {counted}."
        yield Finding(Reason.NOT_CONSERVED, text)
    if load.arrivals != due:
        text = f"The schedule has {due} arrivals in the measured stage; {load.arrivals} are on record."
        yield Finding(Reason.NOT_CONSERVED, text)
    requests = data.requests
    if requests is None:
        return
    if not requests.indices_once():
        yield Finding(Reason.NOT_CONSERVED, "Some arrivals are on record twice.")
    untimed = int(((requests.was_sent | requests.outcome(Outcome.OK)) & ~requests.has_ended).sum())
    if untimed:
        text = f"{untimed} arrivals were sent or answered, but the times of it are not on record."
        yield Finding(Reason.NOT_CONSERVED, text)


def _late(requests: Requests, load: Load) -> Iterator[Finding]:
    late = lateness_ms(requests, requests.stage(Stage.MEASURE))
    count = int((late > LATE_MS).sum())
    if count > max(LATE_SHARE_MAX * load.arrivals, LATE_ALWAYS_ALLOWED):
        text = (
            f"{count} of {load.arrivals} arrivals were sent more than {LATE_MS:g} ms after their time "
            f"(at most {late.max():.0f} ms): the load generator, or its core, was too busy."
        )
        yield Finding(Reason.GENERATOR_LATE, text)


def _generator(data: RunData, load: Load) -> Iterator[Finding]:
    if data.requests is not None:
        yield from _late(data.requests, load)
    percent = generator(data, load).cpu_percent
    if percent is not None and percent > GENERATOR_CPU_MAX_PERCENT:
        text = (
            f"A load worker used {percent:.0f} % of a core; above {GENERATOR_CPU_MAX_PERCENT:g} % it measures itself. "
            "Use more WORKERS."
        )
        yield Finding(Reason.GENERATOR_CPU, text)


def _success(data: RunData, load: Load) -> Iterator[Finding]:
    if load.ok == 0:
        most = next(iter(load.failure_reasons.items()), None)
        why = f" Most often: {most[0]} ({most[1]} times)." if most else ""
        yield Finding(Reason.NO_SUCCESS, f"Not one of {load.arrivals} arrivals came back verified.{why}")


def _order(which: str, latency: Latency) -> Iterator[Finding]:
    known = [
        v for v in (latency.p50, latency.p90, latency.p95, latency.p99, latency.p999, latency.max) if v is not None
    ]
    if known != sorted(known):
        yield Finding(Reason.PERCENTILE_ORDER, f"The percentiles of the {which} latency are out of order.")


def _little(data: RunData, requests: Requests) -> Iterator[Finding]:
    """L = lambda W: the live integral of in-flight requests against the sum of the recorded times."""
    both = in_flight_twice(data, requests)
    if both is None:
        return
    live, recorded = both
    if abs(live - recorded) > max(LITTLE_TOLERANCE * max(live, recorded), LITTLE_FLOOR * LITTLE_TOLERANCE):
        text = (
            f"Counted live, {live:.2f} requests were in flight on average; by their recorded times {recorded:.2f}. "
            "By Little's law they must agree within 10 %."
        )
        yield Finding(Reason.LITTLES_LAW, text)


def in_flight_twice(data: RunData, requests: Requests) -> tuple[float, float] | None:
    """Mean requests in flight over the window, counted live and by the recorded times; None when not counted."""
    areas = [end.in_flight_area_s for end in data.manifest.workers]
    if not areas or any(area is None for area in areas):
        return None
    live = sum(area for area in areas if area is not None) / data.window().seconds
    return live, mean_in_flight(requests, data.window())


def _work(data: RunData, load: Load) -> Iterator[Finding]:
    """Each verified answer must have taken the declared number of calls; a mean could hide 2 and 4 behind 3."""
    manifest = data.manifest
    if data.requests is None or load.ok == 0:
        return
    rows = data.requests.stage(Stage.MEASURE) & data.requests.outcome(Outcome.OK)
    for column, what, expected in (
        ("tool_calls", "tool calls; the scenario asks for", manifest.expected_tool_calls),
        ("llm_calls", "LLM calls; the adapter declares", manifest.expected_llm_calls),
    ):
        counted = data.requests.numbers(column)[rows]
        counted = counted[~np.isnan(counted)]
        differs = counted[counted != expected] if expected is not None else counted[:0]
        if differs.size:
            text = f"{differs.size} of {load.ok} answers took another number of {what} {expected}, not {differs[0]:g}."
            yield Finding(Reason.WORK_DIFFERS, text)
    yield from other_counts(data, load)


def _spans(data: RunData, spans: SpanLedger, phases_claimed: bool) -> Iterator[Finding]:
    """Where phases are printed every span must be there; without traces nothing is claimed."""
    if spans.expected is None or spans.received is None:
        return
    if spans.received == spans.expected and not spans.orphaned and not spans.dropped:
        return
    died = "" if data.manifest.recorder is not None else "The recorder died in the run. "
    meaning = "the phases are not to be trusted" if phases_claimed else "there are no phases to show"
    text = (
        f"{died}{spans.expected} spans were due by the requests' own counts and {spans.received} are on record, "
        f"{spans.orphaned} without their parent, {spans.dropped} records dropped by their sender: "
        f"{meaning}. TRACES=off measures without them."
    )
    yield Finding(Reason.SPANS_MISSING, text)


def _overload(load: Load) -> Iterator[Finding]:
    if is_overloaded(load):
        text = (
            f"The framework did not keep up: of {load.arrivals} arrivals {load.ok} were answered, "
            f"{load.rejected} rejected, {load.timeout} timed out, {load.dropped} dropped. "
            "Latency is of the answered ones."
        )
        yield Finding(Reason.OVERLOADED, text)


def _noise(data: RunData) -> Iterator[Finding]:
    """The host is alone on its core; when it waits for it, somebody outside the run is on the machine. And the core
    must be as fast after the run as before it.
    """
    before, after = (data.manifest.calibration.get(moment) for moment in ("before", "after"))
    if before is not None and after is not None:
        ratio = after.median_ms / before.median_ms
        if not 1 / CALIBRATION_RATIO_MAX <= ratio <= CALIBRATION_RATIO_MAX:
            text = (
                f"The host's core took {ratio:.2f} times as long for the calibration loop after the run as before it: "
                "the machine's speed changed."
            )
            yield Finding(Reason.NOISY, text)
    window_ns = data.window_ns()
    if data.resources is None or window_ns is None or data.manifest.cores.get("host") is None:
        return
    waited_s = run_queue_wait_seconds(data.resources, "host", window_ns)
    if waited_s is not None and waited_s > NOISY_SHARE * data.window().seconds:
        share = waited_s / data.window().seconds
        text = (
            f"The host waited for its own core {share:.0%} of the time: other programs ran on it. "
            "Latency is worse than the framework's own, CPU per request less so."
        )
        yield Finding(Reason.NOISY, text)


def _throttled(data: RunData) -> Iterator[Finding]:
    """A host at its CPU limit is stopped for the rest of each period: its latency is then the limit's."""
    cgroup = data.manifest.cgroup
    if cgroup is None or not cgroup.periods or cgroup.throttled_periods is None:
        return
    share = cgroup.throttled_periods / cgroup.periods
    if share > THROTTLED_SHARE:
        limit = "its CPU limit" if cgroup.cpu_limit_cores is None else f"its limit of {cgroup.cpu_limit_cores:g} cores"
        waited = "" if cgroup.throttled_s is None else f", for {cgroup.throttled_s:.1f} s in all"
        text = f"The host used up {limit} in {share:.0%} of the periods and was stopped{waited}."
        yield Finding(Reason.THROTTLED, text)


def _samples(latency: Latency) -> Iterator[Finding]:
    missing = [
        name
        for name, value in (
            ("p50", latency.p50),
            ("p90", latency.p90),
            ("p95", latency.p95),
            ("p99", latency.p99),
            ("p99.9", latency.p999),
        )
        if value is None
    ]
    if missing and latency.n:
        text = f"{latency.n} samples are too few for {', '.join(missing)}, left out rather than guessed."
        yield Finding(Reason.FEW_SAMPLES, text)
