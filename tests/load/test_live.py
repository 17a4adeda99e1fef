"""The load's metrics: what a worker counts, and the master's sums over workers."""

import socket
import urllib.request

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from agentdyno.contract.proof import Stage
from agentdyno.contract.run import LoadPlan, Outcome, RequestRecord
from agentdyno.load.live import LiveCounts, LoadMetrics, WorkerCounts
from agentdyno.rig.processes import free_port
from tests.load.locust_processes import wait_for

MS = 1_000_000
PLAN = LoadPlan(
    rate=50.0, warmup_s=1.0, duration_s=10.0, cooldown_s=0.0, timeout_s=5.0, max_in_flight=10, seed=1, scenario="chain"
)


def record(outcome=Outcome.OK, *, stage="measure", sent_ms=0, done_ms=5, trace="a" * 32, traced=True) -> RequestRecord:
    """An arrival that was due at 0; sent_ms None: never."""
    return RequestRecord(
        index=0,
        stage=stage,
        stage_index=0,
        worker=0,
        intended_ns=0,
        sent_ns=None if sent_ms is None else sent_ms * MS,
        done_ns=None if done_ms is None else done_ms * MS,
        outcome=outcome,
        trace_id=trace,
        traced=traced,
    )


def counts(worker: int, *records: RequestRecord, in_flight: dict[str, int] | None = None) -> WorkerCounts:
    live = LiveCounts(worker, lambda: (Stage.MEASURE, 2.5 + worker, in_flight or {}))
    for each in records:
        live.add(each)
    # As it comes over Locust's wire.
    return msgspec.convert(msgspec.to_builtins(live.report()), WorkerCounts)


def samples(metrics: LoadMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text, _ = metrics.render("")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def requests(metrics: LoadMetrics) -> dict[tuple[str, str], float]:
    return {
        (dict(labels)["stage"], dict(labels)["outcome"]): value
        for (name, labels), value in samples(metrics).items()
        if name == "agentdyno_load_requests_total" and value
    }


def test_workers_are_summed_and_the_last_report_of_each_counts_once():
    metrics = LoadMetrics()
    metrics.begin(PLAN)
    metrics.on_report("w0", counts(0, record()))
    metrics.on_report("w0", counts(0, record(), record(), record(Outcome.REJECTED, stage="warmup")))
    metrics.on_report("w1", counts(1, record(done_ms=40, sent_ms=20), in_flight={"measure": 3}))
    found = samples(metrics)
    assert requests(metrics) == {("measure", "ok"): 3, ("warmup", "rejected"): 1}
    assert found["agentdyno_load_arrivals_total", (("stage", "measure"),)] == 6
    assert found["agentdyno_load_requests_in_flight", ()] == 3
    assert found["agentdyno_load_workers", ()] == 2
    assert found["agentdyno_load_elapsed_seconds", ()] == 3.5
    elapsed = "agentdyno_load_worker_elapsed_seconds"
    assert [found[elapsed, (("worker", worker),)] for worker in "01"] == [2.5, 3.5]
    assert found["agentdyno_load_schedule_arrivals_per_second", ()] == 50
    assert found["agentdyno_load_latency_seconds_count", ()] == 3
    assert found["agentdyno_load_latency_seconds_sum", ()] == pytest.approx(0.05)
    assert found["agentdyno_load_latency_seconds_bucket", (("le", "0.005"),)] == 2
    assert found["agentdyno_load_latency_seconds_bucket", (("le", "+Inf"),)] == 3
    assert found["agentdyno_load_service_time_seconds_sum", ()] == pytest.approx(0.03)
    assert {labels for name, labels in found if name == "agentdyno_load_worker_cpu_seconds_total"} == {
        (("worker", "0"),),
        (("worker", "1"),),
    }


def test_only_verified_answers_have_a_latency_and_only_what_was_sent_a_lateness():
    metrics = LoadMetrics()
    metrics.on_report("w", counts(0, record(Outcome.FAILED), record(Outcome.DROPPED, sent_ms=None, done_ms=None)))
    found = samples(metrics)
    assert found["agentdyno_load_latency_seconds_count", ()] == 0
    assert found["agentdyno_load_lateness_seconds_count", ()] == 1


def test_a_new_run_begins_with_nothing():
    metrics = LoadMetrics()
    metrics.on_report("w", counts(0, record()))
    metrics.begin(PLAN)
    assert requests(metrics) == {}
    assert samples(metrics)["agentdyno_load_workers", ()] == 0


def test_another_run_and_a_worker_that_waits_for_its_start_are_told_apart(monkeypatch):
    """What looks at two moments must know whether it looks at one load, and how long each worker has counted."""
    now = iter((1000.0, 2000.0))
    monkeypatch.setattr("agentdyno.load.live.time.time", lambda: next(now))
    metrics = LoadMetrics()
    assert samples(metrics)["agentdyno_load_start_time_seconds", ()] == 1000
    metrics.begin(PLAN)
    assert samples(metrics)["agentdyno_load_start_time_seconds", ()] == 2000
    metrics.on_report("w", msgspec.structs.replace(counts(0), elapsed_s=-0.4))
    assert samples(metrics)["agentdyno_load_worker_elapsed_seconds", (("worker", "0"),)] == 0


def test_exemplars_are_of_traced_requests_and_the_newest_worker_wins():
    metrics = LoadMetrics()
    metrics.on_report("w0", counts(0, record(trace="1" * 32), record(done_ms=90, trace="9" * 32, traced=False)))
    metrics.on_report("w1", counts(1, record(trace="2" * 32)))
    text, content_type = metrics.render("application/openmetrics-text;version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    found = {
        (family.name, sample.exemplar.labels["trace_id"])
        for family in openmetrics(text.decode())
        for sample in family.samples
        if sample.exemplar
    }
    assert found == {(f"agentdyno_load_{name}_seconds", "2" * 32) for name in ("latency", "service_time")}


def test_without_workers_the_runs_own_counts_are_shown():
    metrics = LoadMetrics()
    metrics.own = lambda: counts(0, record())
    assert requests(metrics) == {("measure", "ok"): 1}


@pytest.mark.e2e
@pytest.mark.parametrize("workers", [1, 2])
def test_locusts_master_serves_the_sum_over_its_workers(processes, workers):
    port = free_port()
    plan = ("--rate", "40", "--warmup", "1s", "--duration", "11s", "--cooldown", "0s", "--metrics-port", str(port))
    more = () if workers == 1 else ("--processes", str(workers))
    running = processes.locust(processes.target(), *plan, *more)
    seen: list[dict] = []

    def look() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
                text = answer.read().decode()
        except OSError:
            return False
        found = {
            (s.name, *sorted(s.labels.values())): s.value
            for family in text_string_to_metric_families(text)
            for s in family.samples
        }
        if found.get(("agentdyno_load_requests_total", "measure", "ok"), 0) > 100:
            seen.append(found)
        return bool(seen) or running.poll() is not None

    wait_for(look, "a hundred requests on the metrics")
    ended = processes.wait(running)
    assert ended.code == 0, ended.output
    assert ended.outcomes() == {("ok", None): 480}
    (found,) = seen
    assert found["agentdyno_load_workers",] == workers
    # All of the warm-up, which each worker sent a share of, and never more than the schedule has.
    assert found["agentdyno_load_requests_total", "ok", "warmup"] == 40
    assert 100 < found["agentdyno_load_requests_total", "measure", "ok"] <= 440
    cpu = [key for key in found if key[0] == "agentdyno_load_worker_cpu_seconds_total"]
    assert len(cpu) == workers


@pytest.mark.e2e
def test_a_port_that_is_taken_costs_the_metrics_and_not_the_run(processes):
    plan = ("--rate", "20", "--warmup", "0s", "--duration", "1s", "--cooldown", "0s")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = processes.run(processes.target(), *plan, "--metrics-port", str(port))
    assert ended.code == 0, ended.output
    assert f"cannot be served on port {port}" in ended.output
