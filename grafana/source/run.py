"""Run: one framework live."""

from grafana.source.panel import (
    CHOSEN,
    HEAT_COLUMNS,
    OF_A_RUN,
    Board,
    Kind,
    Link,
    Panel,
    Query,
    Row,
    counts,
    quantile,
    rate,
)

_LATENCY = "agentdyno_load_latency_seconds"
_NOW = Row(
    "Now",
    (
        Panel(
            "Stage",
            "What the load is at: warm-up, measurement or cool-down. Nothing once the run is over.",
            "string",
            (Query(f"agentdyno_load_stage{{{CHOSEN}}} == 1", "{{stage}}"),),
            Kind.WORD,
            width=3,
        ),
        Panel(
            "Goodput",
            "Verified answers a second.",
            "reqps",
            (Query(f"run:agentdyno_load_goodput:rate20s{{{CHOSEN}}}", "{{framework}}"),),
            Kind.NUMBER,
            width=3,
        ),
        Panel(
            "Without a verified answer",
            "Share of the arrivals that failed, timed out, or were rejected or dropped.",
            "percentunit",
            (Query(f"run:agentdyno_load_errors:ratio_rate20s{{{CHOSEN}}}", "{{framework}}"),),
            Kind.NUMBER,
            width=3,
            thresholds=(0.001, 0.01),
        ),
        Panel(
            "Latency p50",
            "From when a request was due to its verified answer, of the last 20 s; from buckets, within a quarter.",
            "s",
            (Query(f"run:agentdyno_load_latency_seconds:p50_rate20s{{{CHOSEN}}}", "{{framework}}"),),
            Kind.NUMBER,
            width=3,
            link=Link.TRACES,
        ),
        Panel(
            "Latency p99",
            "The same for one in a hundred. The run's own p99 is in its summary, from raw samples.",
            "s",
            (Query(f"run:agentdyno_load_latency_seconds:p99_rate20s{{{CHOSEN}}}", "{{framework}}"),),
            Kind.NUMBER,
            width=3,
            link=Link.TRACES,
        ),
        Panel(
            "CPU per request",
            "CPU time of the host's processes over verified answers.",
            "s",
            (Query(f"run:agentdyno_cpu_seconds_per_request:rate20s{{{CHOSEN}}}", "{{framework}}"),),
            Kind.NUMBER,
            width=3,
        ),
        Panel(
            "Host memory",
            "Resident size of the host's processes, seen from outside; on a cluster as the host reads it of itself.",
            "bytes",
            (
                Query(
                    "sum by (run, framework, scenario) "
                    f'(agentdyno_process_resident_memory_bytes{{{CHOSEN}, role="host"}})'
                    " or sum by (run, framework, scenario) "
                    f'(process_resident_memory_bytes{{{CHOSEN}, role="host"}})',
                    "{{framework}}",
                ),
            ),
            Kind.NUMBER,
            width=3,
        ),
        Panel(
            "Sent late",
            "Share of the arrivals of the last 20 s that the generator sent more than 10 ms late. If it stays above "
            "1 % in the measurement the run will be invalid.",
            "percentunit",
            (Query(f"run:agentdyno_load_late:ratio_rate20s{{{CHOSEN}}}", "{{framework}}"),),
            Kind.NUMBER,
            width=3,
            thresholds=(0.005, 0.01),
        ),
    ),
)
_LOAD = Row(
    "Load",
    (
        Panel(
            "Rate offered and achieved",
            "Asked for, come due, and answered well. Where goodput is below the others the framework cannot keep up.",
            "reqps",
            (
                Query(f"agentdyno_load_schedule_arrivals_per_second{{{CHOSEN}}}", "asked for"),
                Query(f"run:agentdyno_load_arrivals:rate20s{{{CHOSEN}}}", "due"),
                Query(f"run:agentdyno_load_goodput:rate20s{{{CHOSEN}}}", "goodput"),
            ),
        ),
        Panel(
            "Outcomes",
            "What became of the arrivals, each once: ok, failed, timeout, rejected (429), dropped (never sent).",
            "reqps",
            (Query(rate("agentdyno_load_requests_total", "outcome"), "{{outcome}}"),),
            Kind.STACK,
        ),
        Panel(
            "In flight",
            "Requests under way, as the load generator and as the host count them.",
            "none",
            (
                Query(f"agentdyno_load_requests_in_flight{{{CHOSEN}}}", "sent, not answered"),
                Query(f"agentdyno_requests_in_flight{{{CHOSEN}}}", "in the host"),
            ),
        ),
    ),
)
_TIMES = Row(
    "Latency",
    (
        Panel(
            "Latency, heat map",
            f"How many answers took how long, from when they were due. {HEAT_COLUMNS} Each cell is a bucket, a "
            "dot a trace.",
            "s",
            (Query(counts(_LATENCY), "{{le}}", exemplars=True),),
            Kind.HEAT,
            width=12,
            link=Link.TRACES,
        ),
        Panel(
            "Latency percentiles",
            "From when a request was due; the service time counts from the send. What lies between is the generator's.",
            "s",
            (
                Query(quantile(0.5, _LATENCY), "p50", exemplars=True),
                Query(quantile(0.95, _LATENCY), "p95"),
                Query(quantile(0.99, _LATENCY), "p99"),
                Query(quantile(0.99, "agentdyno_load_service_time_seconds"), "service time p99"),
            ),
            width=12,
            link=Link.TRACES,
        ),
        Panel(
            "Phases, mean",
            "Where a request's time goes; the six add up to it. framework is what lies between LLM calls and tools.",
            "s",
            (Query(f"run:agentdyno_phase_seconds_per_request:rate20s{{{CHOSEN}}}", "{{phase}}"),),
            Kind.STACK,
            width=12,
            link=Link.TRACES,
        ),
        Panel(
            "Phases, p99",
            "The slowest one in a hundred of each phase by itself; these do not add up.",
            "s",
            (Query(quantile(0.99, "agentdyno_phase_duration_seconds", "phase"), "{{phase}}"),),
            width=12,
            link=Link.TRACES,
        ),
    ),
)
_COST = Row(
    "CPU and memory",
    (
        Panel(
            "CPU by role",
            "Cores in use by the processes of the run. The host has a core of its own where there are two or more.",
            "percentunit",
            (Query(rate("agentdyno_process_cpu_seconds_total", "role"), "{{role}}"),),
        ),
        Panel(
            "CPU per request",
            "CPU time of the host's processes over verified answers; under overload failed requests are in it too.",
            "s",
            (Query(f"run:agentdyno_cpu_seconds_per_request:rate20s{{{CHOSEN}}}", "{{framework}}"),),
        ),
        Panel(
            "Waiting for a core",
            "Share of the time that the main threads were ready without a core. Above 5 % for the host a run is noisy.",
            "percentunit",
            (Query(rate("agentdyno_process_run_queue_wait_seconds_total", "role"), "{{role}}"),),
        ),
        Panel(
            "Memory by role",
            "Resident size of the processes, seen from outside.",
            "bytes",
            (Query(f"sum by (role) (agentdyno_process_resident_memory_bytes{{{CHOSEN}}})", "{{role}}"),),
        ),
        Panel(
            "Host memory, RSS and PSS",
            "PSS counts a page that several processes share by its share.",
            "bytes",
            (
                Query(f'agentdyno_process_resident_memory_bytes{{{CHOSEN}, role="host"}}', "RSS"),
                Query(f'agentdyno_process_proportional_memory_bytes{{{CHOSEN}, role="host"}}', "PSS"),
            ),
        ),
        Panel(
            "Host memory, its own view",
            "Resident size as the host reads it of itself. A click leads to its heap profile, in a make profile alone.",
            "bytes",
            (Query(f'process_resident_memory_bytes{{{CHOSEN}, role="host"}}', "{{instance}}"),),
            link=Link.HEAP,
        ),
    ),
)
_RUNTIME = Row(
    "Inside the host",
    (
        Panel(
            "Garbage collection, share of time",
            "How much of the time the host stands still for Python's cyclic collector.",
            "percentunit",
            (Query(rate("agentdyno_gc_pause_seconds_sum", "generation"), "generation {{generation}}"),),
            Kind.STACK,
        ),
        Panel(
            "Garbage collections",
            "Collections a second, by generation; 2 visits the whole heap.",
            "ops",
            (Query(rate("agentdyno_gc_pause_seconds_count", "generation"), "generation {{generation}}"),),
        ),
        Panel(
            "Event-loop lag",
            "How late the event loop ran a timer that was due every 50 ms: what any coroutine had to wait.",
            "s",
            (
                Query(quantile(0.5, "agentdyno_loop_lag_seconds"), "p50"),
                Query(quantile(0.99, "agentdyno_loop_lag_seconds"), "p99"),
            ),
        ),
        Panel(
            "Calls to LLM and tools",
            "At the host's borders, whatever the framework says of itself; failed ones apart.",
            "ops",
            (
                Query(rate("agentdyno_llm_calls_total", "result"), "LLM, {{result}}"),
                Query(rate("agentdyno_tool_calls_total", "result"), "tools, {{result}}"),
            ),
        ),
        Panel(
            "Tokens",
            "By the usage in the LLM's answers; 0 where a framework streams without asking for it.",
            "cps",
            (Query(rate("agentdyno_llm_tokens_total", "kind"), "{{kind}}"),),
        ),
        Panel(
            "Tasks, spans",
            "asyncio's tasks that are not done; trace records that host and mock LLM made a second, and those that "
            "each threw away, which must stay 0.",
            "none",
            (
                Query(f"agentdyno_tasks{{{CHOSEN}}}", "tasks"),
                Query(rate("agentdyno_spans_recorded_total", "role"), "{{role}}, records a second"),
                Query(rate("agentdyno_spans_dropped_total", "role"), "{{role}}, dropped a second"),
            ),
        ),
    ),
)

BOARD = Board(
    "agentdyno-run",
    "AgentDyno: Run",
    "One framework under load, live: what it is asked for, what comes of it, where the time goes and what it costs. "
    "Live figures are from buckets; a run's figures are those of its summary.json.",
    (_NOW, _LOAD, _TIMES, _COST, _RUNTIME),
    OF_A_RUN,
)
