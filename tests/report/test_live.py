"""The lines of `agentdyno top`, from texts whose every figure is known."""

from agentdyno.report.live import folded, lines
from agentdyno.report.looks import Look, Looks, series

LOAD = """
agentdyno_load_schedule_arrivals_per_second 200.0
agentdyno_load_planned_seconds 71.0
agentdyno_load_elapsed_seconds {elapsed}
agentdyno_load_worker_elapsed_seconds{{worker="0"}} {elapsed}
agentdyno_load_start_time_seconds {start}
agentdyno_load_stage{{stage="warmup"}} 0.0
agentdyno_load_stage{{stage="measure"}} 1.0
agentdyno_load_requests_in_flight 3.0
agentdyno_load_arrivals_total{{stage="warmup"}} 100.0
agentdyno_load_arrivals_total{{stage="measure"}} {arrivals}
agentdyno_load_requests_total{{stage="measure",outcome="ok"}} {ok}
agentdyno_load_requests_total{{stage="measure",outcome="rejected"}} {rejected}
agentdyno_load_latency_seconds_bucket{{le="0.1"}} {fast}
agentdyno_load_latency_seconds_bucket{{le="0.2"}} {ok}
agentdyno_load_latency_seconds_bucket{{le="+Inf"}} {ok}
"""
HOST = """
agentdyno_phase_duration_seconds_sum{{phase="plan"}} {plan}
agentdyno_phase_duration_seconds_count{{phase="plan"}} {ok}
agentdyno_gc_pause_seconds_sum{{generation="0"}} {gc}
agentdyno_loop_lag_seconds_bucket{{le="0.001"}} {ok}
agentdyno_loop_lag_seconds_bucket{{le="+Inf"}} {ok}
"""
RIG = """
agentdyno_process_cpu_seconds_total{{role="host"}} {cpu}
agentdyno_process_cpu_seconds_total{{role="backend"}} 1.0
agentdyno_process_resident_memory_bytes{{role="host"}} 46100000
agentdyno_process_resident_memory_bytes{{role="backend"}} 29000000
agentdyno_process_proportional_memory_bytes{{role="host"}} 34200000
"""
FIRST = {
    "start": 5,
    "elapsed": 10,
    "arrivals": 1000,
    "ok": 1000,
    "rejected": 0,
    "fast": 1000,
    "plan": 5,
    "gc": 0,
    "cpu": 2,
}
SECOND = {"start": 5, "elapsed": 12, "arrivals": 1400, "ok": 1300, "rejected": 100, "fast": 1150}
SECOND |= {"plan": 8, "gc": 0.02, "cpu": 2.6}


def seen(at_s: float, values: dict[str, float], silent: tuple[str, ...] = ()) -> Look:
    return Look(at_s, tuple(series(text.format(**values)) for text in (LOAD, HOST, RIG)), silent)


def after(first: Look, *others: Look) -> list[str]:
    looks = Looks(first)
    for other in others:
        looks.see(other)
    return lines("run", looks)


def test_between_two_looks_it_is_what_happened_since() -> None:
    assert after(seen(100.0, FIRST), seen(102.0, SECOND)) == [
        "run   measure 12/71 s",
        "rate      200.0/s asked for, 200.0/s due, 150.0/s ok, rejected 50.0/s; in flight 3",
        "latency   p50 100 ms, p99 198 ms; sent late p99 - (from buckets)",
        "phases    plan 10 ms a request",
        "CPU       2 ms a request; cores: host 0.30, backend 0.00",
        "memory    host 46.1 MB RSS, 34.2 MB PSS; backend 29.0 MB",
        "host      garbage collection 1.0% of the time, event-loop lag p99 0.99 ms",
    ]


def test_a_single_look_has_rates_of_the_load_alone() -> None:
    """Since its start. The others' counters began before it: with their imports, or the load before."""
    assert after(seen(100.0, FIRST)) == [
        "run   measure 10/71 s",
        "rate      200.0/s asked for, 110.0/s due, 100.0/s ok, no errors; in flight 3",
        "latency   p50 50 ms, p99 99 ms; sent late p99 - (from buckets)",
        "phases    - a request",
        "CPU       - a request; cores: host -, backend -",
        "memory    host 46.1 MB RSS, 34.2 MB PSS; backend 29.0 MB",
        "host      garbage collection - of the time, event-loop lag p99 -",
    ]


def test_what_is_not_known_is_a_dash_and_who_is_silent_is_named() -> None:
    assert after(Look(1.0, (), ("host", "load"))) == [
        "run   no load now",
        "rate      -/s asked for, -/s due, -/s ok, errors -; in flight -",
        "latency   p50 -, p99 -; sent late p99 - (from buckets)",
        "no answer from the metrics of: host, load",
    ]


def test_another_load_counts_from_nought() -> None:
    """As the next step of a search, also where it has counted more by now than the step before had."""
    for start, scale in ((101, 1), (60, 20)):
        anew = {"elapsed": 2 * scale, "arrivals": 40 * scale - 100, "ok": 40 * scale, "rejected": 0, "fast": 40 * scale}
        shown = after(seen(100.0, FIRST), seen(102.0, {**SECOND, **anew, "start": start}))
        assert "20.0/s due, 20.0/s ok, no errors" in shown[1]
        assert shown[2].startswith("latency   p50 50 ms, p99 99 ms")


def test_cpu_a_request_is_of_one_rate_by_the_other() -> None:
    """Though the looks are four seconds apart and the load's reports within them three."""
    reports = {"elapsed": 13, "arrivals": 1600, "ok": 1600, "fast": 1600, "rejected": 0}
    shown = after(seen(100.0, FIRST), seen(104.0, {**SECOND, **reports, "cpu": 2 + 4 * 0.5}))
    assert "200.0/s ok" in shown[1]
    assert shown[4] == "CPU       2.5 ms a request; cores: host 0.50, backend 0.00"


def test_a_narrow_terminal_gets_every_word_and_a_wide_one_the_lines_as_they_are() -> None:
    shown = after(seen(100.0, FIRST), seen(102.0, SECOND))
    assert folded(shown, 300) == shown
    narrow = folded(shown, 40)
    assert max(map(len, narrow)) <= 40
    assert " ".join(narrow).split() == " ".join(shown).split()
    assert narrow[2].startswith("          ")
    assert folded(["", "a"], 1) == ["", "a"]
