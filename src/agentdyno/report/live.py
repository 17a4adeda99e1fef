"""A running bench as a few lines of text, from two looks at its metrics."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from agentdyno.contract.phases import Phase
from agentdyno.contract.run import Outcome

Labels = frozenset[tuple[str, str]]
_INDENT = 10  # where the lines' texts begin


@dataclass(frozen=True, slots=True)
class Look:
    """All series of a run's processes at one moment. at_s: on the monotonic clock. silent: roles without an answer."""

    at_s: float
    series: Mapping[str, Mapping[Labels, float]]
    silent: tuple[str, ...] = field(default=())

    def of(self, name: str, **labels: str) -> float | None:
        """The sum over the series with these labels; None when there is none."""
        wanted = frozenset(labels.items())
        found = [value for has, value in self.series.get(name, {}).items() if wanted <= has]
        return sum(found) if found else None

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums by one label."""
        sums: dict[str, float] = {}
        for labels, value in self.series.get(name, {}).items():
            key = dict(labels).get(label, "")
            sums[key] = sums.get(key, 0.0) + value
        return sums


def look(at_s: float, texts: Iterable[str], silent: Iterable[str] = ()) -> Look:
    """What the expositions say. Raises ValueError for a text that is none."""
    series: dict[str, dict[Labels, float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                series.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return Look(at_s, series, tuple(silent))


def lines(title: str, now: Look, before: Look | None) -> list[str]:
    """What to show. before: an earlier look, to show what happened since; None: all since the start of the load."""
    elapsed_s = now.of("agentdyno_load_elapsed_seconds")
    planned_s = now.of("agentdyno_load_planned_seconds")
    stages = [stage for stage, on in now.by("agentdyno_load_stage", "stage").items() if on]
    where = f"{stages[0]} {_number(elapsed_s, 0)}/{_number(planned_s, 0)} s" if stages else "no load now"
    since = _Since(now, before, elapsed_s)
    shown = [
        f"{title}   {where}",
        *_load(since),
        *_latency(since),
        *_phases(since),
        *_resources(since),
        *_runtime(since),
    ]
    if now.silent:
        shown.append(f"no answer from the metrics of: {', '.join(now.silent)}")
    return shown


def folded(shown: Iterable[str], columns: int) -> list[str]:
    """The lines for a terminal of this width: what does not fit goes on below, under the line's text."""
    width = max(columns, 2 * _INDENT)
    return [
        part
        for line in shown
        for part in textwrap.wrap(line, width, subsequent_indent=" " * _INDENT, drop_whitespace=True) or [""]
    ]


class _Since:
    """Differences of counters, and seconds, between the two looks."""

    def __init__(self, now: Look, before: Look | None, elapsed_s: float | None) -> None:
        self.now = now
        self._before = before
        self.seconds = now.at_s - before.at_s if before is not None else elapsed_s or 0.0

    def count(self, name: str, **labels: str) -> float | None:
        """How much a counter has grown; None where it is not known."""
        value = self.now.of(name, **labels)
        if value is None or self._before is None:
            return value
        grown = value - (self._before.of(name, **labels) or 0.0)
        return grown if grown >= 0 else value  # another process counts now, from 0

    def rate(self, name: str, **labels: str) -> float | None:
        count = self.count(name, **labels)
        return None if count is None or self.seconds <= 0 else count / self.seconds

    def quantile_ms(self, q: float, name: str) -> float | None:
        """A quantile from buckets, linear within the bucket as in Prometheus; None without samples."""
        bounds = sorted(self.now.by(f"{name}_bucket", "le"), key=float)
        counts = [self.count(f"{name}_bucket", le=bound) or 0.0 for bound in bounds]
        if not counts or counts[-1] <= 0:
            return None
        rank = q * counts[-1]
        at = next(n for n, count in enumerate(counts) if count >= rank)
        low, below = (float(bounds[at - 1]), counts[at - 1]) if at else (0.0, 0.0)
        high = float(bounds[at])
        if high == float("inf"):
            return low * 1000
        return (low + (high - low) * (rank - below) / (counts[at] - below)) * 1000


def _load(since: _Since) -> list[str]:
    rates = {outcome: since.rate("agentdyno_load_requests_total", outcome=outcome.value) for outcome in Outcome}
    bad = ", ".join(f"{name.value} {value:.1f}/s" for name, value in rates.items() if name is not Outcome.OK and value)
    asked = _number(since.now.of("agentdyno_load_schedule_arrivals_per_second"))
    due, ok = _number(since.rate("agentdyno_load_arrivals_total")), _number(rates[Outcome.OK])
    in_flight = _number(since.now.of("agentdyno_load_requests_in_flight"), 0)
    return [f"rate      {asked}/s asked for, {due}/s due, {ok}/s ok, {bad or 'no errors'}; in flight {in_flight}"]


def _latency(since: _Since) -> list[str]:
    p50, p99 = (_ms(since.quantile_ms(q, "agentdyno_load_latency_seconds")) for q in (0.5, 0.99))
    late = _ms(since.quantile_ms(0.99, "agentdyno_load_lateness_seconds"))
    return [f"latency   p50 {p50}, p99 {p99}; sent late p99 {late} (from buckets)"]


def _phases(since: _Since) -> list[str]:
    means = []
    for phase in Phase:
        total_s = since.count("agentdyno_phase_duration_seconds_sum", phase=phase.value)
        requests = since.count("agentdyno_phase_duration_seconds_count", phase=phase.value)
        if total_s is not None and requests:
            means.append(f"{phase.value} {_ms(total_s / requests * 1000)}")
    return [f"phases    {', '.join(means)} a request"] if means else []


def _resources(since: _Since) -> list[str]:
    cores = {
        role: since.rate("agentdyno_process_cpu_seconds_total", role=role)
        for role in since.now.by("agentdyno_process_cpu_seconds_total", "role")
    }
    if not cores:
        return []
    used_s = since.count("agentdyno_process_cpu_seconds_total", role="host")
    ok = since.count("agentdyno_load_requests_total", outcome=Outcome.OK.value)
    each = f"{_ms(used_s / ok * 1000)} a request; " if used_s is not None and ok else ""
    sizes = since.now.by("agentdyno_process_resident_memory_bytes", "role")
    pss = since.now.of("agentdyno_process_proportional_memory_bytes", role="host")
    host = f"host {_mb(sizes.pop('host', None))} RSS, {_mb(pss)} PSS; "
    return [
        f"CPU       {each}cores: " + ", ".join(f"{role} {_number(value, 2)}" for role, value in _host_first(cores)),
        f"memory    {host}" + ", ".join(f"{role} {_mb(size)}" for role, size in sizes.items()),
    ]


def _runtime(since: _Since) -> list[str]:
    share = since.rate("agentdyno_gc_pause_seconds_sum")
    lag = since.quantile_ms(0.99, "agentdyno_loop_lag_seconds")
    if share is None:
        return []
    return [f"host      garbage collection {share:.1%} of the time, event-loop lag p99 {_ms(lag)}"]


def _host_first(values: Mapping[str, float | None]) -> list[tuple[str, float | None]]:
    return sorted(values.items(), key=lambda item: (item[0] != "host", item[0]))


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} ms" if value < 1000 else f"{value:,.0f} ms"


def _mb(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:.1f} MB"
