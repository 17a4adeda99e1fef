"""End to end: plain `locust -f locustfiles/constant.py` against small targets of the contract."""

import json
import os
import signal
import socket
import subprocess
from collections import Counter

import pytest

from agentdyno.contract.proof import Stage
from agentdyno.load.generator import trace_ids
from agentdyno.load.records import DISK_FULL_EXIT
from agentdyno.load.service_histogram import pooled
from tests.load.locust_processes import ROOT, wait_for

pytestmark = pytest.mark.e2e
SHORT = ("--rate", "50", "--warmup", "1s", "--duration", "2s", "--cooldown", "500ms")


def test_a_run_ends_by_itself_with_every_arrival_verified(processes):
    ended = processes.run(processes.target(), *SHORT, "--seed", "9")
    assert ended.code == 0, ended.output
    assert "Traceback" not in ended.output
    records = ended.requests()
    assert ended.outcomes() == {("ok", None): 175}
    assert sorted(record["index"] for record in records) == list(range(175))
    assert Counter(record["stage"] for record in records) == {"warmup": 50, "measure": 100, "cooldown": 25}
    for record in records:
        assert record["intended_ns"] == record["index"] * 20_000_000
        assert record["intended_ns"] <= record["sent_ns"] < record["done_ns"]
        assert record["trace_id"] == trace_ids(9, Stage(record["stage"]), record["stage_index"])[0]
        assert (record["status"], record["llm_calls"], record["tool_calls"], record["retries"]) == (200, 4, 3, 0)
    end = ended.end()
    assert end["finished"]
    assert (end["measure_start_ns"], end["measure_end_ns"]) == (10**9, 3 * 10**9)
    assert end["cpu_s"] > 0
    last = ended.seconds()[-1]
    assert (last["arrivals"], last["ok"], last["in_flight"]) == (175, 175, 0)
    # Little's law, by two ways of counting that share nothing but the clock.
    service_s = sum(r["done_ns"] - r["sent_ns"] for r in records if r["stage"] == "measure") / 1e9
    assert end["in_flight_area_s"] >= service_s * 0.9


def test_a_stall_is_seen_by_every_arrival_that_it_delays(processes):
    told = processes.folder / "stall"
    host = processes.target("--stall-file", str(told), "--log", str(processes.folder / "seen"))
    running = processes.locust(host, "--rate", "100", "--warmup", "1s", "--duration", "4s", "--cooldown", "1s")
    wait_for(lambda: (processes.records / "seconds-0.jsonl").exists(), "the start")
    wait_for(lambda: (processes.records / "seconds-0.jsonl").stat().st_size > 0, "the first second")
    told.touch()
    ended = processes.wait(running)
    assert ended.code == 0, ended.output
    assert ended.outcomes() == {("ok", None): 600}
    processes.end_target()
    seen = json.loads((processes.folder / "seen").read_text(encoding="utf-8"))
    t0_ns = ended.end()["t0_monotonic_ns"]
    stall_ns, over_ns = (moment - t0_ns for moment in seen["stall_ns"])
    assert over_ns - stall_ns >= 1_400_000_000
    delayed = [r for r in ended.requests() if stall_ns < r["intended_ns"] < over_ns]
    assert len(delayed) >= 139
    for record in delayed:
        assert record["done_ns"] - record["intended_ns"] >= over_ns - record["intended_ns"]
    # They were sent during the stall and not after it: nothing waited for an earlier answer.
    assert sum(record["sent_ns"] < over_ns for record in delayed) >= len(delayed) / 2


def test_the_stock_closed_loop_hides_the_same_stall(processes):
    told = processes.folder / "stall"
    host = processes.target("--stall-file", str(told), "--log", str(processes.folder / "seen"))
    plan = ("--rate", "100", "--warmup", "0s", "--duration", "6s", "--cooldown", "0s")
    running = processes.locust(host, *plan, file="stock_constant_throughput.py")
    wait_for(lambda: (processes.records / "requests-0.jsonl").exists(), "the start")
    told.touch()
    ended = processes.wait(running)
    assert ended.code == 0, ended.output
    records = ended.requests()
    assert {record["outcome"] for record in records} == {"ok"}
    slow = [record for record in records if record["done_ns"] - record["intended_ns"] > 700_000_000]
    assert 1 <= len(slow) <= 10  # one for each of its ten users, where 140 should have been sent meanwhile
    assert len(records) < 500


def test_a_target_that_never_answers(processes):
    ended = processes.run(processes.target("--mode", "never"), *SHORT, "--request-timeout", "700ms")
    assert ended.code == 0, ended.output
    assert ended.outcomes() == {("timeout", "client_timeout"): 175}
    assert all(record["done_ns"] - record["sent_ns"] >= 700_000_000 for record in ended.requests())
    assert ended.end()["finished"]


def test_arrivals_beyond_the_cap_are_counted_as_dropped(processes):
    host = processes.target("--mode", "never")
    ended = processes.run(host, *SHORT, "--max-in-flight", "10", "--request-timeout", "5s")
    assert ended.outcomes() == {("timeout", "client_timeout"): 10, ("dropped", "in_flight_cap"): 165}
    for record in ended.requests():
        if record["outcome"] == "dropped":
            assert (record["sent_ns"], record["done_ns"], record["status"]) == (None, None, None)


FAILURES = {
    "ok": ("ok", None),
    "garbage": ("failed", "not_contract"),
    "500": ("failed", "http_500"),
    "429": ("rejected", "http_429"),
    "504": ("timeout", "http_504"),
    "302": ("failed", "http_302"),
    "close": ("failed", "closed"),
    "reset": ("failed", "reset"),
    "cut": ("failed", "closed"),
    "noise": ("failed", "malformed"),
    "endless": ("failed", "too_long"),
}


def test_failures_are_data(processes):
    modes = list(FAILURES)
    plan = ("--rate", "50", "--warmup", "0s", "--duration", "2200ms", "--cooldown", "0s")
    ended = processes.run(processes.target("--mode", ",".join(modes)), *plan)
    assert ended.code == 0, ended.output
    got: dict[str, set] = {mode: set() for mode in modes}
    for record in ended.requests():
        got[modes[record["stage_index"] % len(modes)]].add((record["outcome"], record["reason"]))
    assert got == {mode: {outcome} for mode, outcome in FAILURES.items()}
    assert len(ended.requests()) == 110
    assert ended.end()["finished"]


def test_a_target_that_refuses_connections(processes):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        ended = processes.run(f"http://127.0.0.1:{taken.getsockname()[1]}", *SHORT)
    assert ended.code == 0, ended.output
    assert ended.outcomes() == {("failed", "refused"): 175}


def test_two_workers_share_without_overlap_or_gap(processes):
    ended = processes.run(processes.target(), *SHORT, "--processes", "2")
    assert ended.code == 0, ended.output
    assert ended.workers() == [0, 1]
    assert ended.outcomes() == {("ok", None): 175}
    assert sorted(record["index"] for record in ended.requests()) == list(range(175))
    assert {record["index"] % 2 == record["worker"] for record in ended.requests()} == {True}
    assert ended.end(0)["finished"]
    assert ended.end(1)["finished"]
    # Each kept a histogram of its measured share; merged they are of all.
    merged = pooled(ended.end(worker)["service_hdr"] for worker in (0, 1))
    measured = sorted(
        (record["done_ns"] - record["sent_ns"]) / 1e6 for record in ended.requests() if record["stage"] == "measure"
    )
    assert merged.n == len(measured)
    assert merged.percentile_ms(100) == pytest.approx(measured[-1], rel=1e-3, abs=1e-3)


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


def test_a_lost_worker_ends_the_run_and_nobody_takes_its_share_over(processes):
    running = processes.locust(processes.target(), "--rate", "50", "--duration", "60s", "--processes", "2")
    files = [processes.records / f"seconds-{worker}.jsonl" for worker in (0, 1)]
    wait_for(lambda: all(file.exists() and file.stat().st_size for file in files), "both workers")
    os.kill(children_of(running.pid)[0], signal.SIGKILL)
    ended = processes.wait(running)
    assert ended.code == 3
    assert "died" in ended.output
    records = ended.requests()
    assert {record["index"] % 2 == record["worker"] for record in records} == {True}
    assert len({record["index"] for record in records}) == len(records)
    left = [worker for worker in (0, 1) if (processes.records / f"end-{worker}.json").exists()]
    assert len(left) == 1
    assert not ended.end(left[0])["finished"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_has(processes, number):
    running = processes.locust(processes.target("--mode", "never"), *SHORT[:-2], "--request-timeout", "30s")
    seconds = processes.records / "seconds-0.jsonl"
    wait_for(lambda: seconds.exists() and seconds.stat().st_size, "the first second")
    running.send_signal(number)
    ended = processes.wait(running)
    assert ended.code == 130
    assert "Traceback" not in ended.output
    records = ended.requests()
    assert set(ended.outcomes()) == {("failed", "interrupted")}
    assert sorted(record["index"] for record in records) == list(range(len(records)))
    assert ended.seconds()[-1]["arrivals"] == len(records) > 0
    assert not ended.end()["finished"]


def test_an_interrupted_run_of_two_workers_keeps_what_it_has(processes):
    running = processes.locust(processes.target(), "--rate", "50", "--duration", "60s", "--processes", "2")
    files = [processes.records / f"seconds-{worker}.jsonl" for worker in (0, 1)]
    wait_for(lambda: all(file.exists() and file.stat().st_size for file in files), "both workers")
    running.send_signal(signal.SIGINT)
    ended = processes.wait(running)
    assert ended.code == 130
    assert [ended.end(worker)["finished"] for worker in (0, 1)] == [False, False]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--rate", "fast"), "'fast' is not a rate"),
        (("--rate", "0.1", "--duration", "1s"), "too short for a single arrival"),
        (("--host", "http://no-such-name.invalid"), "cannot be resolved"),
        (("--plan-workers", "2"), "needs 2 load workers and 1 are connected"),
    ],
)
def test_bad_options_are_a_sentence(processes, options, sentence):
    ended = processes.run("http://127.0.0.1:1", *options)
    assert ended.code == 2
    assert sentence in ended.output
    assert "Traceback" not in ended.output


def test_the_folder_of_another_run_is_not_touched(processes):
    processes.records.mkdir()
    (processes.records / "requests-0.jsonl").write_text("kept\n", encoding="utf-8")
    ended = processes.run("http://127.0.0.1:1", *SHORT)
    assert ended.code == 2
    assert "holds the records of another run" in ended.output
    assert (processes.records / "requests-0.jsonl").read_text(encoding="utf-8") == "kept\n"


FULL_DISK = """
import os
from constant import *
from agentdyno.load import records

opened = records._Lines.__init__

def open_on_a_full_disk(self, path):
    opened(self, path)
    os.dup2(os.open("/dev/full", os.O_WRONLY), self._descriptor)

records._Lines.__init__ = open_on_a_full_disk
"""


@pytest.mark.parametrize("workers", [(), ("--processes", "2")], ids=["local", "two workers"])
def test_a_full_disk_is_a_sentence_and_its_own_exit_code(processes, workers):
    (processes.folder / "constant.py").write_bytes((ROOT / "locustfiles" / "constant.py").read_bytes())
    file = processes.folder / "full.py"
    file.write_text(FULL_DISK, encoding="utf-8")
    ended = processes.run(processes.target(), "--rate", "50", "--duration", "60s", *workers, file=str(file))
    assert ended.code == DISK_FULL_EXIT
    assert "The disk is full" in ended.output
    assert "Traceback" not in ended.output
