"""A running bench as a few lines of text, from looks at its metrics."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from agentdyno.contract.phases import Phase
from agentdyno.contract.run import Outcome
from agentdyno.report.looks import Between, Grown, Look, Looks

_INDENT = 10  # where the lines' texts begin
_CPU = "agentdyno_process_cpu_seconds_total"
_PHASES = "agentdyno_phase_duration_seconds"
_GC = "agentdyno_gc_pause_seconds_sum"


def lines(title: str, looks: Looks) -> list[str]:
    """What to show: levels of now, and rates since an earlier look; of the load alone those since its start, where
    there has been one look. What is not known is a dash.
    """
    now, between = looks.now, looks.between
    elapsed_s = now.of("agentdyno_load_elapsed_seconds")
    planned_s = now.of("agentdyno_load_planned_seconds")
    stages = [stage for stage, on in now.by("agentdyno_load_stage", "stage").items() if on]
    where = f"{stages[0]} {_number(elapsed_s, 0)}/{_number(planned_s, 0)} s" if stages else "no load now"
    shown = [
        f"{title}   {where}",
        *_load(now, between.load),
        *_latency(between.load),
        *_phases(between.rest),
        *_resources(now, between),
        *_runtime(between.rest),
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


def _load(now: Look, load: Grown) -> list[str]:
    rates = {outcome: load.rate("agentdyno_load_requests_total", outcome=outcome.value) for outcome in Outcome}
    bad = ", ".join(f"{name.value} {value:.1f}/s" for name, value in rates.items() if name is not Outcome.OK and value)
    none = "no errors" if rates[Outcome.OK] is not None else "errors -"
    asked = _number(now.of("agentdyno_load_schedule_arrivals_per_second"))
    due, ok = _number(load.rate("agentdyno_load_arrivals_total")), _number(rates[Outcome.OK])
    in_flight = _number(now.of("agentdyno_load_requests_in_flight"), 0)
    return [f"rate      {asked}/s asked for, {due}/s due, {ok}/s ok, {bad or none}; in flight {in_flight}"]


def _latency(load: Grown) -> list[str]:
    p50, p99 = (_ms(load.quantile_ms(q, "agentdyno_load_latency_seconds")) for q in (0.5, 0.99))
    late = _ms(load.quantile_ms(0.99, "agentdyno_load_lateness_seconds"))
    return [f"latency   p50 {p50}, p99 {p99}; sent late p99 {late} (from buckets)"]


def _phases(host: Grown) -> list[str]:
    if host.now.of(f"{_PHASES}_sum") is None:
        return []
    means = []
    for phase in Phase:
        total_s = host.count(f"{_PHASES}_sum", phase=phase.value)
        requests = host.count(f"{_PHASES}_count", phase=phase.value)
        if total_s is not None and requests:
            means.append(f"{phase.value} {_ms(total_s / requests * 1000)}")
    return [f"phases    {', '.join(means) or '-'} a request"]


def _resources(now: Look, between: Between) -> list[str]:
    cores = {role: between.rest.rate(_CPU, role=role) for role in now.by(_CPU, "role")}
    if not cores:
        return []
    # Of two rates, not of two counts: the load's is over the time of its reports, the other over that of the looks.
    used, ok = cores.get("host"), between.load.rate("agentdyno_load_requests_total", outcome=Outcome.OK.value)
    each = _ms(used / ok * 1000 if used is not None and ok else None)
    sizes = now.by("agentdyno_process_resident_memory_bytes", "role")
    pss = now.of("agentdyno_process_proportional_memory_bytes", role="host")
    host = f"host {_mb(sizes.pop('host', None))} RSS, {_mb(pss)} PSS; "
    return [
        f"CPU       {each} a request; cores: "
        + ", ".join(f"{role} {_number(value, 2)}" for role, value in _host_first(cores)),
        f"memory    {host}" + ", ".join(f"{role} {_mb(size)}" for role, size in sizes.items()),
    ]


def _runtime(host: Grown) -> list[str]:
    if host.now.of(_GC) is None:
        return []
    share, lag = host.rate(_GC), host.quantile_ms(0.99, "agentdyno_loop_lag_seconds")
    stopped = "-" if share is None else f"{share:.1%}"
    return [f"host      garbage collection {stopped} of the time, event-loop lag p99 {_ms(lag)}"]


def _host_first(values: Mapping[str, float | None]) -> list[tuple[str, float | None]]:
    return sorted(values.items(), key=lambda item: (item[0] != "host", item[0]))


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} ms" if value < 1000 else f"{value:,.0f} ms"


def _mb(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:.1f} MB"
