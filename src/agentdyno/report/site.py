"""The index of published campaigns: one page over a folder of them, with relative links to their reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Comparison
from agentdyno.contract.errors import UserError
from agentdyno.report.campaign_report import COMPARISON_FILE, REPORT_FILE
from agentdyno.report.comparison_table import HeadlineTable, headline
from agentdyno.report.comparison_words import load_title, title, verdict
from agentdyno.report.facts import machine_sentence, period
from agentdyno.report.page import page

INDEX_FILE = "index.html"


class SiteError(UserError):
    """A folder of campaigns that cannot be listed; the text names the file."""


@dataclass(frozen=True, slots=True)
class Published:
    """One campaign of the index. folder: its name, which the link to its report begins with."""

    folder: str
    comparison: Comparison
    title: str
    when: str
    machine: str
    sentences: tuple[str, ...]
    table: HeadlineTable | None
    table_title: str


def write_site(root: Path) -> Path:
    """Write `root`/index.html, the newest campaign first, and return its path.

    Raises SiteError when there is no such folder, or a comparison in it cannot be read.
    """
    if not root.is_dir():
        raise SiteError(f"{root} is no folder. Name the one that holds the published campaigns: agentdyno site reports")
    found = sorted((_published(file) for file in root.glob(f"*/{COMPARISON_FILE}")), key=_order, reverse=True)
    index = root / INDEX_FILE
    try:
        index.write_text(page("site.html", campaigns=found, report=REPORT_FILE), encoding="utf-8")
    except OSError as error:
        raise SiteError(f"{index} cannot be written: {error.strerror}.") from error
    return index


def _order(published: Published) -> tuple[str, str]:
    return published.comparison.started_utc, published.folder


def _published(file: Path) -> Published:
    if not file.with_name(REPORT_FILE).is_file():
        raise SiteError(f"{file.parent} has no {REPORT_FILE}. Write it with: agentdyno report {file.parent}")
    try:
        comparison = msgspec.json.decode(file.read_bytes(), type=Comparison)
    except (OSError, msgspec.MsgspecError) as error:
        text = f"{file} cannot be read ({error}). Write it anew with: agentdyno report {file.parent}"
        raise SiteError(text) from error
    tables = {load: table for load in LoadName if (table := headline(comparison, load)) is not None}
    load = next(iter(tables), LoadName.STEADY)
    return Published(
        folder=file.parent.name,
        comparison=comparison,
        title=title(comparison),
        when=period(comparison),
        machine=machine_sentence(comparison),
        sentences=tuple(verdict(comparison)),
        table=tables.get(load),
        table_title=load_title(load, comparison),
    )
