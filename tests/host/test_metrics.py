"""The exposition text: each outcome where it belongs, and no label that grows with the requests."""

import asyncio
import gc

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentdyno.host.metrics import HostMetrics
from tests.host.adapters import Plain
from tests.host.serving import make_host, serving


def samples(metrics: HostMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics.render()[0].decode())
    return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}


def value(metrics: HostMetrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, frozenset({"framework": "bare", **labels}.items())]


@pytest.mark.parametrize("outcome", ["ok", "error", "timeout", "client_gone"])
def test_an_admitted_request_counts_and_has_a_duration(outcome):
    metrics = HostMetrics("bare")
    metrics.count(outcome, 250_000_000)
    metrics.count(outcome, 500_000)
    assert value(metrics, "agentdyno_requests_total", outcome=outcome) == 2
    assert value(metrics, "agentdyno_request_duration_seconds_count", outcome=outcome) == 2
    assert value(metrics, "agentdyno_request_duration_seconds_sum", outcome=outcome) == pytest.approx(0.2505)
    buckets = {bound: value(metrics, "agentdyno_request_duration_seconds_bucket", outcome=outcome, le=bound)
               for bound in ("0.001", "0.2", "0.3", "60.0", "+Inf")}  # fmt: skip
    assert buckets == {"0.001": 1, "0.2": 1, "0.3": 2, "60.0": 2, "+Inf": 2}


@pytest.mark.parametrize("outcome", ["rejected", "bad_request"])
def test_what_was_not_admitted_counts_without_a_duration(outcome):
    metrics = HostMetrics("bare")
    metrics.count(outcome)
    assert value(metrics, "agentdyno_requests_total", outcome=outcome) == 1
    assert ("agentdyno_request_duration_seconds_count", frozenset({"framework": "bare", "outcome": outcome}.items())) \
        not in samples(metrics)  # fmt: skip


def test_every_outcome_is_there_at_zero_from_the_start():
    found = samples(HostMetrics("bare"))
    outcomes = {dict(labels)["outcome"] for name, labels in found if name == "agentdyno_requests_total"}
    assert outcomes == {"ok", "error", "timeout", "rejected", "client_gone", "bad_request"}


def test_two_hosts_of_one_process_do_not_share_their_counts():
    one, other = HostMetrics("bare"), HostMetrics("bare")
    one.count("ok", 1_000_000_000)
    assert value(other, "agentdyno_requests_total", outcome="ok") == 0


async def test_what_the_probes_saw_is_on_the_metrics():
    async with serving(Plain()) as served:
        gc.collect(0)
        gc.collect(2)
        await asyncio.sleep(0.2)
        text = (await served.ask("GET", "/metrics")).body.decode()
        report = (await served.ask("GET", "/debug/probes")).json()
    samples = {
        (sample.name, sample.labels.get("generation"), sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    pauses = {generation: samples["agentdyno_gc_pause_seconds_count", generation, None] for generation in "012"}
    assert pauses["0"] >= 1
    assert pauses["2"] >= 1
    for generation in "012":
        assert samples["agentdyno_gc_pause_seconds_bucket", generation, "+Inf"] == pauses[generation]
        assert samples["agentdyno_gc_pause_seconds_bucket", generation, "5e-06"] <= pauses[generation]
    assert samples["agentdyno_gc_pause_seconds_sum", "2", None] > 0
    assert samples["agentdyno_loop_lag_seconds_count", None, None] >= 2
    # The probe's own task, the server's, the test's, the connection's.
    assert samples["agentdyno_tasks", None, None] >= 2
    assert report["tasks"] >= 2
    assert sum(pauses.values()) <= len(report["gc"])


def test_a_host_that_has_not_started_has_no_count_of_tasks():
    text = make_host(Plain()).metrics.render()[0].decode()
    assert "agentdyno_tasks{" not in text
    assert 'agentdyno_loop_lag_seconds_count{framework="bare"} 0\n' in text
