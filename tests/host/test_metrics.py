"""The exposition text: each outcome where it belongs, and no label that grows with the requests."""

import asyncio
import gc

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from agentdyno.contract.trace import Goodbye, LlmCall, Service
from agentdyno.emit.sender import Sender
from agentdyno.host.metrics import HostMetrics
from agentdyno.host.trace import RequestTrace, ToolRun
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


@pytest.mark.parametrize("traced", [True, False])
def test_the_ledger_of_trace_records_is_on_the_metrics_of_a_host_that_is_traced(traced):
    spans = Sender(("127.0.0.1", 1), Service.HOST, capacity=2)  # not started: nothing leaves
    for _ in range(5):
        spans.add(lambda: Goodbye(Service.HOST, 0, 0))
    found = samples(make_host(Plain(), spans=spans if traced else None).metrics)
    ledger = {name: value for (name, _), value in found.items() if name.startswith("agentdyno_spans_")}
    assert ledger == ({"agentdyno_spans_recorded_total": 5, "agentdyno_spans_dropped_total": 3} if traced else {})


OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def worked() -> RequestTrace:
    """A request of 10 ms: 1 parse, 3 plan, 2 tool, 3 reflect, 1 respond."""
    trace = RequestTrace(0xABC, None, True, start_ns=0)
    ms = 1_000_000
    call = {"status": 200, "prompt_tokens": 100, "completion_tokens": 7}
    trace.llm_calls = [
        LlmCall(1, 1 * ms, end_ns=4 * ms, wants_tools=True, **call),
        LlmCall(2, 6 * ms, end_ns=9 * ms, wants_tools=False, **call),
    ]
    trace.tools = [ToolRun(3, "order_status", {}, 4 * ms, 6 * ms, result="x")]
    trace.end_ns = 10 * ms
    return trace


def test_what_a_request_did_is_summed_up():
    metrics = HostMetrics("bare")
    for _ in range(2):
        metrics.count_work(worked())
    seconds = {"parse": 0.001, "plan": 0.003, "tool": 0.002, "reflect": 0.003, "respond": 0.001, "framework": 0.0}
    for phase, each in seconds.items():
        assert value(metrics, "agentdyno_phase_duration_seconds_sum", phase=phase) == pytest.approx(2 * each)
        assert value(metrics, "agentdyno_phase_duration_seconds_count", phase=phase) == 2
    assert value(metrics, "agentdyno_tool_calls_total", result="ok") == 2
    assert value(metrics, "agentdyno_tool_calls_total", result="failed") == 0
    assert value(metrics, "agentdyno_llm_tokens_total", kind="prompt") == 400
    assert value(metrics, "agentdyno_llm_tokens_total", kind="completion") == 28


def test_the_self_check_can_leave_the_details_out():
    metrics = HostMetrics("bare")
    metrics.detailed = False
    metrics.count_work(worked())
    assert value(metrics, "agentdyno_phase_duration_seconds_count", phase="plan") == 0
    assert value(metrics, "agentdyno_tool_calls_total", result="ok") == 0


def test_who_asks_for_openmetrics_gets_the_last_trace_of_each_size():
    metrics = HostMetrics('ba"re\\')
    metrics.count("ok", 1_200_000, 0xAAA)
    metrics.count("ok", 1_300_000, 0xBBB)
    metrics.count("ok", 250_000_000, 0xCCC)
    metrics.count("ok", 2_500_000)
    text, content_type = metrics.render(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith(b"# EOF\n")
    families = {family.name: family for family in openmetrics(text.decode())}
    found = {
        sample.labels["le"]: (sample.exemplar.labels["trace_id"], sample.exemplar.value)
        for sample in families["agentdyno_request_duration_seconds"].samples
        if sample.exemplar is not None
    }
    assert found == {"0.0015": (f"{0xBBB:032x}", 0.0013), "0.3": (f"{0xCCC:032x}", 0.25)}
    assert {sample.labels["framework"] for sample in families["agentdyno_request_duration_seconds"].samples} == {
        'ba"re\\'
    }


def test_plain_text_has_no_exemplars_and_the_same_numbers():
    metrics = HostMetrics("bare")
    metrics.count("ok", 1_200_000, 0xAAA)
    plain, content_type = metrics.render("text/plain")
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b"trace_id" not in plain
    assert b"# EOF" not in plain
    assert value(metrics, "agentdyno_request_duration_seconds_count", outcome="ok") == 1


async def test_a_request_over_http_has_its_phases_and_its_trace_in_the_metrics():
    async with serving(Plain()) as served:
        answer = await served.ask("GET", "/metrics", headers=(f"accept: {OPENMETRICS}",))
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in openmetrics(answer.body.decode())}
    assert {"agentdyno_phase_duration_seconds", "agentdyno_loop_lag_seconds", "agentdyno_requests"} <= names
