"""Where and with what a comparison was measured, as headings and texts: the machine, its cores, workload and loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentdyno.contract.comparison import Comparison
from agentdyno.contract.summary import BackendFacts
from agentdyno.report.comparison_words import DASH, capitalized

_OF_THE_BACKEND = {
    "weights": "Backend's weights",
    "revision": "Their revision",
    "settings": "Backend, as it was started",
    "stated": "Backend, as its user states",
    "told": "Backend, as it tells of itself",
}


def period(comparison: Comparison) -> str:
    """`2026-01-02 03:04 to 04:44 UTC`."""
    start, end = (moment(text) for text in (comparison.started_utc, comparison.finished_utc))
    if not end:
        return f"{start} UTC, not finished"
    same_day = start[:10] == end[:10]
    return f"{start} to {end[11:] if same_day else end} UTC"


def moment(utc: str | None) -> str:
    """Of an ISO date in UTC, as it is: no clock or zone of this machine has a say."""
    return "" if utc is None else utc[:16].replace("T", " ")


def machine_sentence(comparison: Comparison) -> str:
    """The machine in one line."""
    machine = comparison.machine
    cores, memory = _cores_used(comparison), machine.get("memory_bytes")
    parts = [machine.get("cpu_model"), machine.get("architecture")]
    parts += [
        f"{cores} core{'s' if cores > 1 else ''}" if cores else None,
        f"{memory / 1e9:.0f} GB" if memory else None,
    ]
    known = [str(part) for part in parts if part]
    return ", ".join(known) if known else "The machine is not on record"


def _cores_used(comparison: Comparison) -> int | None:
    """Those that the runs were kept on, host and rest together; where nothing was pinned, those that could be used."""
    pinned = {core for cores in comparison.cores.values() for core in cores or ()}
    usable: int | None = comparison.machine.get("cores_usable")
    return len(pinned) or usable


def machine_facts(machine: Mapping[str, Any], cores: Mapping[str, list[int] | None]) -> list[tuple[str, str]]:
    """The machine, and which cores each role was kept on."""
    found = [(_as_words(key), _as_text(key, value)) for key, value in machine.items()]
    for role, numbers in cores.items():
        pinned = "not pinned" if numbers is None else f"core {', '.join(map(str, numbers))}"
        found.append((f"Core of the {role}", pinned))
    return found


def backend_facts(backend: BackendFacts) -> list[tuple[str, str]]:
    """Which model a backend that is not the mock serves, and its settings by who says so."""
    if "served_by" not in backend:
        return []
    served = ("Backend", f"{backend.get('kind')}, model {backend.get('model')}")
    known = [(text, backend[key]) for key, text in _OF_THE_BACKEND.items() if backend.get(key) is not None]
    return [served, *((text, _as_text("", value)) for text, value in known)]


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Machine, cores, workload and loads, each as a heading and a text."""
    found = machine_facts(comparison.machine, comparison.cores)
    found.append(("Admission limit", "off" if comparison.admission is None else f"{comparison.admission} at once"))
    found += [(f"Workload: {_as_words(k).lower()}", _as_text(k, v)) for k, v in comparison.workload.items()]
    found += backend_facts(comparison.backend or {})
    found += [(f"Load {load.value}", _parts(plan)) for load, plan in comparison.loads.items()]
    return found


def _as_words(key: str) -> str:
    words = key.removesuffix("_bytes").removesuffix("_s").replace("_", " ").replace("cpu", "CPU")
    return capitalized(words)


def _as_text(key: str, value: Any) -> str:
    if value is None or value == {}:
        return DASH
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{value / 1e9:.1f} GB"
    if isinstance(value, dict):
        return ", ".join(f"{inner} {_as_text(inner, of)}" for inner, of in value.items())
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{text} s" if key.endswith("_s") and not key.endswith("per_s") else text


def _parts(plan: Mapping[str, Any]) -> str:
    return ", ".join(f"{_as_words(key).lower()} {_as_text(key, value)}" for key, value in plan.items())
