"""What an audit finds: a file, the field in it, and a sentence with both values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is not as it must be. field: the name within the file, None when it is about the whole file."""

    file: str
    field: str | None
    sentence: str

    def __str__(self) -> str:
        where = self.file if self.field is None else f"{self.file}: {self.field}"
        return f"{where}: {self.sentence}"


@dataclass(slots=True)
class Audited:
    """What was looked at in one folder and what was found. notes: what could not be checked, or a reader should know.

    files: compared with their hashes. figures: values that were computed again and compared.
    """

    folder: Path
    files: int = 0
    figures: int = 0
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
