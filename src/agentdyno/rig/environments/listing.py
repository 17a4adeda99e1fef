"""The table of frameworks that `agentdyno list` prints."""

from __future__ import annotations

from pathlib import Path

from agentdyno.contract.adapter import AdapterFolder, Variant, find_variants
from agentdyno.rig.environments.environment import ROOT, adapter_environment, state
from agentdyno.rig.environments.frameworks import adapters_root
from agentdyno.rig.environments.locks import locked_version

_HEADINGS = ("NAME", "VERSION", "APPROACH", "PLANS WITH", "LLM CALLS", "ENVIRONMENT", "TITLE")


def framework_table(root: Path = ROOT) -> str:
    """One line for each variant, in columns, with a heading. Raises AdapterError for a broken folder."""
    variants = find_variants(adapters_root(root))
    rows = [_HEADINGS, *(_row(folder, variant, root) for folder, variant in variants.values())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _row(folder: AdapterFolder, variant: Variant, root: Path) -> tuple[str, ...]:
    environment = adapter_environment(folder.path, root)
    version = locked_version(environment.lock, variant.distribution) if variant.distribution else None
    calls = "any" if variant.llm_calls is None else str(variant.llm_calls)
    built = str(state(environment)) if environment.lock.exists() else "no lock"
    return (variant.name, version or "-", variant.approach, variant.plans_with, calls, built, variant.title)
