"""Traces of real runs: complete, exported, and a recorder that dies or stalls costs spans and never requests."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agentdyno.record.otlp import native_spans
from agentdyno.record.spans import OTLP_FILE, frames
from tests.e2e.benches import SHORT, Benches, Ended

pytestmark = pytest.mark.e2e
# Long enough for something to happen within the measured stage.
MIDDLE = ("--rate", "20", "--warmup", "500ms", "--duration", "5s", "--cooldown", "0s")
Runs = dict[str, Future[Ended]]


def check_all_answered(ended: Ended, arrivals: int) -> None:
    load = ended.summary["load"]
    assert (load["arrivals"], load["ok"]) == (arrivals, arrivals)
    ended.check_conserved()
    ended.check_clean()


@dataclass
class Receiver:
    """A second recorder, in the part of the user's collector."""

    folder: Path
    url: str


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    folder = tmp_path_factory.mktemp("collector")
    with socket.create_server(("127.0.0.1", 0)) as raw, socket.create_server(("127.0.0.1", 0)) as otlp:
        command = [sys.executable, "-m", "agentdyno.record.recorder", "--folder", str(folder)]
        command += ["--raw-fd", str(raw.fileno()), "--otlp-fd", str(otlp.fileno())]
        process = subprocess.Popen(command, pass_fds=(raw.fileno(), otlp.fileno()))
        try:
            yield Receiver(folder, f"http://127.0.0.1:{otlp.getsockname()[1]}")
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture(scope="module")
def undisturbed(module_benches: Benches, receiver: Receiver) -> Iterator[Runs]:
    """Runs that are left alone, and wait most of their time, so that two can run at a time; the longest first."""
    to_it = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
    asked: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
        "exported to nobody": ((), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}),
        "all": ((), {}),
        "sample": (("--traces", "5/s"), {}),
        "off": (("--traces", "off"), {}),
        "exported": ((), {**to_it, "HTTP_PROXY": "http://127.0.0.1:9"}),
    }
    with ThreadPoolExecutor(2) as pool:
        yield {
            name: pool.submit(module_benches.run, "bare", *SHORT, *options, **variables)
            for name, (options, variables) in asked.items()
        }


def test_a_run_has_all_its_spans(undisturbed: Runs) -> None:
    ended = undisturbed["all"].result()
    ended.check_valid()
    spans = ended.summary["spans"]
    assert spans == {"expected": 40 * 12, "received": 40 * 12, "orphaned": 0, "dropped": 0}
    phases = ended.summary["phases_ms"]
    assert sum(phase["share"] for phase in phases.values()) == pytest.approx(1.0)
    recorder = ended.manifest["recorder"]
    assert (recorder["broken_connections"], recorder["unwritten"], recorder["exported"]) == (0, 0, None)
    # The first answer and the warm-up are on record too.
    kinds = pq.read_table(ended.folder / "spans.parquet")["kind"].to_pylist()
    assert kinds.count("request") == 40 + 10 + 1


def test_a_sample_of_the_arrivals(undisturbed: Runs) -> None:
    ended = undisturbed["sample"].result()
    ended.check_valid()
    assert ended.summary["spans"]["expected"] == ended.summary["spans"]["received"] == 10 * 12


def test_without_traces_there_is_no_recorder(undisturbed: Runs) -> None:
    ended = undisturbed["off"].result()
    ended.check_valid()
    assert set(ended.summary["phases_ms"].values()) == {None}
    assert set(ended.summary["spans"].values()) == {None}
    assert not (ended.folder / "logs" / "recorder.log").exists()


def test_all_spans_reach_the_endpoint_of_the_environment(undisturbed: Runs, receiver: Receiver) -> None:
    ended = undisturbed["exported"].result()
    ended.check_valid()
    offset_ns = ended.manifest["unix_offset_ns"]
    bodies = frames((receiver.folder / OTLP_FILE).read_bytes())
    arrived = {span.span_id: span for body in bodies for span in native_spans(body, offset_ns)}
    kept = pq.read_table(ended.folder / "spans.parquet").to_pylist()
    assert arrived.keys() == {row["span_id"] for row in kept}
    assert ended.manifest["recorder"]["exported"] == len(kept)
    assert ended.manifest["recorder"]["export_dropped"] == 0
    for row in kept:
        span = arrived[row["span_id"]]
        assert (span.trace_id, span.parent_span_id, span.name) == (row["trace_id"], row["parent_span_id"], row["name"])
        assert (span.start_ns, span.end_ns) == (row["start_monotonic_ns"], row["end_monotonic_ns"])


def test_an_endpoint_that_is_not_there_costs_exported_spans_alone(undisturbed: Runs) -> None:
    ended = undisturbed["exported to nobody"].result()
    check_all_answered(ended, 40)
    ended.check_valid()
    recorder = ended.manifest["recorder"]
    assert recorder["exported"] == 0
    assert recorder["export_dropped"] == pq.read_table(ended.folder / "spans.parquet").num_rows


def test_a_recorder_that_dies_in_the_run_costs_spans_and_no_request(benches: Benches) -> None:
    bench = benches.start("bare", *MIDDLE)
    bench.stage("measure")
    os.kill(bench.child("recorder"), signal.SIGKILL)
    ended = bench.end()
    check_all_answered(ended, 100)
    assert ended.code == 3
    assert ended.reasons["spans_missing"].startswith("The recorder died in the run.")
    assert ended.reasons.keys() <= {"spans_missing", "generator_late"}
    assert ended.manifest["recorder"] is None
    assert 0 < ended.summary["spans"]["received"] < ended.summary["spans"]["expected"]


def test_a_recorder_that_dies_before_anything_is_measured_leaves_no_phases_to_claim(benches: Benches) -> None:
    bench = benches.start("bare", *SHORT)
    bench.child("host")  # which is not started before the recorder listens
    os.kill(bench.child("recorder"), signal.SIGKILL)
    ended = bench.end()
    check_all_answered(ended, 40)
    ended.check_valid()
    assert "spans_missing" in ended.notes
    assert set(ended.summary["phases_ms"].values()) == {None}


def test_a_recorder_that_stalls_costs_no_request(benches: Benches) -> None:
    bench = benches.start("bare", *MIDDLE)
    bench.stage("measure")
    os.kill(bench.child("recorder"), signal.SIGSTOP)
    ended = bench.end()
    check_all_answered(ended, 100)
    # What stood in the sockets is read when it is asked to end. What did not fit there is said to be missing.
    spans = ended.summary["spans"]
    assert ("spans_missing" in ended.reasons) == (spans["received"] < spans["expected"])


def test_a_recorder_that_stalls_for_a_while_loses_nothing(benches: Benches) -> None:
    bench = benches.start("bare", *MIDDLE)
    bench.stage("measure")
    recorder = bench.child("recorder")
    os.kill(recorder, signal.SIGSTOP)
    recorded = bench._recorded("measure")
    while bench._recorded("measure") < recorded + 30:
        pass
    os.kill(recorder, signal.SIGCONT)
    ended = bench.end()
    check_all_answered(ended, 100)
    ended.check_valid()
    assert ended.summary["spans"] == {"expected": 1200, "received": 1200, "orphaned": 0, "dropped": 0}
