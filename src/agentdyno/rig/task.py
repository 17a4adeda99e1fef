"""What is to be measured, how, and where it goes: the same for a run, a soak, a profile, a search and a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.record.folder import RunFolder
from agentdyno.rig.interruption import Interruption
from agentdyno.rig.options import BenchOptions


@dataclass(frozen=True, slots=True)
class Task:
    """interruption: entered already; a signal that it noted stops what is measured. folder: new, and takes it."""

    options: BenchOptions
    adapter: AdapterFolder
    variant: Variant
    folder: RunFolder
    interruption: Interruption


@contextmanager
def begun(options: BenchOptions, adapter: AdapterFolder, variant: Variant, label: str | None = None) -> Iterator[Task]:
    """Signals are noted from here on, and its folder is made. label: what the folder is called by, or else the
    variant's name. Raises FolderError.
    """
    with Interruption() as interruption:
        yield Task(options, adapter, variant, RunFolder.create(options.out, label or variant.name), interruption)
