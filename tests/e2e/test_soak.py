"""Short real soaks: of an adapter that leaks, of one that fills a cache, and of hosts that die in the middle."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentdyno.record.live import running
from agentdyno.rig.processes import fetch
from tests.e2e.benches import ADAPTERS, PROGRAM, Bench, Benches, Ended, processes_of, strict_json, wait_for

pytestmark = pytest.mark.e2e
SOAK = (str(PROGRAM), "soak")
VARIABLES = {"AGENTDYNO_ADAPTERS": str(ADAPTERS)}
# Four in flight at most, and the rest dropped: where the machine stands still for a second, a hundred would wait at
# once, and what the host needs for them (2 MB, as much as all that leaks here) stays its own.
LOAD = ("--rate", "100", "--duration", "36s", "--warmup", "4s", "--timeout", "5s", "--max-in-flight", "4")
SLOW = ("--rate", "20", "--duration", "24s", "--warmup", "1s", "--timeout", "3s")


def found_by(ended: Ended) -> dict[str, Any]:
    found = strict_json((ended.folder / "soak.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def soaked(benches: Benches, name: str) -> Ended:
    """A soak in which most arrivals were answered, or else the last of three: fewer leak too little to be told."""
    for _ in range(3):
        ended = benches.start(name, *LOAD, program=SOAK, **VARIABLES).end(280)
        segments = found_by(ended)["segments"]
        if sum(segment["ok"] for segment in segments) > 0.8 * sum(segment["arrivals"] for segment in segments):
            break
    return ended


@pytest.fixture(scope="module")
def soaks(module_benches: Benches) -> Iterator[dict[str, Future[Ended]]]:
    """Both at a time: what a host holds does not depend on how fast it answers."""
    with ThreadPoolExecutor() as pool:
        yield {name: pool.submit(soaked, module_benches, name) for name in ("leaks", "caches")}


@pytest.mark.timeout(900)
def test_a_leak_of_one_kibibyte_a_request_is_caught(soaks: dict[str, Future[Ended]]) -> None:
    ended = soaks["leaks"].result()
    ended.check_clean()
    found = found_by(ended)
    growth = found["growth"]
    assert (ended.code, growth["verdict"], found["failure"]) == (1, "grows", None), growth["sentence"]
    # 1024 bytes in two blocks, and 112 of a list of three, of each request. Of most stretches: the first with four in
    # flight gets room for them too.
    each = [(now["uss_bytes"] - then["uss_bytes"]) / now["ok"] for then, now in pairwise(found["segments"])]
    assert median(each) == pytest.approx(1136, rel=0.1)
    assert growth["low_mb"] <= growth["slope_mb"] <= growth["high_mb"]
    assert growth["r2"] > 0.9
    assert growth["sentence"] in ended.out
    assert len(found["segments"]) == 13
    assert found["segments"][-1]["uss_bytes"] <= found["segments"][-1]["rss_bytes"]


@pytest.mark.timeout(900)
def test_a_cache_that_fills_is_not_called_a_leak(soaks: dict[str, Future[Ended]]) -> None:
    ended = soaks["caches"].result()
    ended.check_clean()
    found = found_by(ended)
    first, last = (found["segments"][at]["rss_bytes"] for at in (0, -1))
    assert last - first > 2_000_000  # it has filled under our eyes
    assert (found["growth"]["verdict"], found["failure"]) != ("grows", None), found["growth"]["sentence"]
    assert ended.code in (0, 3)


def stretch(bench: Bench) -> None:
    """Wait until the stretch after the warm-up is under way."""
    wait_for(
        lambda: sum(file.read_bytes().count(b"\n") for file in bench.out.glob("*/raw/0001/requests-*.jsonl")) >= 5,
        "the first stretch",
    )


def within(bench: Bench) -> None:
    stretch(bench)


def between(bench: Bench) -> None:
    """All is answered, and what the host holds is not read yet."""
    stretch(bench)
    wait_for(lambda: "generator" not in processes_of(bench.out).values(), "the end of the first stretch")


@pytest.mark.parametrize("child", ["host", "backend"])
@pytest.mark.parametrize("moment", [within, between])
def test_a_server_that_is_killed(benches: Benches, moment: Callable[[Bench], None], child: str) -> None:
    bench = benches.start("bare", *SLOW, program=SOAK)
    pid = bench.child(child)
    moment(bench)
    os.kill(pid, signal.SIGKILL)
    ended = bench.end()
    ended.check_clean()
    found = found_by(ended)
    assert ended.code == 3
    said = f"The {child} was killed by SIGKILL in the middle of the run."
    assert said in found["failure"]
    assert said in ended.out
    # What was read until then is kept, and judged to be too little.
    assert [segment["ok"] for segment in found["segments"]] == [20]
    assert found["segments"][0]["rss_bytes"] > 0
    assert found["growth"]["verdict"] == "not measured long enough"
    assert ended.manifest["status"] == "failed"


def test_one_that_is_interrupted_keeps_what_it_has(benches: Benches) -> None:
    bench = benches.start("bare", *SLOW, program=SOAK)
    stretch(bench)
    bench.interrupt(signal.SIGINT)
    ended = bench.end()
    ended.check_clean()
    found = found_by(ended)
    assert (ended.code, ended.manifest["status"], len(found["segments"])) == (130, "interrupted", 1)
    assert found["failure"] == "The soak was interrupted before its end."


def test_who_watches_sees_cpu_and_memory_by_role_and_nothing_of_it_is_kept(benches: Benches) -> None:
    bench = benches.start("bare", *SLOW, program=SOAK)
    stretch(bench)
    (run,) = running([bench.out])

    def seen(name: str) -> dict[str, float]:
        families = text_string_to_metric_families(fetch(run.metrics["rig"], 5.0).decode())
        return {s.labels["role"]: s.value for family in families for s in family.samples if s.name == name}

    # Two stretches one after the other, each with a generator of its own.
    for number in (1, 2):
        wait_for(lambda at=number: list(bench.out.glob(f"*/raw/{at:04}/resources.jsonl")), f"stretch {number}")
        wait_for(lambda: seen("agentdyno_process_cpu_seconds_total").keys() == {"host", "backend", "generator"}, "CPU")
        assert seen("agentdyno_process_resident_memory_bytes")["host"] > 10_000_000
        assert seen("agentdyno_process_proportional_memory_bytes")["host"] > 5_000_000
    bench.interrupt(signal.SIGINT)
    ended = bench.end()
    ended.check_clean()
    assert len(found_by(ended)["segments"]) >= 2
    assert list(ended.folder.glob("**/resources*")) == []


def test_a_host_that_dies_of_its_first_request(benches: Benches) -> None:
    ended = benches.start("dies-at-its-first-request", *SLOW, program=SOAK, **VARIABLES).end()
    ended.check_clean()
    found = found_by(ended)
    assert ended.code == 3
    assert "The host was killed by SIGKILL before it had answered its first request." in found["failure"]
    assert found["segments"] == []
