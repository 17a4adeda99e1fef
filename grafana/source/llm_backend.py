"""LLM backend: the scripted mock and vLLM, which have the same metrics."""

from grafana.source.panel import (
    CHOSEN,
    HEAT_COLUMNS,
    OF_A_RUN,
    VLLM_ONLY,
    Board,
    Kind,
    Panel,
    Query,
    Row,
    counts,
    mean,
    quantile,
    rate,
)

_REQUESTS = Row(
    "Requests",
    (
        Panel(
            "Running and waiting",
            "Calls being served, and calls that queue for a seat. Where they wait, latency is the LLM's.",
            "none",
            (
                Query(f"sum by (run) (vllm:num_requests_running{{{CHOSEN}}})", "running"),
                Query(f"sum by (run) (vllm:num_requests_waiting{{{CHOSEN}}})", "waiting"),
            ),
        ),
        Panel(
            "Finished",
            "Calls a second by why they ended: stop is whole, length was cut, abort was left by its caller.",
            "reqps",
            (Query(rate("vllm:request_success_total", "finished_reason"), "{{finished_reason}}"),),
            Kind.STACK,
        ),
        Panel(
            "Tokens",
            "Tokens a second of prompts read and of answers written.",
            "cps",
            (
                Query(rate("vllm:prompt_tokens_total", "run"), "prompt"),
                Query(rate("vllm:generation_tokens_total", "run"), "generation"),
            ),
        ),
    ),
)


def _percentiles(metric: str) -> tuple[Query, ...]:
    return tuple(Query(quantile(q, metric), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99))


def _coarse(title: str, description: str, metric: str) -> Panel:
    """Of a histogram whose first bucket holds nearly everything that a mock or a fast LLM does."""
    bounds = (
        "The mean is exact. The percentiles are from vLLM's buckets, whose first ends at 300 ms: where all calls are "
        "below it they say no more than that, and p50 stands at 150 ms whatever it was."
    )
    return Panel(title, f"{description} {bounds}", "s", (Query(mean(metric), "mean"), *_percentiles(metric)))


_TIMES = Row(
    "Times",
    (
        Panel(
            "Time to first token, heat map",
            f"How many calls waited how long for their first token, queueing included. {HEAT_COLUMNS}",
            "s",
            (Query(counts("vllm:time_to_first_token_seconds"), "{{le}}"),),
            Kind.HEAT,
        ),
        Panel(
            "Time to first token",
            "From a call's arrival to its first token, queueing included. Below 1 ms all is in the first bucket.",
            "s",
            _percentiles("vllm:time_to_first_token_seconds"),
        ),
        Panel(
            "Between tokens",
            "The mean time from one token of an answer to the next.",
            "s",
            (Query(mean("vllm:inter_token_latency_seconds"), "mean"),),
        ),
        _coarse("Whole call", "From a call's arrival to its last token.", "vllm:e2e_request_latency_seconds"),
        _coarse("Queue", "How long calls waited for a seat.", "vllm:request_queue_time_seconds"),
        Panel(
            "CPU of the backend",
            "Cores in use by a backend that the rig started, seen from outside.",
            "percentunit",
            (Query(rate("agentdyno_process_cpu_seconds_total", "run", 'role="backend"'), "backend"),),
        ),
    ),
)
_CACHE = Row(
    "Cache (vLLM)",
    (
        Panel(
            "KV cache in use",
            "Share of the KV cache's blocks. Near 1 calls queue, or are preempted.",
            "percentunit",
            (Query(f"vllm:kv_cache_usage_perc{{{CHOSEN}}}", "{{instance}}"),),
            elsewhere=VLLM_ONLY,
        ),
        Panel(
            "Prefix cache hits",
            "Share of the prompt tokens that were found in the cache.",
            "percentunit",
            (
                Query(
                    f"{rate('vllm:prefix_cache_hits_total', 'run')} / {rate('vllm:prefix_cache_queries_total', 'run')}",
                    "hits",
                ),
            ),
            elsewhere=VLLM_ONLY,
        ),
        Panel(
            "Preemptions",
            "Calls a second that lost their blocks to others and were computed anew.",
            "ops",
            (Query(rate("vllm:num_preemptions_total", "run"), "preemptions"),),
            elsewhere=VLLM_ONLY,
        ),
    ),
)

BOARD = Board(
    "agentdyno-llm-backend",
    "AgentDyno: LLM backend",
    "The LLM behind the framework. One dashboard for the scripted mock and for vLLM: the metrics' names are the same. "
    "With vLLM on a cluster, which outlives runs, its series name no run: leave Run at All.",
    (_REQUESTS, _TIMES, _CACHE),
    OF_A_RUN,
)
