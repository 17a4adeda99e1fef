"""A comparison's page, read as text and looked at in a browser: closed in itself, complete, readable everywhere."""

import json
import os
import re
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from agentdyno.analysis.metrics import METRICS
from agentdyno.contract.comparison import Comparison
from agentdyno.report.comparison_html import comparison_page
from tests.browser import Browser
from tests.locales import WITH_COMMAS
from tests.report.comparisons import NAMES, comparison, empty

EVIL = ("<b>x</b>", "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}")
ROOT = Path(__file__).resolve().parents[2]


def written(folder: Path, what: Comparison) -> Path:
    file = folder / "report.html"
    file.write_text(comparison_page(what), encoding="utf-8")
    return file


def visible(page: str) -> str:
    """What stands in it for a reader: no style, no script, no markup."""
    page = re.sub(r"(?s)<(style|script)\b.*?</\1>", "", page)
    return re.sub(r"<[^>]*>", " ", page)


def test_it_is_closed_in_itself_and_small() -> None:
    page = comparison_page(comparison(*NAMES, "another"))
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"(?i)https?://|<(link|img|iframe|object)\b|@import|\bsrc=|url\((?!#)", page)


@pytest.mark.parametrize("what", [comparison(), empty(), comparison("bare", rounds=1)], ids=["whole", "empty", "one"])
def test_nothing_that_is_no_number_is_shown(what: Comparison) -> None:
    page = comparison_page(what)
    assert not re.search(r"\b(nan|NaN|inf|Infinity|undefined|None)\b", visible(page))
    assert not re.search(r'"(?:nan|inf|-inf)[%"]', page)
    data = re.findall(r'(?s)<script type="application/json" id="plots">(.*?)</script>', page)[0]
    json.loads(data, parse_constant=pytest.fail)


def test_everything_that_a_reader_needs_is_there() -> None:
    what = comparison()
    page = comparison_page(what)
    text = " ".join(visible(page).split())
    for run in what.runs:
        assert run.run_id
        assert page.count(run.run_id) >= 1
    assert "generator_late : 12 arrivals were sent late." in text
    assert all(metric.title in text and metric.definition.replace("'", "&#39;") in text for metric in METRICS)
    assert what.command[-1] in text
    assert f"{'ab' * 32}  runs/" in page
    assert "59 of 60 runs count" in text
    assert all(sentence in text for sentence in what.not_to_conclude)
    assert "16.1 % less" in text
    assert "no difference" in text


def test_a_dash_has_its_reason() -> None:
    text = visible(comparison_page(empty()))
    assert "No run of it counts" in text
    assert "nobody is ranked" in text


def test_the_page_does_not_depend_on_the_zone() -> None:
    assert made_elsewhere("", TZ="UTC") == made_elsewhere("", TZ="Asia/Shanghai") == comparison_page(comparison())


def test_the_page_does_not_depend_on_a_locale_with_commas(comma_locale: dict[str, str]) -> None:
    assert made_elsewhere(WITH_COMMAS, **comma_locale) == comparison_page(comparison())


def made_elsewhere(before: str, **environment: str) -> str:
    code = (
        "import sys\n"
        "from tests.report.comparisons import comparison\n"
        "from agentdyno.report.comparison_html import comparison_page\n"
        "sys.stdout.buffer.write(comparison_page(comparison()).encode())"
    )
    command = [sys.executable, "-c", before + code]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **environment}
    return subprocess.run(command, capture_output=True, check=True, cwd=ROOT, env=given).stdout.decode()


# in a browser


@pytest.mark.parametrize("what", [comparison(), empty(), comparison(*EVIL)], ids=["whole", "empty", "evil"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_readable(browser: Browser, tmp_path: Path, what: Comparison, dark: bool, width: int) -> None:
    seen = browser.open(written(tmp_path, what), width=width, dark=dark)
    seen.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert (seen.errors, seen.requested, seen.overflow(), seen.hard_to_read()) == ([], [seen.url], 0, [])


def test_a_name_is_text_and_nothing_else(browser: Browser, tmp_path: Path) -> None:
    seen = browser.open(written(tmp_path, comparison(*EVIL)))
    assert seen.evaluate("document.querySelectorAll('b b, img, script').length") == 2
    names = seen.evaluate("[...document.querySelectorAll('#results dt')].map(each => each.textContent)")
    assert names == list(EVIL)


def column(seen: Any, number: int) -> list[str]:
    rows = "document.querySelectorAll('#results table')[0].tBodies[0].rows"
    found = seen.evaluate(f"[...{rows}].map(row => row.cells[{number}].firstChild.textContent.trim())")
    assert isinstance(found, list)
    return found


def test_tables_sort_by_figure_with_what_is_missing_at_the_end(browser: Browser, tmp_path: Path) -> None:
    seen = browser.open(written(tmp_path, comparison()))
    as_it_was = column(seen, 0)
    heads = seen.evaluate("[...document.querySelectorAll('#results table')[0].rows[0].cells].map(c => c.textContent)")
    at = next(n for n, text in enumerate(heads) if text.startswith("GC pauses, total"))
    head = f"#results th:nth-child({at + 1})"
    seen.click(f"{head} button")
    pauses = column(seen, at)
    assert pauses[-1] == "\u2013"
    assert [float(text) for text in pauses[:-1]] == sorted(float(text) for text in pauses[:-1])
    assert seen.evaluate(f"document.querySelector('{head}').getAttribute('aria-sort')") == "ascending"
    seen.press("Enter")  # the button has the focus: keys do it too
    assert column(seen, at) == [*pauses[-2::-1], "\u2013"]
    assert seen.evaluate(f"document.querySelector('{head}').getAttribute('aria-sort')") == "descending"
    seen.click("#results th:nth-child(1) button")
    assert column(seen, 0) == sorted(as_it_was)
    unsorted = "document.querySelectorAll('#results table')[0].querySelectorAll('[aria-sort=none]').length"
    assert seen.evaluate(unsorted) == len(heads) - 1


def test_plots_are_drawn(browser: Browser, tmp_path: Path) -> None:
    seen = browser.open(written(tmp_path, comparison()))
    size = "(each => { const box = each.getBBox(); return box.width * box.height; })"
    plots = {"latency-steady": 6, "latency-standard": 6, "memory-steady": 6}
    for name, lines in (plots | {"steps-p50": 2, "steps-p95": 2, "steps-p99": 1, "steps-goodput": 2}).items():
        areas = seen.evaluate(f"[...document.querySelectorAll('#{name} path.line:not(.key *)')].map({size})")
        assert len(areas) == lines, name
        assert min(areas) > 1_000, name
    widths = seen.evaluate(
        "[...document.querySelectorAll('.bar rect:not(.mark)')].map(r => r.getBoundingClientRect().width)"
    )
    assert len(widths) == 2 * 5 * 6  # two loads, five traced entries, six phases
    assert max(widths) > 50
    assert seen.evaluate("document.querySelectorAll('#ratios circle.sure').length") > 10
    assert seen.evaluate("document.querySelectorAll('#null circle.unsure').length") == 4


def test_a_capacity_is_said_with_how_it_was_found_and_none_where_it_was_not() -> None:
    found = comparison()
    section = comparison_page(found).partition('<section id="rates">')[2].partition("</section>")[0]
    text = " ".join(visible(section).split())
    assert "the highest rate at which p95&lt;2s and errors&lt;1% held" in text
    third, fourth = (each.label for each in found.entries[2:4])
    assert f"{third} 8 8/s met the objective, and again in 2 of 2 repeats." in text
    assert f"{fourth} \u2013 It was not confirmed." in text
    assert "bare \u2013 Not searched." in text
    assert f"Not drawn, as no step had enough answers for it: {fourth}." in text


def test_lines_and_phases_can_be_told_apart_without_colour(browser: Browser, tmp_path: Path) -> None:
    seen = browser.open(written(tmp_path, comparison(*NAMES, "another")))
    look = "(line => { const s = getComputedStyle(line); return s.strokeDasharray + ' ' + s.strokeWidth; })"
    looks = seen.evaluate(f"[...document.querySelectorAll('#latency-steady g path.line')].map({look})")
    assert len(looks) == len(set(looks)) == 10
    marks = seen.evaluate("[...document.querySelectorAll('.patterns pattern')].map(each => each.innerHTML)")
    assert len(marks) == len(set(marks)) == 6


def test_a_plot_says_its_values_and_puts_lines_away(browser: Browser, tmp_path: Path) -> None:
    seen = browser.open(written(tmp_path, comparison()))
    seen.hover("#memory-steady .area")
    reading = seen.evaluate("document.querySelector('#memory-steady .reading').textContent")
    assert re.fullmatch(r"\d+(\.\d+)? s: bare \d+(\.\d+)?, .*autogen \d+(\.\d+)?", reading)
    seen.click('#memory-steady [data-toggle="langchain"]')
    shown = (
        "[...document.querySelectorAll('#memory-steady g')].filter(g => getComputedStyle(g).display !== 'none').length"
    )
    assert seen.evaluate(shown) == 5
    seen.hover("#memory-steady .area")
    assert "langchain" not in seen.evaluate("document.querySelector('#memory-steady .reading').textContent")


def test_it_prints_with_everything_open(browser: Browser, tmp_path: Path) -> None:
    seen = browser.open(written(tmp_path, comparison()), dark=True)
    pdf = b64decode(seen.call("Page.printToPDF", printBackground=False)["data"])
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") >= 8
    seen.call("Emulation.setEmulatedMedia", media="print")
    assert seen.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert seen.hard_to_read() == []
