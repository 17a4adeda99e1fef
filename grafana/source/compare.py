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

# The model of vllm-cpu proves the way there and back, no speed: such runs are compared with nothing, as in the rules.
RANKED = FRAMEWORK + ', backend!="vllm-cpu"'


def _bars(title: str, description: str, unit: str, expr: str, *, signed: bool = False) -> Panel:
    return Panel(
        title, description, unit, (Query(expr, "{{framework}}, {{scenario}}, {{backend}}"),), Kind.BARS, signed=signed
    )


def _per_request(metric: str) -> str:
    """A counter over the host's good answers, by framework, over an hour. Rejected requests make no calls."""
    top, below = (
        f"sum by (framework, scenario, backend) (increase({name}[1h]))"
        for name in (f"{metric}{{{RANKED}}}", f'agentdyno_requests_total{{{RANKED}, outcome="ok"}}')
    )
    return f"{top} / ({below} > 0)"


_HOUR = "Over all runs of the last hour, warm-up included. "
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
            "max by (framework, scenario, backend) (max_over_time("
            f'agentdyno_process_resident_memory_bytes{{{RANKED}, role="host"}}[1h]))'
            " or max by (framework, scenario, backend) (max_over_time("
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
            "sum by (framework, scenario, backend) (increase("
            f'agentdyno_load_requests_total{{{RANKED}, outcome!="ok"}}[1h]))'
            f" / (sum by (framework, scenario, backend) (increase(agentdyno_load_requests_total{{{RANKED}}}[1h])) > 0)",
        ),
        Panel(
            "Phases per request",
            _HOUR + "Where a request's time goes, as means.",
            "s",
            (
                Query(
                    f"sum by (framework, backend, phase) "
                    f"(increase(agentdyno_phase_duration_seconds_sum{{{RANKED}}}[1h]))"
                    f" / (sum by (framework, backend, phase) "
                    f"(increase(agentdyno_phase_duration_seconds_count{{{RANKED}}}[1h])) > 0)",
                    "{{framework}}, {{backend}}, {{phase}}",
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
            "Verified answers a second of each run.",
            "reqps",
            (Query(f"run:agentdyno_load_goodput:rate20s{{{CHOSEN}}}", "{{framework}} {{run}}"),),
            link=Link.RUN,
        ),
        Panel(
            "CPU per request",
            "CPU time of the host's processes over verified answers, of each run.",
            "s",
            (Query(f"run:agentdyno_cpu_seconds_per_request:rate20s{{{CHOSEN}}}", "{{framework}} {{run}}"),),
            link=Link.RUN,
        ),
        Panel(
            "Latency p99",
            "From when requests were due, of each run.",
            "s",
            (Query(f"run:agentdyno_load_latency_seconds:p99_rate20s{{{CHOSEN}}}", "{{framework}} {{run}}"),),
            link=Link.RUN,
        ),
        Panel(
            "Runs",
            "What each run was: version, approach, backend, workload. Only equal workload hashes asked for the same.",
            "string",
            (
                Query(
                    f"max by (run, framework, framework_version, approach, scenario, backend, workload_hash) "
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
    "beyond the control with the same backend. Differences between two single runs have no confidence interval; see "
    "METHODOLOGY.md.",
    (_COST, _TIMES, _LIVE),
    OF_A_RUN,
)
