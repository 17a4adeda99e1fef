"""One test a reason: break just that in a run that is valid, and see just that reason."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agentdyno.analysis import figures
from agentdyno.analysis.run_data import RunData
from agentdyno.analysis.summary import summarise
from agentdyno.analysis.verdict import verdict
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import BackendStage, Finding, Outcome, Reason, ServerCounters, Verdict
from agentdyno.contract.summary import SpanLedger
from agentdyno.record.calibration import Calibration
from agentdyno.record.manifest import Backend, Status
from tests.golden.run import COUNTS, HOST, MS, GoldenRun


def judged(run: GoldenRun, parent: Path) -> Verdict:
    return run.summary(parent).verdict


def reasons(found: Verdict) -> list[Reason]:
    assert found.valid == (not found.reasons)
    return [finding.code for finding in found.reasons]


@pytest.fixture
def run() -> GoldenRun:
    return GoldenRun()


def test_an_untouched_run_is_valid_without_a_word(run: GoldenRun, tmp_path: Path) -> None:
    assert judged(run, tmp_path) == Verdict(True)


def test_outcomes_that_do_not_add_up(run: GoldenRun, tmp_path: Path) -> None:
    data = run.read(tmp_path)
    assert data.requests is not None
    load = figures.load(data.requests, 1000.0, data.window())
    lost = msgspec.structs.replace(load, ok=load.ok - 3)
    found = verdict(data, lost, figures.latencies(data.requests), SpanLedger())
    # The backend's own count is compared only where all were answered.
    assert reasons(found) == [Reason.NOT_CONSERVED]
    assert "5000 arrivals, but their outcomes add up to 4997" in found.reasons[0].message


def test_an_arrival_missing_from_the_record(run: GoldenRun, tmp_path: Path) -> None:
    del run.records[COUNTS[Stage.WARMUP] + 4998]  # a short one: Little's law does not notice
    run.backend = None
    found = judged(run, tmp_path)
    assert reasons(found) == [Reason.NOT_CONSERVED]
    assert "5000 arrivals in the measured stage; 4999" in found.reasons[0].message


def test_an_arrival_on_record_twice(run: GoldenRun, tmp_path: Path) -> None:
    run.change(4998, index=run.records[COUNTS[Stage.WARMUP] + 4997].index)
    found = judged(run, tmp_path)
    assert reasons(found) == [Reason.NOT_CONSERVED]
    assert "twice" in found.reasons[0].message


@pytest.mark.parametrize("field", ["sent_ns", "done_ns"])
def test_an_answer_without_its_times(run: GoldenRun, tmp_path: Path, field: str) -> None:
    run.change(4999, **{field: None})
    found = judged(run, tmp_path)
    assert reasons(found) == [Reason.NOT_CONSERVED]
    assert "1 arrivals" in found.reasons[0].message


def late(run: GoldenRun, count: int, late_ns: int) -> GoldenRun:
    """So many of the fast measured arrivals sent too late; how long each took stays."""
    for i in range(count):
        record = run.records[COUNTS[Stage.WARMUP] + 4900 - i]
        took = record.done_ns - record.sent_ns
        sent = record.intended_ns + late_ns
        run.change(4900 - i, sent_ns=sent, done_ns=sent + took)
    return run


def test_a_late_generator(run: GoldenRun, tmp_path: Path) -> None:
    found = late(run, 51, 10 * MS + 1).summary(tmp_path)
    assert reasons(found.verdict) == [Reason.GENERATOR_LATE]
    assert "51 of 5000 arrivals were sent more than 10 ms" in found.verdict.reasons[0].message
    assert found.generator.lateness_ok is False


def test_one_in_a_hundred_may_be_late(run: GoldenRun, tmp_path: Path) -> None:
    assert reasons(judged(late(run, 50, 10 * MS + 1), tmp_path)) == []


def test_just_ten_milliseconds_are_not_late(run: GoldenRun, tmp_path: Path) -> None:
    assert reasons(judged(late(run, 500, 10 * MS), tmp_path)) == []


@pytest.mark.parametrize(("count", "expected"), [(2, []), (3, [Reason.GENERATOR_LATE])])
def test_two_late_arrivals_do_not_void_a_short_run(
    run: GoldenRun, tmp_path: Path, count: int, expected: list[Reason]
) -> None:
    shorten(run, 100)
    for i in range(count):
        run.change(i, sent_ns=run.records[COUNTS[Stage.WARMUP] + i].intended_ns + 10 * MS + 1)
    assert reasons(judged(run, tmp_path)) == expected


def test_a_generator_short_of_cpu(run: GoldenRun, tmp_path: Path) -> None:
    run.ends[1] = msgspec.structs.replace(run.ends[1], cpu_s=0.8501 * 5)
    found = run.summary(tmp_path)
    assert reasons(found.verdict) == [Reason.GENERATOR_CPU]
    assert found.generator.cpu_percent == pytest.approx(85.01)


def test_a_generator_just_within_its_cpu(run: GoldenRun, tmp_path: Path) -> None:
    run.ends[1] = msgspec.structs.replace(run.ends[1], cpu_s=0.85 * 5)
    assert reasons(judged(run, tmp_path)) == []


def test_a_load_worker_that_did_not_finish(run: GoldenRun, tmp_path: Path) -> None:
    run.ends[1] = msgspec.structs.replace(run.ends[1], finished=False)
    assert reasons(judged(run, tmp_path)) == [Reason.GENERATOR_DIED]


def test_a_load_worker_that_left_no_end(run: GoldenRun, tmp_path: Path) -> None:
    run.ends = [msgspec.structs.replace(run.ends[0], in_flight_area_s=None)]
    assert reasons(judged(run, tmp_path)) == [Reason.GENERATOR_DIED]


def test_no_success(run: GoldenRun, tmp_path: Path) -> None:
    for i in range(COUNTS[Stage.MEASURE]):
        run.change(i, outcome=Outcome.FAILED, status=500, reason="http_500" if i else "wrong_answer")
    found = judged(run, tmp_path)
    assert reasons(found) == [Reason.NO_SUCCESS]
    assert "Most often: http_500 (4999 times)" in found.reasons[0].message


@pytest.mark.parametrize("which", ["intended", "service"])
@pytest.mark.parametrize("name", ["p50", "p90", "p95", "p99", "p999"])
def test_percentiles_out_of_order(run: GoldenRun, tmp_path: Path, which: str, name: str) -> None:
    data = run.read(tmp_path)
    assert data.requests is not None
    true = figures.latencies(data.requests)
    raised = msgspec.structs.replace(getattr(true, which), **{name: getattr(getattr(true, which), name) + 30})
    wrong = msgspec.structs.replace(true, **{which: raised})
    found = verdict(data, figures.load(data.requests, 1000.0, data.window()), wrong, SpanLedger())
    assert reasons(found) == [Reason.PERCENTILE_ORDER]
    assert which in found.reasons[0].message


@pytest.mark.parametrize(
    ("factor", "expected"), [(0.91, []), (0.89, [Reason.LITTLES_LAW]), (1.12, [Reason.LITTLES_LAW])]
)
def test_littles_law(run: GoldenRun, tmp_path: Path, factor: float, expected: list[Reason]) -> None:
    run.ends = [msgspec.structs.replace(end, in_flight_area_s=end.in_flight_area_s * factor) for end in run.ends]
    assert reasons(judged(run, tmp_path)) == expected


@pytest.mark.parametrize(("column", "usual"), [("tool_calls", 3), ("llm_calls", 4)])
def test_an_answer_with_another_number_of_calls(run: GoldenRun, tmp_path: Path, column: str, usual: int) -> None:
    # Two answers that cancel out: neither the mean nor the backend's sum can notice.
    run.change(10, **{column: usual - 1})
    run.change(11, **{column: usual + 1})
    found = judged(run, tmp_path)
    assert reasons(found) == [Reason.WORK_DIFFERS]
    assert "2 of 5000 answers" in found.reasons[0].message


@pytest.mark.parametrize("field", ["calls", "prompt_bytes", "prompt_tokens", "completion_tokens", "connections"])
def test_the_backend_counted_other_work(run: GoldenRun, tmp_path: Path, field: str) -> None:
    stats = run.backend.stats  # type: ignore[union-attr]
    served = msgspec.structs.replace(stats.stages["m"], **{field: getattr(stats.stages["m"], field) + 1})
    stats.stages["m"] = served
    found = judged(run, tmp_path)
    assert reasons(found) == [Reason.WORK_DIFFERS]
    assert "the backend served" in found.reasons[0].message


def test_the_backend_served_none_of_it(run: GoldenRun, tmp_path: Path) -> None:
    run.backend.stats.stages["m"] = BackendStage()  # type: ignore[union-attr]
    assert set(reasons(judged(run, tmp_path))) == {Reason.WORK_DIFFERS}


@pytest.mark.parametrize(
    "change",
    [
        {"connections": None},  # the border could not see one
        {"retries": 1},  # the backend may never have seen a call on what a broken one opened
    ],
)
def test_connections_that_cannot_be_compared_are_not(
    run: GoldenRun, tmp_path: Path, change: dict[str, int | None]
) -> None:
    count_other_connections(run)
    run.change(7, **change)
    assert reasons(judged(run, tmp_path)) == []


def test_connections_are_not_compared_after_a_request_of_the_warm_up_that_broke(run: GoldenRun, tmp_path: Path) -> None:
    count_other_connections(run)
    run.records[3] = msgspec.structs.replace(run.records[3], outcome=Outcome.TIMEOUT, reason="client_timeout")
    assert reasons(judged(run, tmp_path)) == []


def test_a_mock_that_counted_no_connections_is_no_difference(run: GoldenRun, tmp_path: Path) -> None:
    count_other_connections(run, None)
    assert reasons(judged(run, tmp_path)) == []


def count_other_connections(run: GoldenRun, count: int | None = 7) -> None:
    stages = run.backend.stats.stages  # type: ignore[union-attr]
    stages["m"] = msgspec.structs.replace(stages["m"], connections=count)


def counted_by_vllm(run: GoldenRun, **changed: int) -> None:
    """Its counters over the whole load, in place of the mock's stats."""
    for record in run.records:
        assert record.outcome is Outcome.OK
    sums = {
        name: sum(getattr(record, name) or 0 for record in run.records)
        for name in ("llm_calls", "prompt_tokens", "completion_tokens")
    }
    times = dict.fromkeys(("queue_s", "prefill_s", "decode_s", "first_token_s", "end_to_end_s"), 0.0)
    counters = ServerCounters(requests=sums.pop("llm_calls"), preemptions=0, **sums, **times)
    run.backend = Backend(kind="vllm", model="m", counters=msgspec.structs.replace(counters, **changed))


def test_vllm_counted_the_same_work(run: GoldenRun, tmp_path: Path) -> None:
    counted_by_vllm(run)
    assert reasons(judged(run, tmp_path)) == []


@pytest.mark.parametrize("field", ["requests", "prompt_tokens", "completion_tokens"])
def test_vllm_counted_other_work(run: GoldenRun, tmp_path: Path, field: str) -> None:
    counted_by_vllm(run)
    counters = run.backend.counters  # type: ignore[union-attr]
    counted_by_vllm(run, **{field: getattr(counters, field) + 1})
    assert reasons(judged(run, tmp_path)) == [Reason.WORK_DIFFERS]


def test_a_run_on_vllm_without_a_gpu_is_valid_and_not_comparable(run: GoldenRun, tmp_path: Path) -> None:
    run.manifest.backend = {"kind": "vllm-cpu", "model": "m", "url": None}
    found = judged(run, tmp_path)
    assert (found.valid, found.comparable) == (True, False)
    assert [note.code for note in found.notes] == [Reason.PROTOCOL_ONLY]


def test_what_the_host_could_not_count_is_no_difference(run: GoldenRun, tmp_path: Path) -> None:
    for i in range(COUNTS[Stage.MEASURE]):
        run.change(i, prompt_tokens=None, completion_tokens=None)
    assert reasons(judged(run, tmp_path)) == []


def test_an_adapter_that_declares_no_number_of_calls(run: GoldenRun, tmp_path: Path) -> None:
    run.manifest.expected_llm_calls = None
    run.backend = None
    run.change(10, llm_calls=9)
    assert reasons(judged(run, tmp_path)) == []


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.TIMEOUT])
@pytest.mark.parametrize(("count", "expected"), [(50, []), (51, [Reason.OVERLOADED])])
def test_overload_is_a_note(
    run: GoldenRun, tmp_path: Path, outcome: Outcome, count: int, expected: list[Reason]
) -> None:
    for i in range(count):
        run.change(i, outcome=outcome, status=None, reason="why")
    found = run.summary(tmp_path)
    assert found.verdict.valid
    assert [note.code for note in found.verdict.notes] == expected
    assert found.overloaded == bool(expected)


def shorten(run: GoldenRun, arrivals: int) -> GoldenRun:
    """Keep the first measured arrivals only, in a plan that asks for no more."""
    first = COUNTS[Stage.WARMUP]
    run.records = run.records[: first + arrivals]
    run.manifest.scheduled = {**run.manifest.scheduled, Stage.MEASURE.value: arrivals}
    run.ends = [msgspec.structs.replace(end, in_flight_area_s=None) for end in run.ends]
    run.backend = None
    return run


@pytest.mark.parametrize(
    ("arrivals", "left_out"),
    [(4602, "p99.9"), (458, "p99, p99.9"), (89, "p95, p99, p99.9"), (6, "p50, p90, p95, p99, p99.9")],
)
def test_few_samples_are_a_note_and_the_percentile_is_none(
    run: GoldenRun, tmp_path: Path, arrivals: int, left_out: str
) -> None:
    found = shorten(run, arrivals).summary(tmp_path)
    assert found.verdict.valid
    assert [note.code for note in found.verdict.notes] == [Reason.FEW_SAMPLES]
    assert f"{arrivals} samples are too few for {left_out}, left out" in found.verdict.notes[0].message
    assert found.latency_ms is not None
    for name in left_out.replace(".", "").split(", "):
        assert getattr(found.latency_ms.intended, name) is None
        assert getattr(found.latency_ms.service, name) is None


def test_a_host_without_a_core_of_its_own_is_a_note(run: GoldenRun, tmp_path: Path) -> None:
    run.manifest.cores = {"host": None, "rest": None}
    found = judged(run, tmp_path)
    assert found.valid
    assert [note.code for note in found.notes] == [Reason.NOT_PINNED]


def test_what_the_rig_has_noted_stands(run: GoldenRun, tmp_path: Path) -> None:
    run.manifest.findings = [Finding(Reason.HOST_FAILED, "The host was killed by SIGKILL.")]
    run.manifest.status = Status.FAILED
    found = judged(run, tmp_path)
    assert found.reasons == (Finding(Reason.HOST_FAILED, "The host was killed by SIGKILL."),)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.RUNNING, Reason.INTERRUPTED),
        (Status.INTERRUPTED, Reason.INTERRUPTED),
        (Status.FAILED, Reason.RIG_FAILED),
    ],
)
def test_a_run_that_did_not_end(run: GoldenRun, tmp_path: Path, status: Status, code: Reason) -> None:
    run.manifest.status = status
    assert reasons(judged(run, tmp_path)) == [code]


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_without_an_arrival_on_record(run: GoldenRun, tmp_path: Path, kept: bool) -> None:
    run.records = []
    data: RunData = run.read(tmp_path)
    found = summarise(data if kept else replace(data, requests=None))
    assert reasons(found.verdict) == [Reason.NO_SUCCESS]


def waiting(run: GoldenRun, share: float) -> GoldenRun:
    """The host's own process waits for its core that share of the time."""
    assert run.samples is not None
    first_ns = run.samples[0].monotonic_ns
    run.samples = [
        msgspec.structs.replace(
            sample,
            reading=msgspec.structs.replace(
                sample.reading, run_queue_wait_s=share * (sample.monotonic_ns - first_ns) / 1e9
            ),
        )
        for sample in run.samples
        if sample.role != "host" or sample.pid == HOST
    ]
    return run


@pytest.mark.parametrize(("share", "noted"), [(0.04, False), (0.06, True)])
def test_a_host_that_waits_for_its_own_core(run: GoldenRun, tmp_path: Path, share: float, noted: bool) -> None:
    found = judged(waiting(run, share), tmp_path)
    assert found.valid
    assert [note.code for note in found.notes] == [Reason.NOISY] * noted


@pytest.mark.parametrize(("after_ms", "noted"), [(1.24, False), (1.26, True), (0.81, False), (0.79, True)])
def test_a_core_whose_speed_changed(run: GoldenRun, tmp_path: Path, after_ms: float, noted: bool) -> None:
    run.manifest.calibration = {
        "before": Calibration(1.0, 1.0, 1.0, 0.0),
        "after": Calibration(after_ms, after_ms, after_ms, 0.0),
    }
    found = judged(run, tmp_path)
    assert found.valid
    assert [note.code for note in found.notes] == [Reason.NOISY] * noted


def test_prompt_bytes_of_failed_calls_are_not_the_backends(run: GoldenRun, tmp_path: Path) -> None:
    run.change(7, retries=1, prompt_bytes=12_000)
    assert judged(run, tmp_path) == Verdict(True)


def test_what_could_not_be_read_is_a_note_that_says_why(run: GoldenRun, tmp_path: Path) -> None:
    gap = "PSS, USS and private dirty of process 7 cannot be read: /proc/7/smaps_rollup: Permission denied."
    run.manifest.findings.append(Finding(Reason.NOT_READABLE, gap))
    found = judged(run, tmp_path)
    assert (found.valid, found.notes) == (True, (Finding(Reason.NOT_READABLE, gap),))
