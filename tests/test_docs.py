"""The documents say what the code says: links lead somewhere, and no option, code, file or floor is left out."""

import re
from pathlib import Path

import pytest

from agentdyno.analysis import verdict
from agentdyno.analysis.metrics import METRICS
from agentdyno.analysis.percentiles import samples_needed
from agentdyno.contract.adapter import find_variants
from agentdyno.contract.run import ExitCode, Outcome, Reason
from agentdyno.load import verify
from agentdyno.rig.environments.locks import locked_version

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
METHODOLOGY = (ROOT / "METHODOLOGY.md").read_text(encoding="utf-8")
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(file for part in ("adapters", "k8s", "otel", "src") for file in (ROOT / part).rglob("*.md")),
]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# Whoever writes a file of the run folder names it there, whole or by the role of the child process whose log it is.
_FILE = re.compile(
    r'\b(?:write_json|_write_parquet|_replace)[(,]\s*"([\w.-]+)"|"logs" / "([\w.-]+)"|\.log\("([\w-]+)"\)'
)


def links(file: Path) -> list[str]:
    return [link for link in _LINK.findall(_FENCE.sub("", file.read_text(encoding="utf-8"))) if "://" not in link]


def anchors(file: Path) -> set[str]:
    """A heading's anchor as Git hosts make it: lower case, no punctuation, dashes for spaces."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", file.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(document: str, heading: str) -> dict[str, list[str]]:
    """The cells of the tables under a heading, by the first cell without its back-ticks."""
    part = re.split(rf"^#+ {re.escape(heading)}$", document, flags=re.MULTILINE)[1]
    part = re.split(r"^#+ ", part, flags=re.MULTILINE)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells}


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file: Path) -> None:
    broken = []
    for link in links(file):
        name, _, anchor = link.partition("#")
        target = file.parent / name if name else file
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_the_documents_are_there_and_linked() -> None:
    assert {file.name for file in DOCUMENTS} >= {"README.md", "METHODOLOGY.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    assert {"METHODOLOGY.md", "CONTRIBUTING.md", "adapters/README.md"} <= set(links(ROOT / "README.md"))


def test_every_option_of_the_bench_is_in_the_table() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = makefile.partition("BENCH_OPTIONS := ")[2].partition("\nbench_OPTIONS")[0].replace("\\", "").split()
    table = rows(README, "Options of `make bench`")
    assert options
    assert set(table) - {"option", "---"} == set(options)


def test_every_reason_code_is_explained_where_it_belongs() -> None:
    reasons, notes = (set(rows(METHODOLOGY, heading)) - {"code", "---"} for heading in ("Reasons", "Notes"))
    assert reasons == {code.value for code in Reason if code not in verdict._NOTES}
    assert notes == {code.value for code in Reason if code in verdict._NOTES}


def test_thresholds_are_those_of_the_verdict() -> None:
    reasons, notes = rows(METHODOLOGY, "Reasons"), rows(METHODOLOGY, "Notes")
    assert f"larger of {verdict.LATE_SHARE_MAX:.0%}".replace("%", " %") in reasons["generator_late"][0]
    assert f"and {verdict.LATE_ALWAYS_ALLOWED} were" in reasons["generator_late"][0]
    assert f"more than {verdict.LATE_MS:g} ms" in reasons["generator_late"][0]
    assert f"more than {verdict.GENERATOR_CPU_MAX_PERCENT:g} %" in reasons["generator_cpu"][0]
    assert f"more than {verdict.LITTLE_TOLERANCE * 100:g} %" in reasons["littles_law"][0]
    assert f"more than {verdict.LITTLE_FLOOR * verdict.LITTLE_TOLERANCE:g})" in reasons["littles_law"][0]
    assert f"more than {verdict.OVERLOAD_SHARE * 100:g} %" in notes["overloaded"][0]
    assert f"more than {verdict.THROTTLED_SHARE * 100:g} %" in notes["throttled"][0]
    assert f"more than {verdict.NOISY_SHARE * 100:g} %" in notes["noisy"][0]


def test_every_outcome_and_reason_of_a_failure_is_explained() -> None:
    assert set(rows(METHODOLOGY, "Outcomes")) - {"outcome", "---"} == {outcome.value for outcome in Outcome}
    reasons = {value for name, value in vars(verify).items() if name.isupper() and isinstance(value, str)}
    reasons.discard(verify.TOKEN_PATTERN)
    assert set(rows(METHODOLOGY, "Proof of work")) - {"reason", "---"} == reasons


def test_every_exit_code_is_in_the_table() -> None:
    assert set(rows(README, "Exit codes")) - {"code", "---"} == {str(code.value) for code in ExitCode}


def test_floors_are_those_that_percentiles_keep() -> None:
    table = rows(METHODOLOGY, "Percentiles")
    for name in ("p50", "p90", "p95", "p99", "p99.9"):
        assert int(table[name][0]) == samples_needed(float(name[1:]) / 100), name


def test_every_file_of_a_run_folder_is_named() -> None:
    sources = [file for part in ("record", "rig") for file in (ROOT / "src" / "agentdyno" / part).rglob("*.py")]
    found = [groups for file in sources for groups in _FILE.findall(file.read_text(encoding="utf-8"))]
    written = {whole or log or f"{role}.log" for whole, log, role in found} | {"generator.log", "coordinator.log"}
    assert {
        "manifest.json",
        "summary.json",
        "requests.parquet",
        "spans.parquet",
        "host.log",
        "host-metrics.txt",
    } <= written
    table = " ".join(f"{name} {' '.join(cells)}" for name, cells in rows(README, "What a run folder holds").items())
    assert [name for name in sorted(written) if name not in table] == []


def test_the_frameworks_are_those_that_there_are() -> None:
    table = rows(README, "Frameworks")
    variants = find_variants(ROOT / "adapters")
    assert set(table) - {"FRAMEWORK=", "---"} == set(variants)
    for name, (folder, variant) in variants.items():
        version, _, plans_with, calls = table[name]
        locked = (
            locked_version(folder.path / "requirements.lock", variant.distribution) if variant.distribution else None
        )
        assert version.split()[-1] == (locked or "-"), name
        assert calls == str(variant.llm_calls), name
        assert plans_with.split()[-1].lower() in variant.plans_with, name


def test_the_output_that_is_shown_has_the_lines_of_today() -> None:
    shown = rows_of_output()
    assert [metric.title for metric in METRICS if not any(line.startswith(f"{metric.title}  ") for line in shown)] == []
    assert "Verdict: valid" in shown


def rows_of_output() -> list[str]:
    return README.partition("## What a bench prints")[2].partition("## ")[0].splitlines()
