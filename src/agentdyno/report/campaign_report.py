"""What a campaign's folder gets: `comparison.json`, and the reports that are made of it."""

from __future__ import annotations

from agentdyno.contract.comparison import Comparison
from agentdyno.record.campaign_folder import CampaignFolder, strict_json
from agentdyno.record.checksums import renew_checksums
from agentdyno.report.comparison_csv import figures_csv
from agentdyno.report.comparison_html import comparison_page
from agentdyno.report.comparison_markdown import comparison_markdown

COMPARISON_FILE = "comparison.json"
REPORT_FILE = "report.html"


def write_report(folder: CampaignFolder, comparison: Comparison) -> None:
    """Write comparison.json, report.html, report.md and figures.csv, each whole or not at all.

    Raises OSError, and ValueError for NaN and the infinities, before anything is written.
    """
    texts = {
        COMPARISON_FILE: strict_json(comparison),
        REPORT_FILE: comparison_page(comparison),
        "report.md": comparison_markdown(comparison),
        "figures.csv": figures_csv(comparison),
    }
    for name, text in texts.items():
        folder.write_text(name, text)
    renew_checksums(folder.path, texts)
