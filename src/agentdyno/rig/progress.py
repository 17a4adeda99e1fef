"""Live progress of a run on stderr, from the reports that the load workers append."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from agentdyno.contract.run import Second

_TTY_INTERVAL_S = 0.5
_PLAIN_INTERVAL_S = 5.0
_decode = msgspec.json.Decoder(Second).decode


class LiveLoad:
    """Follows seconds-<worker>.jsonl in a folder and shows the sum over workers: a line that renews itself on a
    terminal, a line every few seconds elsewhere.
    """

    def __init__(self, folder: Path, total_s: float, title: str = "") -> None:
        """title: in place of the stage's name."""
        self._title = title
        self._folder = folder
        self._total_s = total_s
        self._offsets: dict[Path, int] = {}
        self._latest: dict[Path, Second] = {}
        self._shown: tuple[float, int] = (0.0, 0)
        self._tty = sys.stderr.isatty()
        self._next = time.monotonic()

    def show(self) -> None:
        """Read what is new and, when it is time, show it."""
        self._read()
        if not self._latest or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (_TTY_INTERVAL_S if self._tty else _PLAIN_INTERVAL_S)
        text = self._line()
        sys.stderr.write(f"\r\x1b[2K{text}" if self._tty else f"{text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Leave the terminal on a fresh line."""
        if self._tty and self._latest:
            sys.stderr.write("\n")

    def _read(self) -> None:
        for file in self._folder.glob("seconds-*.jsonl"):
            with file.open("rb") as lines:
                lines.seek(self._offsets.get(file, 0))
                new = lines.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._offsets[file] = self._offsets.get(file, 0) + len(whole)
            for line in whole.splitlines():
                self._latest[file] = _decode(line)

    def _line(self) -> str:
        now = list(self._latest.values())
        p50, p99 = (_worst([getattr(s, name) for s in now]) for name in ("p50_ms", "p99_ms"))
        counts = {n: sum(getattr(s, n) for s in now) for n in ("ok", "failed", "timeout", "rejected", "dropped")}
        elapsed_s = max(s.elapsed_s for s in now)
        arrivals = sum(s.arrivals for s in now)
        since_s, since = elapsed_s - self._shown[0], arrivals - self._shown[1]
        rate = f"{since / since_s:.0f}/s" if since_s > 0 else "-"
        self._shown = (elapsed_s, arrivals)
        bad = " ".join(f"{name} {count}" for name, count in counts.items() if name != "ok" and count)
        where = f"{self._title or now[0].stage:8} {elapsed_s:4.0f}/{self._total_s:.0f} s"
        return (
            f"{where}  {rate}  ok {counts['ok']}  {bad or 'no errors'}  "
            f"in flight {sum(s.in_flight for s in now)}  p50 {p50}  p99 {p99}"
        )


def _worst(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):.1f} ms" if known else "-"
