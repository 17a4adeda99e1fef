"""vLLM's counters are read from what it really says, and only from that."""

import json

import pytest

from agentdyno.backends.vllm.counters import read_counters, since
from tests.golden.vllm_recording import CASES, recorded


def test_what_was_served_before_the_scrape_is_counted() -> None:
    """The recording's own requests: those that came before its /metrics, and were answered."""
    names = list(CASES)
    before = [name for name in names[: names.index("metrics")] if CASES[name].method == "POST"]
    counters = read_counters(recorded("metrics").body)
    assert counters.requests == len(before)
    used = []
    for name in before:
        if "streamed" not in name:
            used.append(json.loads(recorded(name).body)["usage"])
        elif name != "text-streamed-without-usage":
            used.append(recorded(name).events[-2]["usage"])
    assert len(used) == len(before) - 1
    # The one stream without usage is the same request as the one with it.
    used.append(recorded("text-streamed").events[-2]["usage"])
    assert counters.prompt_tokens == sum(one["prompt_tokens"] for one in used)
    assert counters.completion_tokens == sum(one["completion_tokens"] for one in used)
    assert 0 < counters.prefill_s <= counters.first_token_s < counters.end_to_end_s


def test_the_difference_between_two_readings() -> None:
    now = read_counters(recorded("metrics").body)
    nothing = since(now, now)
    assert (nothing.requests, nothing.prompt_tokens, nothing.decode_s) == (0, 0, 0.0)


def test_another_server_is_told_apart() -> None:
    with pytest.raises(ValueError, match=r"it has no vllm:request_success_total.*not vLLM"):
        read_counters("# TYPE up gauge\nup 1\n")
    body = recorded("metrics").body.replace("vllm:request_prefill_time_seconds", "vllm:another")
    with pytest.raises(ValueError, match=r"it has no vllm:request_prefill_time_seconds_sum:"):
        read_counters(body)
