"""The frameworks that the checkout knows, by the names that FRAMEWORK= accepts."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from agentdyno.contract.adapter import AdapterError, AdapterFolder, Variant, find_variants
from agentdyno.rig.environments.environment import (
    NATIVE_SUFFIX,
    ROOT,
    Environment,
    adapter_environment,
    native_environment,
)

# Names the folder that holds the adapter folders, when that is not the checkout's own.
ADAPTERS_VARIABLE = "AGENTDYNO_ADAPTERS"


class UnknownFramework(AdapterError):
    """A name that no adapter folder declares; the text offers the nearest ones and the list."""


def adapters_root(root: Path = ROOT) -> Path:
    """The folder that holds the adapter folders: the checkout's, or the one that the environment names."""
    elsewhere = os.environ.get(ADAPTERS_VARIABLE)
    return Path(elsewhere).absolute() if elsewhere else root / "adapters"


def resolve(name: str, root: Path = ROOT) -> tuple[AdapterFolder, Variant]:
    """The folder and variant that `name` stands for.

    Raises UnknownFramework when there is none, AdapterError when an adapter folder breaks the rules.
    """
    variants = find_variants(adapters_root(root))
    if name not in variants:
        raise unknown(name, variants, root)
    return variants[name]


def unknown(name: str, known: Iterable[str], root: Path = ROOT) -> UnknownFramework:
    """The error for a name that is not among `known`."""
    names = sorted(known)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    question = f" Did you mean {' or '.join(near)}?" if near else ""
    there = f"There are: {', '.join(names)}." if names else f"There are none in {adapters_root(root)}."
    return UnknownFramework(f"There is no framework {name!r}.{question} {there}")


def resolve_folder(name: str, root: Path = ROOT) -> Path:
    """The adapter folder that `name` stands for, be it a folder's own name or that of a variant.

    A folder counts from the moment it has a requirements.in, so that a lock can come before the adapter.
    Raises like `resolve`.
    """
    named = adapters_root(root) / name
    if "/" not in name and (named / "requirements.in").is_file():
        return named
    variants = find_variants(adapters_root(root))
    if name not in variants:
        raise unknown(name, {*variants, *(folder.name for folder in all_folders(root))}, root)
    return variants[name][0].path


def environment_of(name: str, root: Path = ROOT) -> Environment:
    """The environment that `name` stands for: a folder's or a variant's; with `-native` behind it, that of its own
    instrumentation. Raises like `resolve`.
    """
    if name.endswith(NATIVE_SUFFIX):
        return native_environment(resolve_folder(name.removesuffix(NATIVE_SUFFIX), root), root)
    return adapter_environment(resolve_folder(name, root), root)


def all_folders(root: Path = ROOT) -> list[Path]:
    """Every adapter folder, sorted by name."""
    return sorted(file.parent for file in adapters_root(root).glob("*/requirements.in"))
