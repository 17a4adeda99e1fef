"""The campaign's folder: `campaign.json`, the runs under `runs/`, and what is made of them beside it."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from agentdyno.contract.campaign import Campaign
from agentdyno.record.folder import FolderError

CAMPAIGN_FILE = "campaign.json"


class CampaignFolder:
    """One campaign's folder: `<utc>-<id>`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, parent: Path) -> CampaignFolder:
        """Make a new, empty one under `parent`. Raises FolderError."""
        path = parent / f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{secrets.token_hex(3)}"
        try:
            (path / "runs").mkdir(parents=True)
        except OSError as error:
            text = f"The campaign folder {path} cannot be made: {error.strerror}. Name another parent folder with OUT=."
            raise FolderError(text) from error
        return cls(path)

    @property
    def campaign_id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def runs(self) -> Path:
        """Where its run folders are."""
        return self.path / "runs"

    def run(self, run_id: str) -> Path:
        """One run's folder."""
        return self.runs / run_id

    def read(self) -> Campaign:
        """Its `campaign.json`. Raises FolderError when there is none, or it is of another version."""
        file = self.path / CAMPAIGN_FILE
        try:
            return msgspec.json.decode(file.read_bytes(), type=Campaign)
        except OSError as error:
            text = f"{self.path} is no campaign's folder: {CAMPAIGN_FILE} cannot be read ({error.strerror})."
            raise FolderError(text) from error
        except msgspec.MsgspecError as error:
            raise FolderError(f"{file} is not what this version writes: {error}.") from error

    def write(self, campaign: Campaign) -> None:
        """Write `campaign.json` whole or not at all. Raises OSError."""
        self.write_text(CAMPAIGN_FILE, strict_json(campaign))

    def write_text(self, name: str, text: str) -> None:
        """Write `name` whole or not at all. Raises OSError."""
        partial = self.path / f"{name}.partial"
        try:
            partial.write_bytes(text.encode("utf-8", errors="replace"))
            partial.replace(self.path / name)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def strict_json(content: Any) -> str:
    """Strict JSON, keys in the order given. Raises ValueError for NaN and the infinities, which JSON does not have."""
    return json.dumps(msgspec.to_builtins(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
