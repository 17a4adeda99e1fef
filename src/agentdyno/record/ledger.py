"""The recorder's ledger, as a file beside what it kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from agentdyno.contract.trace import RecorderLedger

_FILE = "recorder.json"


def write_ledger(folder: Path, ledger: RecorderLedger) -> None:
    """The recorder's last word, whole or not at all. Raises OSError."""
    partial = folder / f"{_FILE}.partial"
    try:
        partial.write_bytes(msgspec.json.encode(ledger) + b"\n")
        partial.replace(folder / _FILE)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_ledger(folder: Path) -> RecorderLedger | None:
    """What the recorder of a folder said at its end; None when it did not come to that."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=RecorderLedger)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
