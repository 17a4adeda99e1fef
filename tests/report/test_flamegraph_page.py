"""The flame-graph pages in a real browser: no error, nothing fetched, zoom by mouse and keys, readable everywhere."""

from pathlib import Path

import pytest

from agentdyno.analysis.heap import Attribution
from agentdyno.contract.pprof import HEAP_TYPES, Frame, Profile, Sample, difference
from agentdyno.report.flamegraph import difference_page, snapshot_page
from tests.browser import Browser, Page

ROOT = Frame("main", "agentdyno/host/serve.py", 50)
RUN = Frame("run_until_complete_of_the_event_loop", "<frozen lib>/asyncio/runners.py", 118)
AGENT = Frame("Agent.invoke", "site-packages/langchain_core/agents.py", 7)
CLIENT = Frame("Client.post", "site-packages/openai/_client.py", 3)
PARSE = Frame("parse", "site-packages/pydantic/main.py", 9)
STACKS = ((AGENT, RUN, ROOT), (CLIENT, AGENT, RUN, ROOT), (PARSE, CLIENT, AGENT, RUN, ROOT), (PARSE, RUN, ROOT))
ATTRIBUTION = Attribution(("langchain_core",))
BOXES = "[...document.querySelectorAll('svg g')].map(box => box.getAttribute('aria-label').split(',')[0])"
FOCUSED = "document.activeElement.getAttribute('aria-label')?.split(',')[0]"


def profile(*in_use: int) -> Profile:
    values = [(9, size * 3, max(1, size // 1000), size) for size in in_use]
    samples = tuple(Sample(stack, one) for stack, one in zip(STACKS, values, strict=True))
    return Profile(HEAP_TYPES, samples, time_ns=1_700_000_000_000_000_000, comments=("Sampled.",))


FIRST, LAST = profile(4_000_000, 3_000_000, 2_000_000, 9_000_000), profile(5_000_000, 3_000_000, 8_000_000, 1_000_000)


@pytest.fixture(params=["snapshot", "difference"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    pages = {
        "snapshot": snapshot_page(LAST, ATTRIBUTION, "langchain", "30 s of 60 s"),
        "difference": difference_page(difference(LAST, FIRST), ATTRIBUTION, "langchain", 60.0),
    }
    made = tmp_path / f"{request.param}.html"
    made.write_text(pages[request.param], encoding="utf-8")
    return made


def shown(page: Page) -> list[str]:
    """The boxes, from the top down."""
    found = page.evaluate(BOXES)
    assert isinstance(found, list)
    return found


def width(page: Page, name: str) -> float:
    return float(page.evaluate(f"document.querySelector('svg g[aria-label^=\"{name}\"] rect').width.baseVal.value"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("pixels", [390, 1280])
def test_it_is_readable_and_closed_in_itself(browser: Browser, file: Path, pixels: int, dark: bool) -> None:
    page = browser.open(file, width=pixels, dark=dark)
    for step in (None, 'svg g[aria-label^="Agent.invoke"]', ".views button:last-child"):
        if step is not None:
            page.click(step)
        assert page.overflow() == 0
        assert page.hard_to_read() == []
    assert page.errors == []
    assert page.requested == [page.url]
    smallest = page.evaluate("Math.min(...[...document.querySelectorAll('body *')].map(at => at.checkVisibility() ? "
                             "parseFloat(getComputedStyle(at).fontSize) : 99))")  # fmt: skip
    assert smallest >= 12


def test_a_click_zooms_and_the_button_and_escape_show_all_again(browser: Browser, file: Path) -> None:
    page = browser.open(file)
    everything, whole, narrow = shown(page), width(page, "main"), width(page, "Client.post")
    assert narrow < whole
    assert page.evaluate("document.getElementById('reset').disabled")
    page.click('svg g[aria-label^="Client.post"]')
    assert width(page, "Client.post") == whole
    assert shown(page) == ["all", "main", RUN.function, "Agent.invoke", "Client.post", "parse"]
    assert "Client.post" in page.evaluate("document.getElementById('detail').textContent")
    page.click("#reset")
    assert (shown(page), width(page, "Client.post")) == (everything, narrow)
    page.click('svg g[aria-label^="Client.post"]')
    page.press("Escape")
    assert (shown(page), width(page, "Client.post")) == (everything, narrow)
    page.click('svg g[aria-label^="Agent.invoke"]')
    page.click('svg g[aria-label^="all"]')  # what stands above stays to go back to
    assert (shown(page), width(page, "Client.post")) == (everything, narrow)
    assert page.errors == []


def test_all_of_it_is_reached_by_keys(browser: Browser, file: Path) -> None:
    page = browser.open(file)
    views = page.evaluate("data.views.length")
    page.press(*["Tab"] * views)
    page.press("Space")
    assert page.evaluate("document.querySelector('.views button:last-child').getAttribute('aria-pressed')") == "true"
    page.evaluate("choose(0)")
    page.press("Tab")
    page.type("client.post")
    assert page.evaluate("document.querySelectorAll('svg g.hit').length") == 1
    assert "MB" in page.evaluate("document.getElementById('found').textContent")
    page.press("Tab")  # the graph is one stop; arrows move within it
    assert page.evaluate(FOCUSED) == "all"
    page.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown")
    assert page.evaluate(FOCUSED) == "Client.post"
    assert "Client.post" in page.evaluate("document.getElementById('detail').textContent")
    narrow = width(page, "Client.post")
    page.press("Enter")
    assert width(page, "Client.post") > narrow
    assert page.evaluate(FOCUSED) == "Client.post"  # the focus stays where the reader is
    page.press("ArrowUp")
    assert page.evaluate(FOCUSED) == "Agent.invoke"
    page.press("Escape")
    assert width(page, "Client.post") == narrow
    assert page.evaluate(FOCUSED) == "Agent.invoke"
    assert page.errors == []


def test_neighbours_are_reached_by_keys(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(snapshot_page(FIRST, ATTRIBUTION, "langchain", "0 s of 60 s"), encoding="utf-8")
    page = browser.open(file)
    page.evaluate("document.querySelector('svg g').focus()")
    page.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight")
    assert page.evaluate(FOCUSED) in ("parse", "Agent.invoke")
    right = page.evaluate(FOCUSED)
    page.press("ArrowRight")
    assert page.evaluate(FOCUSED) == right  # there is nothing beyond
    page.press("ArrowLeft")
    assert page.evaluate(FOCUSED) != right


def test_what_grew_and_what_shrank_are_apart(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "difference.html"
    file.write_text(difference_page(difference(LAST, FIRST), ATTRIBUTION, "langchain", 60.0), encoding="utf-8")
    page = browser.open(file)
    assert "parse" in shown(page)
    grown = page.evaluate("document.querySelector('svg g').getAttribute('aria-label')")
    page.click(".views button:nth-child(2)")  # what shrank
    assert page.evaluate("document.querySelector('svg g').getAttribute('aria-label')") != grown
    assert "Agent.invoke" not in shown(page)
    assert page.evaluate("document.querySelector('svg g').getAttribute('aria-label')") == "all, 8.00 MB"
