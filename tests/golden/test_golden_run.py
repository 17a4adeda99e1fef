"""Every figure of a run whose truth is known: exact values, no tolerance but for sums of binary fractions."""

from pathlib import Path

import msgspec
import pytest

from agentdyno.contract.run import Outcome, Reason
from agentdyno.contract.summary import (
    Framework,
    Gc,
    Latency,
    Lateness,
    Ledger,
    LoopLag,
    Memory,
    SpanLedger,
    StageCounts,
    Summary,
)
from tests.golden.run import END, FORKED, MS, START, T0, GoldenRun, S, samples


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return GoldenRun().summary(tmp_path_factory.mktemp("golden"))


def test_identity(golden: Summary) -> None:
    assert golden.run_id == "golden"
    assert golden.framework == Framework("golden", "1.2.3", "default", "llm")
    assert (golden.scenario, golden.backend) == ("chain", {"kind": "mock", "model": "scripted"})
    assert golden.cold_start_ms == 812.5


def test_latency_from_either_start(golden: Summary) -> None:
    # Rank j takes j * 10 us; the percentile q is rank ceil(q * 5000). Later ranks were sent 0.5, 1.5 and 8 ms late.
    assert golden.latency_ms is not None
    assert golden.latency_ms.service == Latency(5000, pytest.approx(25.005), 25.0, 45.0, 47.5, 49.5, 49.95, 50.0)
    late_mean = (4900 * 0.5 + 99 * 1.5 + 8) / 5000
    assert golden.latency_ms.intended == Latency(
        5000, pytest.approx(25.005 + late_mean), 25.5, 45.5, 48.0, 51.0, 51.45, 58.0
    )


def test_load(golden: Summary) -> None:
    load = golden.load
    assert load is not None
    assert load.requested_rate == 1000.0
    # 4999 gaps; the first was sent 0.5 ms late and so was the last.
    assert load.achieved_rate == pytest.approx(1000.0, rel=1e-12)
    assert (load.arrivals, load.sent, load.ok) == (5000, 5000, 5000)
    assert (load.failed, load.timeout, load.rejected, load.dropped) == (0, 0, 0, 0)
    assert load.lateness_ms == Lateness(0.5, 1.5, 8.0)
    assert load.failure_reasons == {}
    assert load.excluded == {
        "warmup": StageCounts(1000, 1000, 1000, 0, 0, 0, 0),
        "cooldown": StageCounts(500, 500, 500, 0, 0, 0, 0),
    }
    assert golden.goodput_rps == 1000.0
    assert golden.overloaded is False


def test_in_flight_max_is_that_of_a_sweep_over_all_moments(golden: Summary) -> None:
    changes = sorted((at, by) for r in GoldenRun().records for at, by in ((r.sent_ns, 1), (r.done_ns, -1)))
    now = most = 0
    for at, by in changes:
        now += by
        most = max(most, now) if START <= at < END else most
    assert golden.load is not None
    assert golden.load.in_flight_max == most == 47


def test_cpu_is_that_of_the_hosts_processes_within_the_window(golden: Summary) -> None:
    # 0.3 cores for 5 s and 0.2 s of the forked process, for the 5000 answers that were finished in the window.
    assert golden.cpu_ms_per_request == pytest.approx((1.5 + 0.2) * 1000 / 5000, rel=1e-9)


def test_idle_cpu_is_that_of_the_hosts_processes_before_the_first_arrival(golden: Summary) -> None:
    # 0.3 cores for the 0.9 s from the first look on, and 0.75 s of the process that then ended.
    assert golden.idle_cpu_ms_per_s == pytest.approx((0.27 + 0.75) * 1000 / 0.9, rel=1e-6)


def test_idle_cpu_is_not_known_from_a_single_look(tmp_path: Path) -> None:
    run = GoldenRun()
    run.samples = [sample for sample in samples() if sample.monotonic_ns >= T0 - 300 * MS]
    assert run.summary(tmp_path).idle_cpu_ms_per_s is None


def test_memory_is_summed_over_the_hosts_processes(golden: Summary) -> None:
    # The forked process (30 MB) and the host (90 MB then) at one moment are more than the host's high-water mark.
    assert golden.memory_mb == Memory(
        rss_idle=50.0,
        rss_warm=80.0,
        rss_drained=80.0,
        rss_rested=60.0,
        rss_peak=120.0,
        pss_peak=82.0,
        private_dirty_peak=65.0,
    )


def test_memory_of_a_host_of_one_process_peaks_at_the_kernels_high_water_mark(tmp_path: Path) -> None:
    run = GoldenRun()
    run.samples = [sample for sample in samples() if sample.pid != FORKED]
    # No look saw more than 90 MB, but the kernel did.
    found = run.summary(tmp_path).memory_mb
    assert (found.rss_peak, found.pss_peak, found.private_dirty_peak) == (95.0, 70.0, 60.0)


def test_collections_and_loop_lag_are_those_of_the_window(golden: Summary) -> None:
    assert golden.gc == Gc(pause_total_ms=7.5, pause_max_ms=4.5, collections=3)
    assert golden.loop_lag_ms == LoopLag(p50=25.0, p99=49.5, max=50.0)


def test_ledger_holds_means_per_answer(golden: Summary) -> None:
    assert golden.ledger == Ledger(4.0, 2005.0, 120.0, 9050.0, 3.0, 0.0, 0.5)


def test_generator(golden: Summary) -> None:
    assert (golden.generator.cpu_percent, golden.generator.lateness_ok, golden.generator.workers) == (20.0, True, 2)


def test_what_was_not_measured_is_none(golden: Summary) -> None:
    assert golden.spans == SpanLedger()
    assert set(golden.phases_ms.values()) == {None}


def test_verdict(golden: Summary) -> None:
    assert golden.verdict.valid
    assert golden.verdict.reasons == golden.verdict.notes == ()


def test_outcomes_are_counted_and_only_answers_are_timed(tmp_path: Path) -> None:
    run = GoldenRun()
    rest = {"llm_calls": None, "tool_calls": None, "prompt_bytes": None, "prompt_tokens": None}
    rest |= {"completion_tokens": None, "retries": None}
    for i in range(30):
        run.change(i, outcome=Outcome.REJECTED, status=429, reason="http_429", **rest)
    for i in range(30, 50):
        run.change(i, outcome=Outcome.TIMEOUT, status=None, reason="client_timeout", done_ns=i * S, **rest)
    for i in range(50, 60):
        run.change(i, outcome=Outcome.FAILED, status=500, reason="http_500", **rest)
    for i in range(60, 65):
        run.change(i, outcome=Outcome.DROPPED, reason="in_flight_cap", sent_ns=None, done_ns=None, **rest)
    run.ends = [msgspec.structs.replace(end, in_flight_area_s=None) for end in run.ends]  # less was in flight
    found = run.summary(tmp_path)
    load = found.load
    assert load is not None
    assert (load.arrivals, load.sent, load.ok) == (5000, 4995, 4935)
    assert (load.failed, load.timeout, load.rejected, load.dropped) == (10, 20, 30, 5)
    assert list(load.failure_reasons.items()) == [
        ("http_429", 30),
        ("client_timeout", 20),
        ("http_500", 10),
        ("in_flight_cap", 5),
    ]
    assert found.goodput_rps == 4935 / 5
    assert found.latency_ms is not None
    assert found.latency_ms.intended.n == found.latency_ms.service.n == 4935
    assert found.latency_ms.service.max == 50.0
    assert found.ledger.llm_calls == 4.0
    assert found.verdict.valid
    assert [note.code for note in found.verdict.notes] == [Reason.OVERLOADED]
    assert found.overloaded is True


def test_excluded_stages_change_no_figure_of_the_load(golden: Summary, tmp_path: Path) -> None:
    run = GoldenRun()
    for i in range(500):  # a cold framework: slow, piled up, failing, and with another number of calls
        outcome = Outcome.FAILED if i % 2 else Outcome.OK
        run.records[i] = msgspec.structs.replace(run.records[i], done_ns=START - 1, llm_calls=9, outcome=outcome)
    found = run.summary(tmp_path)
    assert found.load is not None
    assert golden.load is not None
    assert found.load.excluded["warmup"] == StageCounts(1000, 1000, 750, 250, 0, 0, 0)
    assert found.latency_ms == golden.latency_ms
    assert found.ledger == golden.ledger
    assert (found.goodput_rps, found.load.in_flight_max) == (golden.goodput_rps, golden.load.in_flight_max)
