"""Runs with the framework's own spans: they hang in the same traces, disturb no count, and are never for comparison."""

import subprocess

import pyarrow.parquet as pq
import pytest

from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import ROOT, adapter_environment, native_environment
from tests.e2e.benches import PROGRAM, Benches, Ended, environment

pytestmark = [pytest.mark.e2e, pytest.mark.frameworks]
SLOW = ("--rate", "4", "--warmup", "1s", "--duration", "3s", "--cooldown", "0s", "--timeout", "8s")
# One request's spans below invoke_agent, by name; deeper ones in brackets of their parents'.
TOOLS = ("order_status", "refund_policy", "resolution")
OWN = {
    "langchain": ("LangGraph", {"LangGraph": 1, "model": 4, "ChatOpenAI": 4, "tools": 3, **dict.fromkeys(TOOLS, 1)}),
    "autogen": (
        "invoke_agent assistant",
        {"create_agent assistant": 1, "invoke_agent assistant": 1, **{f"execute_tool {tool}": 1 for tool in TOOLS}},
    ),
}


@pytest.fixture(scope="module", params=OWN)
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    ensure(adapter_environment(ROOT / "adapters" / name))
    ensure(native_environment(ROOT / "adapters" / name))
    return name


@pytest.fixture(scope="module")
def both(framework: str, module_benches: Benches) -> tuple[Ended, Ended]:
    """A run with them and one that does not ask, which leave the machine room for each other."""
    started = [module_benches.start(framework, *SLOW, *more) for more in (("--native-spans", "1"), ())]
    with_them, without = [bench.end(120) for bench in started]
    return with_them, without


@pytest.fixture(scope="module")
def ended(both: tuple[Ended, Ended]) -> Ended:
    return both[0]


def test_they_disturb_no_count(framework: str, ended: Ended) -> None:
    ended.check_valid()
    ended.check_clean()
    assert ended.summary["spans"] == {"expected": 12 * 12, "received": 12 * 12, "orphaned": 0, "dropped": 0}
    assert ended.summary["ledger"]["llm_calls"] == 4
    recorder = ended.manifest["recorder"]
    assert (recorder["otlp_refused"], recorder["otlp_rejected_spans"]) == (0, 0)
    taken = recorder["otlp_spans"]
    said = f"Of {taken} spans of the framework's own {taken} were exported and 0 lost."
    assert said in (ended.folder / "logs" / "host.log").read_text(encoding="utf-8")


def test_they_hang_in_the_requests_own_traces(framework: str, ended: Ended) -> None:
    first, names = OWN[framework]
    rows = pq.read_table(ended.folder / "spans.parquet").to_pylist()
    by_id = {row["span_id"]: row for row in rows}
    traced = {row["trace_id"] for row in ended.requests()}
    for trace_id in traced:
        own = [row for row in rows if row["kind"] == "native" and row["trace_id"] == trace_id]
        assert {name: sum(row["name"] == name for row in own) for name in names} == names
        assert sum(names.values()) == len(own)
        for row in own:
            parent = by_id[row["parent_span_id"]]
            assert parent["trace_id"] == trace_id
            # Two clocks, brought together once: a millisecond between them is allowed for.
            assert parent["start_monotonic_ns"] <= row["start_monotonic_ns"] + 1e6
        [outer] = [row for row in own if row["name"] == first]
        assert by_id[outer["parent_span_id"]]["kind"] == "request"
        inside = [row for row in rows if row["trace_id"] == trace_id and row["kind"] in ("chat", "tool")]
        assert len(inside) == 7
        for row in inside:
            assert outer["start_monotonic_ns"] - 1e6 <= row["start_monotonic_ns"]
            assert row["end_monotonic_ns"] <= outer["end_monotonic_ns"] + 1e6
    assert all(row["phase"] is None for row in rows if row["kind"] == "native")


def test_the_run_is_marked_for_people_and_for_programs(framework: str, ended: Ended) -> None:
    assert ended.summary["verdict"]["comparable"] is False
    assert "native_spans" in ended.notes
    about = ended.manifest["native_spans"]
    assert "opentelemetry-sdk" in about["environment"]["distributions"]
    assert "opentelemetry-sdk" not in ended.manifest["environment"]["distributions"]
    assert "Not for comparison" in ended.out


def test_the_waterfall_shows_them_nested(framework: str, ended: Ended) -> None:
    command = [str(PROGRAM), "trace", str(ended.folder), "--slowest", "1"]
    wide = environment(COLUMNS="200")
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=wide).stdout
    assert "without their parent; marked" in shown
    lines = shown.partition("\nTrace ")[2].splitlines()
    first, names = OWN[framework]
    marked = [line for line in lines if line.lstrip().startswith("~ ")]
    assert len(marked) == sum(names.values())
    [outer] = [line for line in marked if line.startswith(f"    ~ {first}")]
    deeper = next(line for line in marked if line.startswith("      ~ "))
    assert lines.index(outer) < lines.index(deeper)


def test_a_run_that_does_not_ask_carries_none_of_it(both: tuple[Ended, Ended]) -> None:
    _, ended = both
    ended.check_valid()
    assert ended.summary["verdict"]["comparable"] is True
    assert ended.manifest["native_spans"] is None
    assert "native" not in pq.read_table(ended.folder / "spans.parquet")["kind"].to_pylist()
