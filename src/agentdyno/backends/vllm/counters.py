"""vLLM's own count of its work, from its /metrics."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from agentdyno.contract.run import ServerCounters

# What is summed over its labels: engines, and the reason for which a request ended.
_COUNTERS = {
    "requests": "vllm:request_success_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "completion_tokens": "vllm:generation_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "queue_s": "vllm:request_queue_time_seconds_sum",
    "prefill_s": "vllm:request_prefill_time_seconds_sum",
    "decode_s": "vllm:request_decode_time_seconds_sum",
    "first_token_s": "vllm:time_to_first_token_seconds_sum",
    "end_to_end_s": "vllm:e2e_request_latency_seconds_sum",
}


def read_counters(exposition: str) -> ServerCounters:
    """The counters of a server that has just said this. Raises ValueError when it is no vLLM's, or no exposition."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    missing = [name for name in _COUNTERS.values() if name not in sums]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}: that is not vLLM, or not the version that this knows")
    return _counters({name: sums[metric] for name, metric in _COUNTERS.items()})


def since(before: ServerCounters, now: ServerCounters) -> ServerCounters:
    """What was counted between two readings."""
    return _counters({name: getattr(now, name) - getattr(before, name) for name in _COUNTERS})


def _counters(values: Mapping[str, float]) -> ServerCounters:
    return ServerCounters(
        requests=round(values["requests"]),
        prompt_tokens=round(values["prompt_tokens"]),
        completion_tokens=round(values["completion_tokens"]),
        preemptions=round(values["preemptions"]),
        queue_s=values["queue_s"],
        prefill_s=values["prefill_s"],
        decode_s=values["decode_s"],
        first_token_s=values["first_token_s"],
        end_to_end_s=values["end_to_end_s"],
    )
