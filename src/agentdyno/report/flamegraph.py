"""A heap profile as one HTML page that holds all it needs: a flame graph to click through, search and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from agentdyno.analysis.heap import Attribution, Kind, Package
from agentdyno.contract.pprof import (
    ALLOC_OBJECTS,
    ALLOC_SPACE,
    INUSE_OBJECTS,
    INUSE_SPACE,
    Frame,
    Profile,
    Sample,
    Stack,
)

_TEMPLATE = Path(__file__).with_name("flamegraph.html")
_ROOT = Frame("all", "", 0)


@dataclass(frozen=True, slots=True)
class _View:
    """One figure to draw by: what it is called, its unit, and its value in a sample (0: not drawn)."""

    title: str
    unit: str
    value: Callable[[Sample], int]


def snapshot_page(profile: Profile, attribution: Attribution, framework: str, place: str) -> str:
    """The page of one snapshot. place: where in the run it stands, in words."""
    titles = {
        INUSE_SPACE: "In use",
        INUSE_OBJECTS: "Objects in use",
        ALLOC_SPACE: "Allocated",
        ALLOC_OBJECTS: "Objects allocated",
    }
    views = [_View(title, type_[1], _column(profile, type_, 1)) for type_, title in titles.items()]
    when = datetime.fromtimestamp(profile.time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return _page(f"{framework}: heap at {place}", when, profile, views, attribution)


def difference_page(growth: Profile, attribution: Attribution, framework: str, seconds: float) -> str:
    """The page of a difference, first to last: what grew, and apart from it what shrank."""
    views = [
        _View(f"{word} {noun}".strip(), type_[1], _column(growth, type_, sign))
        for type_, noun in ((INUSE_SPACE, ""), (INUSE_OBJECTS, "by objects"))
        for word, sign in (("Grew", 1), ("Shrank", -1))
    ]
    net = f"net {growth.total(INUSE_SPACE) / 1e6:+.2f} MB in use, {growth.total(INUSE_OBJECTS):+,} objects"
    return _page(f"{framework}: growth of the heap in {seconds:.0f} s", net, growth, views, attribution)


def _column(profile: Profile, type_: tuple[str, str], sign: int) -> Callable[[Sample], int]:
    at = profile.types.index(type_)
    return lambda sample: max(0, sign * sample.values[at])


def _page(title: str, subtitle: str, profile: Profile, views: Sequence[_View], attribution: Attribution) -> str:
    data = {
        "views": [{"title": view.title, "unit": view.unit} for view in views],
        "kinds": [kind.value for kind in Kind],
        "passes_on": list(Kind).index(Kind.LIBRARY),
        **_tree(profile, views, attribution),
    }
    # No name can then end the script element, or open a comment in it.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    notes = " ".join([*profile.comments, "Only what Python's own allocators gave out: no memory of native libraries."])
    parts = {"title": title, "subtitle": subtitle, "notes": notes}
    page = _TEMPLATE.read_text(encoding="utf-8")
    for name, part in parts.items():
        page = page.replace(f"{{{{{name}}}}}", escape(part))
    return page.replace("{{data}}", text)


def _tree(profile: Profile, views: Sequence[_View], attribution: Attribution) -> dict[str, Any]:
    """The stacks, root first, as one tree: frames by number, a node as [frame, values, children]."""
    numbers: dict[tuple[Frame, Package], int] = {}
    root: list[Any] = [0, [0] * len(views), {}]
    numbers[_ROOT, Package("", Kind.OTHER)] = 0
    for sample in profile.samples:
        values = [view.value(sample) for view in views]
        if not any(values):
            continue
        node = root
        _add(node[1], values)
        for frame in reversed(_for_people(sample.stack)):
            number = numbers.setdefault((frame, attribution.package(frame.file)), len(numbers))
            node = node[2].setdefault(number, [number, [0] * len(views), {}])
            _add(node[1], values)
    frames = [
        [frame.function or "(interpreter)", frame.file, package.name, list(Kind).index(package.kind)]
        for frame, package in numbers
    ]
    return {"frames": frames, "root": _listed(root)}


def _for_people(stack: Stack) -> Stack:
    """A function is one box, whichever of its lines ran; the five calls of every import are none, but for a leaf."""
    return tuple(
        Frame(frame.function, frame.file, 0)
        for at, frame in enumerate(stack)
        if at == 0 or not frame.file.startswith("<frozen importlib")
    )


def _add(to: list[int], values: list[int]) -> None:
    for at, value in enumerate(values):
        to[at] += value


def _listed(root: list[Any]) -> list[Any]:
    """The same with children as lists, in place; without recursion, as stacks may be deep."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        node[2] = list(node[2].values())
        waiting += node[2]
    return root
