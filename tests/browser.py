"""A headless Chromium for tests of pages: opened, clicked, typed into and looked at as a reader does.

    page = browser.open(tmp_path / "page.html", width=390, dark=True)
    page.click("#reset")                    # a real mouse, in the middle of the first element that matches
    page.press("Tab", "Enter")              # real keys: Tab, Enter, Escape, Space, Arrow*, Home, End
    page.type("openai")                     # into what has the focus
    page.evaluate("document.title")         # any expression; promises are awaited; what it gives must be JSON
    page.wait_for("document.querySelectorAll('tr').length > 3")
    page.resize(1280), page.scheme(dark=False), page.screenshot(tmp_path / "page.png")
    assert page.errors == []                # console errors, uncaught exceptions, what could not be loaded
    assert page.requested == [page.url]     # what it fetched: nothing but itself
    assert page.overflow() == 0             # by how many pixels it is wider than the window
    assert page.hard_to_read() == []        # visible texts whose contrast is below 4.5 (WCAG 2.2, 1.4.3)

Fixture: `browser`, one Chromium for all tests of a session; a folder's conftest.py takes it by
`from tests.browser import browser`. Without a Chromium those tests are skipped, with the reason.
Driven by the DevTools protocol: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 30.0
_KEYS = {
    "Tab": 9, "Enter": 13, "Escape": 27, "Space": 32, "End": 35, "Home": 36,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip
_TEXT = {"Enter": "\r", "Space": " "}

_ON_ITS_WAY = ("Inspected target navigated or closed", "Execution context was destroyed.")


class Browser:
    """One Chromium with a profile of its own. Use as a context."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        profile = Path(self._folder.name)
        command = [program, "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
        command += ["--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        with (profile / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "about:blank"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self._socket = self._connect(profile)
        except BaseException:
            self.close()
            raise
        self._numbers = count(1)
        self._pages: dict[str, Page] = {}

    def _connect(self, profile: Path) -> websocket.WebSocket:
        deadline = time.monotonic() + TIMEOUT_S
        told = profile / "DevToolsActivePort"
        while not (told.is_file() and len(lines := told.read_text().splitlines()) == 2):
            said = (profile / "log").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"Chromium ended with {self._process.returncode}: {said}"
            assert time.monotonic() < deadline, f"Chromium was not ready within {TIMEOUT_S:g} s: {said}"
            time.sleep(0.05)
        address = f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        return websocket.create_connection(address, timeout=TIMEOUT_S, suppress_origin=True, http_no_proxy=["*"])

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()
        self.close()

    def close(self) -> None:
        """End the process and remove its profile."""
        self._process.terminate()
        try:
            self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def open(self, file: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """A page of its own, loaded. file: its path, or an address of a server on this machine."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        url = file.absolute().as_uri() if isinstance(file, Path) else file
        page = self._pages[session] = Page(self, session, url)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setScrollbarsHidden", hidden=True)  # they lie over the page, as on a phone
        page.resize(width, height)
        page.scheme(dark=dark)
        failure = page.call("Page.navigate", url=url).get("errorText")
        assert not failure, f"{url} cannot be opened: {failure}"
        page.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One command of the protocol; what comes meanwhile is noted in the page that it is of."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        self._socket.send(json.dumps(message if session is None else {**message, "sessionId": session}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                said = answer.get("error", {}).get("message", "")
                if said in _ON_ITS_WAY:
                    raise OnItsWay(f"{method}: {said}")
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            if answer.get("sessionId") in self._pages:
                self._pages[answer["sessionId"]].note(answer["method"], answer["params"])


class OnItsWay(AssertionError):
    """What was asked of a page that just then gave way to another one."""


class Page:
    """One page. url: its address. errors: what went wrong in it. requested: the addresses that it fetched."""

    def __init__(self, browser: Browser, session: str, url: str) -> None:
        self.url = url
        self.requested: list[str] = []
        self._browser = browser
        self._session = session
        self._errors: list[str] = []

    @property
    def errors(self) -> list[str]:
        """So far, in words."""
        self.evaluate("0")  # what has happened is told before this is answered
        return self._errors

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol, to this page."""
        return self._browser.call(method, self._session, **params)

    def note(self, event: str, params: dict[str, Any]) -> None:
        """What the browser tells of this page."""
        if event == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            thrown = params["exceptionDetails"]
            self._errors.append(thrown.get("exception", {}).get("description", thrown["text"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self._errors.append(" ".join(str(part.get("value", part.get("description"))) for part in params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self._errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())

    def evaluate(self, expression: str) -> Any:
        """What a JavaScript expression gives. Fails the test when it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float = TIMEOUT_S) -> Any:
        """What the expression gives once that is true."""
        deadline = time.monotonic() + timeout_s
        while not (found := self._evaluated(expression)):
            assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain for {expression}"
            time.sleep(0.05)
        return found

    def _evaluated(self, expression: str) -> Any:
        try:
            return self.evaluate(expression)
        except OnItsWay:
            return None

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element that matches, scrolled into view."""
        self.click_at(*self._middle(selector))

    def hover(self, selector: str) -> None:
        """Move the mouse there."""
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click_at(self, x: float, y: float) -> None:
        """Press the mouse at a point of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, *keys: str) -> None:
        """Press keys, by their names."""
        for key in keys:
            named = {"key": " " if key == "Space" else key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
            text = {"text": _TEXT[key]} if key in _TEXT else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **named, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def type(self, text: str) -> None:
        """Write a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def resize(self, width: int, height: int = 900) -> None:
        """Another size of the window, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, *, dark: bool) -> None:
        """What the reader prefers: dark or light."""
        preferred = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[preferred])

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def hard_to_read(self, least: float = 4.5) -> list[str]:
        """Visible texts whose contrast with what is behind them is below `least`: the text and its contrast."""
        found = self.evaluate(f"({_HARD_TO_READ})({least})")
        assert isinstance(found, list)
        return found

    def screenshot(self, file: Path) -> None:
        """Keep what it looks like, the whole page, as PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def _middle(self, selector: str) -> tuple[float, float]:
        x, y = self.evaluate(
            f"""(() => {{
                const element = document.querySelector({json.dumps(selector)});
                if (!element) throw new Error("there is no such element");
                element.scrollIntoView({{block: "center", inline: "center"}});
                const box = element.getBoundingClientRect();
                return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        return x, y


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium here to look at pages with (Debian: apt-get install chromium)")
    with Browser(program) as started:
        yield started


# WCAG 2.2: (L1 + 0.05) / (L2 + 0.05) of the relative luminances. Behind a text is the nearest background that is not
# transparent; behind one in an SVG the shape before it. Transparency in between is not reckoned with.
_HARD_TO_READ = r"""least => {
    const parts = colour => colour.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = element => {
        for (let at = element; at; at = at.parentElement) {
            const shape = at instanceof SVGElement && at.previousElementSibling;
            const colour = parts(shape ? getComputedStyle(shape).fill : getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] > 0.5) return colour;
        }
        return [255, 255, 255];
    };
    const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode.textContent.trim(), element = texts.currentNode.parentElement;
        if (!text || !element.checkVisibility({visibilityProperty: true}) || element.closest(":disabled")) continue;
        const style = getComputedStyle(element);
        const [dark, bright] = [light(parts(element instanceof SVGElement ? style.fill : style.color)),
            light(behind(element))].sort((a, b) => a - b);
        const contrast = (bright + 0.05) / (dark + 0.05);
        if (contrast < least) found.push(`${text.slice(0, 60)}: ${contrast.toFixed(2)}`);
    }
    return found;
}"""
