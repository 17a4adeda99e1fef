"""`SHA256SUMS`: the hash of every file that a run or a campaign kept, in the form that `sha256sum -c` reads.

Written last, whole or not at all, sorted by name, so that its own bytes follow from the folder and a changed byte in it
is found like one in any other file. It finds damage and careless edits. Whoever changes a file and this list with it is
found by recomputing the figures, or by comparing the list with one that was published.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

CHECKSUMS_FILE = "SHA256SUMS"
RUNS_FOLDER = "runs"


def write_checksums(folder: Path) -> None:
    """Write the list for a run folder (all of its files) or a campaign's (its own files and its runs' lists).

    Raises OSError; then nothing has changed.
    """
    _write(folder, listing(folder))


def renew_checksums(folder: Path, names: Iterable[str]) -> None:
    """Put the hashes of these files, which were made anew, in the place of those that the list has; the others stay as
    they are, so that a report that is written again hides no change of what it was made of. Nothing is written where
    there is no list. Raises OSError.
    """
    listed = read_checksums(folder)
    if listed is None:
        return
    listed |= {name: file_sha256(folder / name) for name in names}
    _write(folder, b"".join(_line(listed[name], name) for name in sorted(listed)))


def _write(folder: Path, content: bytes) -> None:
    partial = folder / f"{CHECKSUMS_FILE}.partial"
    try:
        partial.write_bytes(content)
        partial.replace(folder / CHECKSUMS_FILE)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def listing(folder: Path) -> bytes:
    """What the list of the folder as it is now has to hold. Raises OSError."""
    return b"".join(_line(file_sha256(folder / name), name) for name in kept_files(folder))


def kept_files(folder: Path) -> list[str]:
    """The files that the list is of, relative to the folder, with slashes, sorted.

    In a campaign's folder each run stands for itself: its own list is one of the campaign's files.
    """
    names = (file.relative_to(folder) for file in _files(folder))
    return sorted(name.as_posix() for name in names if name.as_posix() != CHECKSUMS_FILE and not _of_a_run(name))


def file_sha256(file: Path) -> str:
    """SHA-256 of a file's content, 64 hex digits. Raises OSError."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read_checksums(folder: Path) -> dict[str, str] | None:
    """Hash by name as the list has them, None where there is no list. Lines that are none are left out: whoever
    compares with `listing` finds them. Raises OSError.
    """
    file = folder / CHECKSUMS_FILE
    if not file.is_file():
        return None
    lines = file.read_bytes().decode("utf-8", errors="replace").splitlines()
    return {name: digest for digest, gap, name in (line.partition("  ") for line in lines) if gap}


def checksum_faults(folder: Path) -> list[tuple[str, str]]:
    """Each file that is not as the list says, with a sentence. Raises OSError."""
    try:
        listed = read_checksums(folder)
        if listed is None:
            return [(CHECKSUMS_FILE, f"There is no {CHECKSUMS_FILE}: whether a file was changed cannot be told.")]
        now = {name: file_sha256(folder / name) for name in kept_files(folder)}
        stated = (folder / CHECKSUMS_FILE).read_bytes()
    except OSError as error:
        return [(error.filename or str(folder), f"It cannot be read: {error.strerror}.")]
    found = list(_differences(listed, now))
    if not found and stated != b"".join(_line(digest, name) for name, digest in now.items()):
        found.append((CHECKSUMS_FILE, "It is not as it was written: it has other lines, or others of them twice."))
    return found


def _differences(listed: dict[str, str], now: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted(listed.keys() | now.keys()):
        if name not in now:
            yield name, f"{CHECKSUMS_FILE} lists it, but it is not there."
        elif name not in listed:
            yield name, f"It is there, but {CHECKSUMS_FILE} does not list it."
        elif listed[name] != now[name]:
            yield name, f"Its SHA-256 is {now[name]}, but {CHECKSUMS_FILE} has {listed[name]}: it was changed."


def _line(digest: str, name: str) -> bytes:
    return f"{digest}  {name}\n".encode("utf-8", errors="surrogateescape")


def _files(folder: Path) -> Iterable[Path]:
    return (
        file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(f"{CHECKSUMS_FILE}.partial")
    )


def _of_a_run(name: Path) -> bool:
    return name.parts[0] == RUNS_FOLDER and len(name.parts) > 1 and name.parts[2:] != (CHECKSUMS_FILE,)
