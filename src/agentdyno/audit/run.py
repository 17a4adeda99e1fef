"""The audit of one run folder: hashes, what was asked for, and every figure computed again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agentdyno.analysis.capacity import RESULT_FILE as CAPACITY
from agentdyno.analysis.capacity import STEPS_FOLDER, read_result
from agentdyno.analysis.figures import run_queue_waits_ms
from agentdyno.analysis.growth import RESULT_FILE as SOAK
from agentdyno.analysis.growth import growth
from agentdyno.analysis.heap import Attribution, top
from agentdyno.analysis.run_data import RunData, read_run
from agentdyno.analysis.summary import summarise
from agentdyno.analysis.sweep import RESULT_FILE as SWEEP
from agentdyno.analysis.sweep import read_sweep
from agentdyno.audit.compare import ABSENT, as_json, count_values, differences, strict_json
from agentdyno.audit.fault import Audited, Fault
from agentdyno.audit.invariants import MANIFEST, SUMMARY, plan_faults, result_faults
from agentdyno.audit.locks import audit_lock
from agentdyno.contract.errors import UserError
from agentdyno.contract.summary import Summary
from agentdyno.record.checksums import CHECKSUMS_FILE, checksum_faults, kept_files
from agentdyno.record.heap_folder import HEAP_FOLDER, read_index, read_profile
from agentdyno.record.manifest import Manifest, Status, source_commit
from agentdyno.report.run_html import REPORT_FILE, run_page
from agentdyno.rig.cold import RESULT_FILE as COLD
from agentdyno.rig.cold import Cold, spreads
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.soak import Soak, drained_points

TOP_TENS = f"{HEAP_FOLDER}/top10.json"
# Folders of several runs in a row, whose result is computed from what each of them left.
_SEARCHES: dict[str, Callable[[Path], Any]] = {CAPACITY: read_result, SWEEP: read_sweep}
_RAW = "the raw files"


def audit_run(folder: Path) -> Audited:
    """Audit one run folder. Never raises for what is in it: a file that cannot be read is a fault."""
    found = Audited(folder)
    audit_checksums(found)
    if (folder / SOAK).is_file():
        try_step(found, SOAK, lambda: _audit_soak(folder, found))
        return found
    if (folder / COLD).is_file():
        try_step(found, COLD, lambda: _audit_cold(folder, found))
        return found
    for file, computed in _SEARCHES.items():
        if (folder / file).is_file():
            try_step(found, file, partial(_audit_search, folder, found, file, computed))
            for step in sorted((folder / STEPS_FOLDER).glob(f"*/{SUMMARY}")):
                name = step.relative_to(folder).as_posix()
                try_step(found, name, partial(_audit_step, step.parent, found, name))
            return found
    try_step(found, None, lambda: _audit_records(folder, found))
    if (folder / TOP_TENS).is_file():
        try_step(found, TOP_TENS, lambda: _audit_heap(folder, found))
    return found


def audit_checksums(found: Audited) -> None:
    """Compare each file of the folder with its hash."""
    found.faults += [Fault(file, None, sentence) for file, sentence in checksum_faults(found.folder)]
    found.files += len(kept_files(found.folder))


def try_step(found: Audited, file: str | None, step: Callable[[], None]) -> None:
    """Do one step of an audit; a file that breaks it is a fault. file: which it is about, None: the raw files."""
    try:
        step()
    except UserError as error:
        found.faults.append(Fault(file or "raw files", None, str(error)))
    except msgspec.MsgspecError as error:
        text = f"it is not what this version writes: {error}."
        found.faults.append(Fault(file or "raw files", None, text))
    except Exception as error:  # a changed byte in a raw file can break any of the code that reads it
        text = f"it cannot be computed again from the files as they are ({type(error).__name__}: {error})."
        found.faults.append(Fault(file or "raw files", None, text))


def _audit_records(folder: Path, found: Audited) -> None:
    data = read_run(folder)
    manifest = data.manifest
    if manifest.status is Status.RUNNING:
        found.notes.append("The manifest says that the run is still going on, or was killed.")
    found.faults += plan_faults(data)
    audit_lock(manifest, found)
    if manifest.run_id != folder.name:
        found.notes.append(f"The folder was renamed: its manifest calls the run {manifest.run_id}.")
    _audit_summary(data, found)
    _audit_page(data, found)
    if manifest.run_queue_wait_ms:
        waits = run_queue_waits_ms(data)
        compare_figures(found, MANIFEST, as_json(manifest.run_queue_wait_ms), waits, "run_queue_wait_ms")


def _audit_summary(data: RunData, found: Audited, name: str = SUMMARY) -> None:
    """name: of the file, from the folder that is audited."""
    stated = strict_json(data.path / SUMMARY)
    compare_figures(found, name, stated, summarise(data))
    within = name.removesuffix(SUMMARY)
    faults = result_faults(data, msgspec.convert(stated, Summary))
    found.faults += [Fault(within + fault.file, fault.field, fault.sentence) for fault in faults]


def _audit_step(folder: Path, found: Audited, name: str) -> None:
    """A step of a capacity search is a run of its own, with a summary that its user may read."""
    _audit_summary(read_run(folder), found, name)


def _audit_page(data: RunData, found: Audited) -> None:
    """A report that was made of the run is what this version makes of it, to the byte; another version's may differ."""
    file = data.path / REPORT_FILE
    if not file.is_file() or file.read_bytes() == run_page(data).encode("utf-8", errors="replace"):
        return
    if data.manifest.commit is not None and data.manifest.commit == source_commit(ROOT):
        found.faults.append(Fault(REPORT_FILE, None, "it is not what this version makes of the raw files."))
    else:
        text = f"{REPORT_FILE} is not what this version makes of the raw files: another one may have made it."
        found.notes.append(text)


def _audit_soak(folder: Path, found: Audited) -> None:
    stated = strict_json(folder / SOAK)
    soak = msgspec.convert(stated, Soak)
    computed = growth(drained_points(soak.segments))
    compare_figures(found, SOAK, stated.get("growth"), computed, "growth")


def _audit_cold(folder: Path, found: Audited) -> None:
    """Its starts are raw figures, of which nothing is beside them but the hash; the spreads follow from them."""
    stated = strict_json(folder / COLD)
    cold = msgspec.convert(stated, Cold)
    compare_figures(found, COLD, stated.get("spreads"), spreads(cold.starts), "spreads")


def _audit_search(folder: Path, found: Audited, file: str, computed: Callable[[Path], Any]) -> None:
    compare_figures(found, file, strict_json(folder / file), computed(folder))


def _audit_heap(folder: Path, found: Audited) -> None:
    """The top tens from the first and the last snapshot."""
    manifest = msgspec.convert(strict_json(folder / MANIFEST), Manifest)
    index = read_index(folder)
    if index is None or not index.snapshots or manifest.heap_profile is None:
        found.notes.append(f"{TOP_TENS} is there, but no snapshot from which it could be made again.")
        return
    first, last = (read_profile(folder, index.snapshots[at]) for at in (0, -1))
    computed = top(first, last, Attribution(tuple(manifest.heap_profile.get("framework_packages", ()))))
    compare_figures(found, TOP_TENS, strict_json(folder / TOP_TENS), computed)


def compare_figures(found: Audited, file: str, stated: Any, computed: Any, at: str = "") -> None:
    """Compare a document, or a part of it, with what was computed again; `at` is the part's name.

    A field that this version computes and an older one did not know is a note, while the file is as it was written:
    nobody can have taken it away.
    """
    again = as_json(computed)
    found.figures += count_values(again)
    intact = not any(fault.file in (file, CHECKSUMS_FILE) for fault in found.faults)
    for one in differences(stated, again, at):
        if one.stated is ABSENT and one.computed is None:
            continue
        if one.stated is ABSENT and intact:
            found.notes.append(f"{file} has no {one.field}, which this version computes: an older one wrote it.")
        else:
            found.faults.append(Fault(file, one.field, one.sentence(_RAW)))
