"""Are the images made of what is here? By the hash of each source file, and of each lock, in containers that run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from agentdyno.cluster.programs import SOURCES, Container
from agentdyno.contract.run import Finding, Reason
from agentdyno.rig.environments.environment import (
    ROOT,
    Environment,
    Facts,
    Stamp,
    adapter_environment,
    lock_sha256,
    rig_environment,
)

IN_IMAGE = "/opt/agentdyno"
STAMP = "venv/agentdyno-stamp.json"
_PROGRAM, _LOCUSTFILES = "src/agentdyno", "locustfiles"
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Image:
    """What an image must hold: these folders of the checkout, and what a lock says."""

    name: str
    folders: tuple[str, ...]
    environment: Environment


def host_image(adapter: Path) -> Image:
    """The measured one of an adapter's folder."""
    folders = (_PROGRAM, f"adapters/{adapter.name}")
    return Image(f"the host's image ({adapter.name})", folders, adapter_environment(adapter))


def rig_image() -> Image:
    """Of load, recorder and sampler."""
    return Image("the rig's image", (_PROGRAM, _LOCUSTFILES), rig_environment())


def mock_image() -> Image:
    """The scripted LLM's, which has the control's lock."""
    return Image("the mock LLM's image", (_PROGRAM,), adapter_environment(ROOT / "adapters" / "bare"))


def differences(where: Container, image: Image) -> Iterator[Finding]:
    """What a running container has otherwise than this checkout: each makes the run invalid. Raises KubeError."""
    changed = [name for folder in image.folders for name in _changed(where, folder)]
    if changed:
        more = f", and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        text = (
            f"In {where.name} {image.name} was built from other sources than those here "
            f"({', '.join(changed[:_NAMED])}{more}). Build it again: make images"
        )
        yield Finding(Reason.ENVIRONMENT_DIFFERS, text)
    built, own = facts(where).lock_sha256, lock_sha256(image.environment)
    if built != own:
        text = (
            f"In {where.name} {image.name} was built from another lock ({built[:12]}...) than "
            f"{image.environment.lock.relative_to(ROOT)} here ({own[:12]}...). Build it again: make images"
        )
        yield Finding(Reason.ENVIRONMENT_DIFFERS, text)


def facts(where: Container, stamp: str = f"{IN_IMAGE}/{STAMP}") -> Facts:
    """Of the environment that an image was built with, by its stamp."""
    found = msgspec.json.decode(where.read(stamp), type=Stamp)
    return Facts(found.python, found.lock_sha256, len(found.distributions), found.disk_mb, found.distributions)


def _changed(where: Container, folder: str) -> Sequence[str]:
    """Files of a folder that are not in the image as they are here."""
    here, there = ROOT / folder, where.sources(f"{IN_IMAGE}/{folder}")
    files = (file for file in here.rglob("*") if file.suffix in SOURCES)
    own = {str(file.relative_to(here)): sha256(file.read_bytes()).hexdigest() for file in files}
    return sorted(f"{folder}/{name}" for name in own.keys() | there.keys() if own.get(name) != there.get(name))
