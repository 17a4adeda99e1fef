"""The browser that other tests look at pages with sees what goes wrong in one."""

from pathlib import Path

from tests.browser import Browser

PAGE = """<!doctype html><meta name="color-scheme" content="light dark"><title>first</title>
<style>body { background: #fff } p { color: #000; } @media (prefers-color-scheme: dark) { body { background: #000 } }
.wide { width: 500px; margin: 0 }</style>
<p class="wide">text</p><button onclick="document.title += ' clicked'">b</button>
<input onkeydown="document.title += ' ' + event.key" oninput="document.title += ' ' + this.value">"""


def page(folder: Path, more: str = "") -> Path:
    file = folder / "page.html"
    file.write_text(PAGE + more, encoding="utf-8")
    return file


def test_a_page_that_is_in_order(browser: Browser, tmp_path: Path) -> None:
    seen = browser.open(page(tmp_path))
    assert (seen.errors, seen.requested, seen.overflow(), seen.hard_to_read()) == ([], [seen.url], 0, [])
    seen.click("button")
    seen.press("Tab")
    seen.type("x")
    seen.press("Enter", "ArrowLeft")
    assert seen.evaluate("document.title") == "first clicked x Enter ArrowLeft"
    seen.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_one_that_is_not(browser: Browser, tmp_path: Path) -> None:
    broken = '<img src="gone.png"><script>console.error("said", 1); throw new Error("thrown")</script>'
    seen = browser.open(page(tmp_path, broken), width=390, dark=True)
    assert any("said 1" in error for error in seen.errors)
    assert any("thrown" in error for error in seen.errors)
    assert any("gone.png" in error for error in seen.errors)
    assert len(seen.requested) == 2
    assert seen.overflow() > 100
    assert seen.hard_to_read() == ["text: 1.00"]
    seen.resize(1280)
    seen.scheme(dark=False)
    assert (seen.overflow(), seen.hard_to_read()) == (0, [])
