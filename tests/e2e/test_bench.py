"""Short real runs through the command line: what they count, what they keep, how they end."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agentdyno.contract.run import RequestRecord
from tests.e2e.benches import ADAPTERS, SHORT, Benches, Ended

pytestmark = pytest.mark.e2e
DEAD_PROXY = dict.fromkeys(
    ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:9"
)
FAULTS = {"AGENTDYNO_ADAPTERS": str(ADAPTERS)}
FILES = {
    "SHA256SUMS",
    "manifest.json",
    "summary.json",
    "backend.json",
    "requests.parquet",
    "resources.parquet",
    "gc.parquet",
    "loop.parquet",
    "spans.parquet",
    "logs",
}


@pytest.fixture(scope="module")
def plain(module_benches: Benches) -> Ended:
    return module_benches.run("bare", *SHORT)


@pytest.fixture(scope="module")
def slow_parallel(module_benches: Benches) -> Ended:
    """Two LLM calls of 60 ms and three tools at once of 30 ms, from two workers."""
    timing = ("--ttft", "60", "--tool-latency", "30")
    return module_benches.run("bare", *SHORT, *timing, "--scenario", "parallel", "--workers", "2", "--seed", "7")


@pytest.fixture(scope="module")
def state_machine(module_benches: Benches) -> Ended:
    """One LLM call of 60 ms, three tools one after the other, 10, 20 and 30 ms."""
    timing = ("--ttft", "const:60", "--tool-latency", "order_status=10,refund_policy=20,resolution=30")
    return module_benches.run("lightagent", *SHORT, *timing)


@pytest.fixture(scope="module")
def overloaded(module_benches: Benches) -> Ended:
    load = ("--rate", "60", "--warmup", "500ms", "--duration", "2s", "--cooldown", "500ms", "--admission", "4")
    return module_benches.run("heavy", *load, **FAULTS)


@pytest.fixture(scope="module")
def collapsed(module_benches: Benches) -> Ended:
    load = ("--rate", "40", "--warmup", "0s", "--duration", "2s", "--cooldown", "0s", "--timeout", "20s")
    return module_benches.run("heavy", *load, "--admission", "off", **FAULTS)


@pytest.fixture(scope="module")
def capped(module_benches: Benches) -> Ended:
    return module_benches.run("bare", *SHORT, "--ttft", "100", "--max-in-flight", "2")


@pytest.fixture(scope="module")
def program(module_benches: Benches) -> Ended:
    return module_benches.run("program", *SHORT, **FAULTS)


@pytest.fixture(scope="module")
def two_at_once(module_benches: Benches) -> Iterator[tuple[Ended, Ended]]:
    """One of them behind a proxy that is dead, and with its folder on another file system, where there is one."""
    with ExitStack() as stack:
        memory = Path("/dev/shm")
        elsewhere = Path(stack.enter_context(TemporaryDirectory(dir=memory if memory.is_dir() else None)))
        first = module_benches.start("bare", *SHORT)
        second = module_benches.start("lightagent", *SHORT, out=elsewhere / "deep" / "er", **DEAD_PROXY)
        yield first.end(), second.end()


ALL = ["plain", "slow_parallel", "state_machine", "overloaded", "collapsed", "capped", "program"]


@pytest.mark.parametrize("name", ALL)
def test_every_run_is_valid_conserved_and_clean(name: str, request: pytest.FixtureRequest) -> None:
    ended: Ended = request.getfixturevalue(name)
    ended.check_valid()
    ended.check_conserved()
    ended.check_clean()
    assert ended.manifest["status"] == "finished"
    assert "Verdict:" in ended.out


def test_the_folder_holds_all_that_is_shown_and_no_more(plain: Ended) -> None:
    assert {file.name for file in plain.folder.iterdir()} == FILES
    logs = {file.name for file in (plain.folder / "logs").iterdir()}
    assert logs == {"host.log", "backend.log", "generator.log", "recorder.log", "host-metrics.txt"}
    assert (plain.folder / "logs" / "host.log").read_text(encoding="utf-8") == ""
    assert "verified" in plain.err


def test_every_arrival_is_counted_once(plain: Ended) -> None:
    load = plain.summary["load"]
    assert (load["arrivals"], load["sent"], load["ok"]) == (40, 40, 40)
    assert load["excluded"]["warmup"]["ok"] == 10
    assert load["excluded"]["cooldown"]["arrivals"] == 0
    assert load["failure_reasons"] == {}
    rows = plain.requests()
    assert [row["index"] for row in rows] == list(range(50))
    assert set(rows[0]) == set(RequestRecord.__struct_fields__)
    assert {row["outcome"] for row in rows} == {"ok"}
    assert [row["intended_ns"] for row in rows] == [index * 50_000_000 for index in range(50)]
    assert plain.manifest["scheduled"] == {"warmup": 10, "measure": 40, "cooldown": 0}


def test_host_and_backend_counted_the_same_work(plain: Ended) -> None:
    served = plain.backend["stats"]["stages"]
    rows = plain.requests()
    # The first answer, which the rig asks for before the load, is an order of the warm-up.
    for stage, letter, more in (("warmup", "w", 1), ("measure", "m", 0)):
        mine = [row for row in rows if row["stage"] == stage]
        assert served[letter]["calls"] == 4 * (len(mine) + more)
        assert served[letter]["errors"] == 0
    mine = [row for row in rows if row["stage"] == "measure"]
    for column, count in (
        ("llm_calls", "calls"),
        ("prompt_bytes", "prompt_bytes"),
        ("prompt_tokens", "prompt_tokens"),
        ("completion_tokens", "completion_tokens"),
    ):
        assert sum(row[column] for row in mine) == served["m"][count] > 0
    ledger = plain.summary["ledger"]
    assert (ledger["llm_calls"], ledger["tool_calls"], ledger["retries"]) == (4, 3, 0)


def test_figures_are_there_and_in_range(plain: Ended) -> None:
    summary = plain.summary
    assert summary["schema_version"] == 1
    assert summary["run_id"] == plain.folder.name
    assert summary["framework"] == {"name": "bare", "version": None, "approach": "default", "plans_with": "llm"}
    assert summary["goodput_rps"] == 20
    assert 0 < summary["cpu_ms_per_request"] < 50
    assert summary["cold_start_ms"] > 50
    assert 10 < summary["memory_mb"]["rss_idle"] <= summary["memory_mb"]["rss_peak"] < 500
    assert summary["loop_lag_ms"]["max"] is not None
    assert summary["gc"]["collections"] is not None
    latency = summary["latency_ms"]
    assert latency["intended"]["n"] == latency["service"]["n"] == 40
    assert 0 < latency["service"]["p50"] <= latency["intended"]["p50"] <= latency["intended"]["max"]
    assert latency["intended"]["p99"] is None  # of 40 samples nobody knows it
    assert "few_samples" in plain.notes
    spans = summary["spans"]
    assert spans["expected"] == spans["received"] >= 40 * (1 + 4 + 3)
    assert (spans["orphaned"], spans["dropped"]) == (0, 0)
    assert summary["generator"]["cpu_percent"] > 0
    assert summary["overloaded"] is False


def test_the_manifest_says_how_to_run_it_again(plain: Ended) -> None:
    manifest = plain.manifest
    assert manifest["command"][:4] == ["bench", "bare", "--rate", "20"]
    assert manifest["environment"]["distributions"]["aiohttp"]
    assert len(manifest["workload_hash"]) == 16
    assert manifest["calibration"].keys() == {"before", "after"}
    assert set(manifest["stage_seconds"]) == {"start", "load", "end"}
    assert len(bytes.fromhex(manifest["proof_key"])) == 16


def test_latency_of_llm_and_tools_shows(slow_parallel: Ended, state_machine: Ended) -> None:
    latency = slow_parallel.summary["latency_ms"]
    assert latency["service"]["p50"] >= 60 * 2 + 30
    assert latency["service"]["p50"] < 60 * 4 + 30  # not what the chain would take
    assert slow_parallel.summary["ledger"]["llm_calls"] == 2
    assert slow_parallel.summary["ledger"]["tool_calls"] == 3
    assert state_machine.summary["latency_ms"]["service"]["p50"] >= 60 + 10 + 20 + 30
    assert state_machine.summary["ledger"]["llm_calls"] == 1
    assert state_machine.summary["framework"]["plans_with"] == "state-machine"


def test_two_workers_share_one_schedule(slow_parallel: Ended) -> None:
    rows = slow_parallel.requests()
    assert [row["index"] for row in rows] == list(range(50))
    assert {(row["index"] % 2, row["worker"]) for row in rows} == {(0, 0), (1, 1)}
    assert len(slow_parallel.manifest["workers"]) == 2
    assert slow_parallel.summary["generator"]["workers"] == 2


def test_another_workload_has_another_hash(plain: Ended, slow_parallel: Ended, state_machine: Ended) -> None:
    hashes = {ended.summary["workload_hash"] for ended in (plain, slow_parallel, state_machine)}
    assert len(hashes) == 3


def test_an_overloaded_framework_shows_what_it_can_do(overloaded: Ended) -> None:
    summary = overloaded.summary
    load = summary["load"]
    assert summary["overloaded"] is True
    assert "overloaded" in overloaded.notes
    assert load["arrivals"] == 120
    assert load["rejected"] > 30
    assert load["ok"] >= 10
    assert summary["goodput_rps"] == load["ok"] / 2 > 0
    rejected = [row for row in overloaded.requests() if row["outcome"] == "rejected"]
    assert {(row["status"], row["reason"]) for row in rejected} == {(429, "http_429")}
    assert load["excluded"]["cooldown"]["arrivals"] == 30


def test_without_admission_it_collapses_and_that_shows(collapsed: Ended) -> None:
    load = collapsed.summary["load"]
    assert load["arrivals"] == 80
    assert load["rejected"] == 0
    assert load["in_flight_max"] > 20
    assert collapsed.summary["latency_ms"]["intended"]["max"] > 1000
    assert collapsed.manifest["admission"] is None


def test_arrivals_beyond_the_cap_are_dropped_and_counted(capped: Ended) -> None:
    load = capped.summary["load"]
    assert load["dropped"] > 10
    assert load["sent"] == load["arrivals"] - load["dropped"]
    assert load["in_flight_max"] <= 2
    dropped = [row for row in capped.requests() if row["outcome"] == "dropped"]
    assert {(row["sent_ns"], row["reason"]) for row in dropped} == {(None, "in_flight_cap")}


def test_a_program_of_its_own_is_measured_like_the_others(program: Ended) -> None:
    summary = program.summary
    assert summary["load"]["ok"] == 40
    assert summary["ledger"]["llm_calls"] == 4
    assert summary["cpu_ms_per_request"] > 0
    # What it does not offer was not measured, and is not zero.
    assert summary["gc"] == dict.fromkeys(("pause_total_ms", "pause_max_ms", "collections"))
    assert summary["loop_lag_ms"] == dict.fromkeys(("p50", "p99", "max"))
    assert not (program.folder / "gc.parquet").exists()


def test_two_at_once_a_dead_proxy_and_another_file_system(two_at_once: tuple[Ended, Ended]) -> None:
    first, second = two_at_once
    assert first.folder != second.folder
    for ended in two_at_once:
        ended.check_clean()
        ended.check_valid()
        assert ended.summary["load"]["ok"] == 40
