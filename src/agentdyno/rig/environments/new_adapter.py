"""A new adapter folder from the template beside this module."""

from __future__ import annotations

import re
from pathlib import Path

from agentdyno.contract.adapter import AdapterError, find_variants
from agentdyno.rig.environments.environment import RIG, ROOT, SetupError, adapter_environment, shown
from agentdyno.rig.environments.frameworks import adapters_root
from agentdyno.rig.environments.locks import adapter_requirements, write_lock

_TEMPLATE = Path(__file__).with_name("template")
_PLACEHOLDER = "my-framework"
_CLASS = "MyFramework"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def create(name: str, root: Path = ROOT) -> str:
    """Make adapters/`name` with its lock; returns what to do next, in words.

    Raises AdapterError for a name that is malformed or taken. Without a package index the folder stays, without
    its lock, and the text says so.
    """
    folder = adapters_root(root) / name
    if not _NAME.fullmatch(name) or name == RIG:
        raise AdapterError(
            f"{name!r} cannot be a framework's name: use lower-case letters, digits and single dashes, "
            f"beginning with a letter, and not {RIG!r}."
        )
    if folder.exists() or name in find_variants(adapters_root(root)):
        raise AdapterError(f"There is already a framework {name!r}; choose another name.")
    folder.mkdir(parents=True)
    for file in sorted(path for path in _TEMPLATE.iterdir() if path.is_file()):
        text = file.read_text(encoding="utf-8")
        text = text.replace(_PLACEHOLDER, name).replace(_CLASS, "".join(part.capitalize() for part in name.split("-")))
        (folder / file.name).write_text(text, encoding="utf-8")
    try:
        write_lock(adapter_environment(folder, root), adapter_requirements(folder, root))
        lock = ""
    except SetupError as error:
        lock = f"Its lock could not be made yet ({error}); when the index can be reached: make lock FRAMEWORK={name}\n"
    where = shown(folder, root)
    return (
        f"Made {where}, which works as it is. {lock}Next:\n"
        f"  make verify FRAMEWORK={name}     the conformance test, in words\n"
        f"  edit {where}/requirements.in and adapter.py at the TODO marks\n"
        f"  make lock FRAMEWORK={name}       pin what requirements.in names\n"
        f"  make bench FRAMEWORK={name}      measure it\n"
    )
