"""One run's page: its figures are those of the summary, its slowest requests lead to the heap of their moment."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.run import ServerCounters
from agentdyno.contract.summary import Framework
from agentdyno.record.folder import RunFolder
from agentdyno.record.heap_folder import HEAP_FOLDER, INDEX, HeapIndex, Snapshot
from agentdyno.record.manifest import Backend
from agentdyno.report.run_html import run_page, write_run_report
from agentdyno.report.waterfall import waterfalls
from tests.analysis.planted_run import T0, Figures, S, load_plan, write_run
from tests.browser import Browser

PLAIN = Framework("plain", "1.2.3", "default", "llm")
EVIL = Framework("<b>x</b>", None, "default", "llm")


def run(folder: Path, framework: Framework = PLAIN, requests: int = 600, traced: bool = True, **figures: float) -> Path:
    path = folder / "20260102T030405Z-plain-abcdef"
    plan = load_plan(20.0, requests, 1, traced=traced)
    write_run(path, plan, framework, Figures(**figures), 1, environment={}, rig_environment={})  # type: ignore[arg-type]
    return path


def add_heap(path: Path) -> None:
    """Two snapshots, 10 s and 20 s after the schedule's origin, each with its page."""
    (path / HEAP_FOLDER).mkdir()
    snapshots = [Snapshot(f"00{n}-{n}0.pb.gz", n * 10.0, T0 + n * 10 * S) for n in (1, 2)]
    RunFolder(path).write_json(f"{HEAP_FOLDER}/{INDEX}", HeapIndex(10.0, 32_768, snapshots))
    for snapshot in snapshots:
        (path / HEAP_FOLDER / snapshot.page).write_text("a flame graph")


def visible(page: str) -> str:
    page = re.sub(r"(?s)<(style|script)\b.*?</\1>", "", page)
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_it_shows_the_figures_of_the_summary(tmp_path: Path) -> None:
    path = run(tmp_path)
    text = visible(run_page(read_run(path)))
    assert "plain 1.2.3" in text
    assert "600 of 600 arrivals at 20 a second were answered and verified. The run is valid." in text
    cpu = summarise(read_run(path)).cpu_ms_per_request
    assert cpu
    assert f"CPU per request {cpu:.3g} ms" in text
    assert "few_samples" in text


def test_the_backend_is_described_by_who_says_so(tmp_path: Path) -> None:
    path = run(tmp_path)
    assert "as it tells of itself" not in visible(run_page(read_run(path)))
    data = read_run(path)
    data.manifest.backend = {
        "kind": "vllm",
        "model": "m",
        "served_by": "vllm m, stated: --parser <x>",
        "stated": "--parser <x>",
        "told": {"version": "0.31.0"},
    }
    text = visible(run_page(data))
    assert "Backend vllm, model m Backend, as its user states --parser &lt;x&gt; " in text
    assert "Backend, as it tells of itself version 0.31.0 " in text


def test_the_slowest_come_first_and_each_has_the_heap_next_to_it(tmp_path: Path) -> None:
    path = run(tmp_path)
    add_heap(path)
    data = read_run(path)
    found = waterfalls(data, 5)
    times = [one.took_ms for one in found]
    assert len(found) == 5
    assert times == sorted(times, reverse=True)
    assert data.spans is not None
    hosts = {row["trace_id"]: row for row in data.spans.to_pylist() if row["kind"] == "request"}
    took_ns = [row["end_monotonic_ns"] - row["start_monotonic_ns"] for row in hosts.values()]
    assert found[0].took_ms == pytest.approx(max(took_ns) / 1e6)
    for one in found:
        seconds = (hosts[one.trace_id]["start_monotonic_ns"] - T0) / S
        assert one.heap == ("heap/001-10.html" if seconds <= 10 else "heap/002-20.html")
        assert all(0 <= piece.x <= 100 and piece.x + piece.width <= 100.5 for piece in one.pieces)
    page = run_page(data)
    links = re.findall(r'href="(heap/[^"]*)"', page)
    assert set(links) == {"heap/001-10.html", "heap/002-20.html"}
    assert all((path / link).is_file() for link in links)


def test_a_run_without_heap_or_traces_says_so(tmp_path: Path) -> None:
    text = visible(run_page(read_run(run(tmp_path, traced=False))))
    assert "No request was traced and verified" in text
    assert "no heap snapshot in this run" in visible(run_page(read_run(run(tmp_path / "other"))))


def test_the_times_within_vllm_stand_below_the_phases_where_its_spans_say_them(tmp_path: Path) -> None:
    path = run(tmp_path)
    assert "Within vLLM" not in visible(run_page(read_run(path)))
    counters = ServerCounters(
        requests=1,
        prompt_tokens=1,
        completion_tokens=1,
        preemptions=0,
        queue_s=0.0,
        prefill_s=0.0,
        decode_s=0.0,
        first_token_s=0.0,
        end_to_end_s=0.0,
    )
    RunFolder(path).write_json("backend.json", Backend(kind="vllm", model="m", counters=counters))
    spans = pq.read_table(path / "spans.parquet")
    said = '{"gen_ai.latency.time_in_queue": 0.0015, "gen_ai.latency.e2e": 0.25}'
    column = pa.array([said if kind == "served" else "{}" for kind in spans["kind"].to_pylist()])
    place = spans.schema.get_field_index("attributes")
    pq.write_table(spans.set_column(place, spans.schema.field(place), column), path / "spans.parquet")
    text = visible(run_page(read_run(path)))
    assert "Within vLLM, mean of a call: queue 1.5 ms, end to end 250.0 ms. The usual critical path" in text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_readable(browser: Browser, tmp_path: Path, dark: bool, width: int) -> None:
    path = run(tmp_path, EVIL)
    add_heap(path)
    write_run_report(path)
    seen = browser.open(path / "report.html", width=width, dark=dark)
    assert (seen.errors, seen.requested, seen.overflow(), seen.hard_to_read()) == ([], [seen.url], 0, [])
    assert seen.evaluate("document.querySelector('h1').textContent") == "<b>x</b>"
    assert seen.evaluate("document.querySelectorAll('.waterfall rect.mark').length") > 20
    assert seen.evaluate("document.querySelectorAll('#latency path.line:not(.key *)').length") == 2


@pytest.mark.parametrize(
    ("requests", "figures"), [(1, {}), (40, {"capacity_rps": 1e-6}), (3, {"gc_ms": 0.0})], ids=["one", "none ok", "few"]
)
def test_little_data_is_shown_as_little(tmp_path: Path, requests: int, figures: dict[str, float]) -> None:
    page = run_page(read_run(run(tmp_path, requests=requests, **figures)))
    text = visible(page)
    assert not re.search(r"\b(nan|NaN|inf|Infinity|undefined|None)\b", text)
    assert "Latency p99 \u2013 ms" in text
    assert "Too few requests were answered to draw it" in text
