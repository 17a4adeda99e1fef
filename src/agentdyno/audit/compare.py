"""Two JSON documents field by field: what a file says against what the raw files give."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agentdyno.contract.errors import UserError

# Sums of a million floats may differ in their last digits with another processor's vector width.
RELATIVE = 1e-9
ABSOLUTE = 1e-12
_LONGEST = 120


class JsonError(UserError):
    """A file that is no strict JSON; the text names it."""


class Absent:
    """In the place of a value that is not there, which is not the same as null."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class Difference:
    """One field with both of its values; either may be ABSENT."""

    field: str
    stated: Any
    computed: Any

    def sentence(self, source: str) -> str:
        """source: what the computed value follows from."""
        return f"it says {shown(self.stated)}, but {source} give {shown(self.computed)}."


def strict_json(file: Path) -> Any:
    """Read strict JSON: no NaN, no infinity, no key twice in one object. Raises JsonError."""
    try:
        return json.loads(file.read_bytes(), parse_constant=_refuse_constant, object_pairs_hook=_once)
    except OSError as error:
        raise JsonError(f"{file.name} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise JsonError(f"{file.name} is not strict JSON: {error}.") from error


def differences(stated: Any, computed: Any, at: str = "") -> Iterator[Difference]:
    """Every field in which the two differ. Numbers are equal to within RELATIVE; the order of keys means nothing."""
    if isinstance(stated, dict) and isinstance(computed, dict):
        for name in dict.fromkeys([*computed, *stated]):
            inner = f"{at}.{name}" if at else str(name)
            yield from differences(stated.get(name, ABSENT), computed.get(name, ABSENT), inner)
    elif isinstance(stated, list) and isinstance(computed, list):
        for place in range(max(len(stated), len(computed))):
            ours, theirs = (each[place] if place < len(each) else ABSENT for each in (stated, computed))
            yield from differences(ours, theirs, f"{at}[{place}]")
    elif not _same(stated, computed):
        yield Difference(at, stated, computed)


def as_json(content: Any) -> Any:
    """What a file would hold of it, read back: structs as objects, tuples as lists."""
    return json.loads(json.dumps(msgspec.to_builtins(content)))


def count_values(document: Any) -> int:
    """How many single values a document holds."""
    if isinstance(document, dict):
        return sum(count_values(value) for value in document.values())
    if isinstance(document, list):
        return sum(count_values(value) for value in document)
    return 1


def shown(value: Any) -> str:
    """As it stands in the file, cut where it is long."""
    text = repr(value) if isinstance(value, Absent) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _same(stated: Any, computed: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (stated, computed))
    if numbers:
        return math.isclose(stated, computed, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(stated) is type(computed) and bool(stated == computed)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(
            f"a key stands twice in one object: {', '.join(sorted({name for name, _ in pairs}))[:_LONGEST]}"
        )
    return found
