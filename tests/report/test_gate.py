"""`agentdyno check` in the terminal and as Markdown."""

from pathlib import Path

import pytest

from agentdyno.cli import run
from tests.analysis.gates import runs


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    parent = tmp_path_factory.mktemp("sides")
    return str(runs(parent, "a", 4, who="<b>x|y</b>")), str(runs(parent, "b", 4, who="<b>x|y</b>", cpu_ms=30.0))


def test_a_failed_gate(sides: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "summary.md"
    limits = ["--max", "cpu_per_request=+20%", "--max", "rss_peak=+20%", "--min=goodput=-10%"]
    assert run(["check", *sides, *limits, "--markdown", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fail         <b>x|y</b> cpu_per_request: ")
    assert "limit at most +20 %: the whole interval is beyond the limit." in lines[0]
    assert lines[-1] == "Gate: failed (2 pass, 1 fail)."
    text = file.read_text(encoding="utf-8")
    assert text.startswith("## AgentDyno: failed\n\n|")
    assert "| **fail** | &lt;b&gt;x\\|y&lt;/b&gt; 1.0.0 -&gt; 1.0.0 | CPU per request | " in text
    table = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {10}
    assert "<b>" not in text


def test_a_gate_that_passes_writes_over_what_was_there(sides: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("something longer than what comes " * 100, encoding="utf-8")
    assert run(["check", sides[0], sides[0], "--markdown", str(file)]) == 0
    assert file.read_text(encoding="utf-8").startswith("## AgentDyno: passed\n")
    assert "something" not in file.read_text(encoding="utf-8")


def test_cannot_tell_is_an_exit_code_of_its_own(sides: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    single = str(Path(sides[0]) / "run-0")
    assert run(["check", single, single]) == 3
    assert capsys.readouterr().out.endswith("Gate: cannot tell (2 cannot tell).\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--max", "p98=1%"], "agentdyno: --max: there is no metric 'p98'. There are: "),
        (["--load", "heavy"], "agentdyno: --load: there is no load 'heavy'. There are: steady, standard."),
        (["--framework", "z"], "agentdyno: z is not on both sides"),
        (["--markdown", "/dev/null/x"], "agentdyno: The Markdown cannot be written to /dev/null/x"),
    ],
)
def test_mistakes_are_sentences(
    sides: tuple[str, str], capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert run(["check", sides[0], sides[0], *arguments]) == 2
    assert capsys.readouterr().err.startswith(sentence)
