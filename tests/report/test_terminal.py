"""The table for the terminal: of good, bad and almost empty runs, with names printed as they are."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from agentdyno.analysis.metrics import METRICS
from agentdyno.contract.run import Finding, Outcome, Reason
from agentdyno.contract.summary import Framework, Summary
from agentdyno.report.terminal import print_summary
from tests.golden.run import GoldenRun


def shown(summary: Summary, *, colour: bool = False, width: int = 120) -> str:
    out = io.StringIO()
    print_summary(
        summary, Console(file=out, width=width, force_terminal=colour, color_system="standard" if colour else None)
    )
    return out.getvalue()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return GoldenRun().summary(tmp_path_factory.mktemp("run"))


def test_a_valid_run(golden: Summary) -> None:
    text = shown(golden)
    assert "golden 1.2.3, scenario chain, mock backend" in text
    rows = {line[:25].strip(): line[25:].strip() for line in text.splitlines()}
    assert rows["Goodput"] == "1,000 rps"
    assert rows["CPU per request"] == "0.34 ms"
    assert rows["Latency p99"] == "51 ms"
    assert rows["Memory peak (RSS)"] == "120 MB"
    assert "5000 arrivals at 1000/s: 5000 ok; sent at most 8.0 ms late." in text
    assert text.endswith("Verdict: valid\n")
    for metric in METRICS:
        assert metric.title in text


def test_an_invalid_run_says_why(tmp_path: Path) -> None:
    run = GoldenRun()
    run.change(0, tool_calls=2)
    run.manifest.cores = {"host": None}
    text = shown(run.summary(tmp_path))
    assert "Verdict: invalid\n  work_differs: 1 of 5000 answers" in text
    assert "  note not_pinned: The host had no core of its own" in text


def test_an_overloaded_run_says_what_became_of_the_rest(tmp_path: Path) -> None:
    run = GoldenRun()
    for i, outcome in enumerate((Outcome.REJECTED, Outcome.TIMEOUT, Outcome.FAILED, Outcome.DROPPED)):
        for n in range(100):
            run.change(100 * i + n, outcome=outcome)
    run.ends = [msgspec.structs.replace(end, in_flight_area_s=None) for end in run.ends]
    text = shown(run.summary(tmp_path))
    assert "4600 ok, 100 failed, 100 timed out, 100 rejected, 100 dropped" in text
    assert "Verdict: valid (overloaded)" in text
    assert "note overloaded:" in text


def test_a_run_that_measured_nothing_shows_dashes(tmp_path: Path) -> None:
    run = GoldenRun(records=[], ends=[], samples=None, gc=None, loop=None, backend=None)
    run.manifest.cold_start_ms = run.manifest.rss_idle_bytes = run.manifest.t0_monotonic_ns = None
    text = shown(run.summary(tmp_path))
    for metric in METRICS:
        (row,) = [line for line in text.splitlines() if line.startswith(metric.title + " ")]
        assert row.split()[-1] == "-"
    assert "arrivals" not in text.splitlines()[len(METRICS) + 1]
    assert "Verdict: invalid" in text


@pytest.mark.parametrize("name", ["<b>x</b>", "[bold]x[/bold]", "[/]", "[link=http://x]y", ":smile:", "a[red]b"])
@pytest.mark.parametrize("colour", [False, True])
def test_names_and_messages_are_printed_as_they_are(golden: Summary, name: str, colour: bool) -> None:
    verdict = msgspec.structs.replace(
        golden.verdict, valid=False, reasons=(Finding(Reason.HOST_FAILED, f"The host said {name}."),)
    )
    verdict = msgspec.structs.replace(verdict, notes=(Finding(Reason.NOT_PINNED, f"Note {name}."),))
    named = msgspec.structs.replace(
        golden,
        framework=Framework(name, f"1{name}", "default", "llm"),
        scenario=f"chain{name}",
        backend={"kind": f"mock{name}"},
        verdict=verdict,
    )
    text = shown(named, colour=colour)
    assert f"{name} 1{name}, scenario chain{name}, mock{name} backend" in text
    assert f"  host_failed: The host said {name}." in text
    assert f"  note not_pinned: Note {name}." in text


def test_the_verdict_is_coloured_where_there_is_colour(golden: Summary) -> None:
    assert "\x1b[1;32mvalid\x1b[0m" in shown(golden, colour=True)
    assert "\x1b" not in shown(golden)


def test_a_narrow_terminal_loses_nothing(golden: Summary) -> None:
    text = shown(golden, width=40)
    assert all(len(line) <= 40 for line in text.splitlines())
    for metric in METRICS:
        assert metric.text(golden) in text
