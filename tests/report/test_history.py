"""`agentdyno history` in the terminal and as a page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentdyno.cli import run as command
from tests.analysis.test_history import run
from tests.browser import Browser
from tests.locales import WITH_COMMAS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("history")
    for number in range(12):
        cpu_ms = (2.0 if number < 6 else 2.5) + number / 1e4
        run(parent, f"run-{number:02}", f"1.{number}", number + 1, cpu_ms=cpu_ms, who="<b>x</b>")
    run(parent, "alone", "1.0", 1, rate=40.0, who="<script>alert(1)</script>")
    return parent


def test_the_terminal_has_every_point_and_says_the_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["history", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "<b>x</b>, CPU per request: 12 points, by version" in out
    assert len(re.findall(r"^1\.\d+ +2026-01-\d\d +1 +2\.?\d* +█+", out, re.MULTILINE)) == 13
    assert re.search(r"^1\.6 .*█ step$", out, re.MULTILINE)
    assert re.search(r"A step at 1\.6 \(run-06\): \+25\.\d % \[\+2\d\.\d %, \+2\d\.\d %\]", out)
    assert "No step can be marked: that needs 10 points, and there are 1." in out
    assert max(map(len, (line for line in out.splitlines() if "█" in line))) <= 80


def test_the_page_stands_on_its_own_and_draws_both(folder: Path, tmp_path: Path, browser: Browser) -> None:
    page = tmp_path / "history.html"
    assert command(["history", str(folder), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "<b>x" not in text
    assert "<script>alert" not in text
    assert not re.search(r"(src|href)=\"(?!#)|url\((?!#)", text)
    for width, dark in ((1280, False), (390, True)):
        seen = browser.open(page, width=width, dark=dark)
        assert (seen.errors, seen.requested, seen.overflow(), seen.hard_to_read()) == ([], [seen.url], 0, [])
    assert seen.evaluate("document.querySelectorAll('figure.plot').length") == 2
    assert seen.evaluate("document.querySelectorAll('#history-0 .dot, #history-1 .dot').length") == 13


def test_a_time_zone_changes_nothing(folder: Path, tmp_path: Path) -> None:
    assert_same_pages(folder, tmp_path, ("", {"TZ": "UTC"}), ("", {"TZ": "Asia/Shanghai"}))


def test_a_locale_with_commas_changes_nothing(folder: Path, tmp_path: Path, comma_locale: dict[str, str]) -> None:
    assert_same_pages(folder, tmp_path, ("", {}), (WITH_COMMAS, comma_locale))


def assert_same_pages(folder: Path, tmp_path: Path, *ways: tuple[str, dict[str, str]]) -> None:
    pages = []
    for before, more in ways:
        page = tmp_path / f"{len(pages)}.html"
        code = before + "from agentdyno.cli import main; main()"
        arguments = [sys.executable, "-c", code, "history", str(folder), "--out", str(page)]
        subprocess.run(arguments, env={**os.environ, **more}, check=True, capture_output=True)
        pages.append(page.read_bytes())
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--metric", "speed"], "agentdyno: --metric: there is no metric 'speed'. There are: goodput, "),
        (["--load", "heavy"], "agentdyno: --load: there is no load 'heavy'. There are: steady, standard."),
        (["--framework", "none"], "agentdyno: Under "),
        (["--out", "/dev/null/x"], "agentdyno: The page cannot be written to /dev/null/x"),
    ],
)
def test_mistakes_are_sentences(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert command(["history", str(folder), *arguments]) == 2
    assert capsys.readouterr().err.startswith(sentence)
