"""Sides of a gate on disk: campaigns, folders of runs, and single runs, with planted figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from agentdyno.analysis.run_data import read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.summary import Framework
from agentdyno.record.folder import RunFolder
from tests.analysis.campaigns import Planted, write_campaign
from tests.analysis.planted_run import Figures, load_plan, write_run


def campaign(parent: Path, name: str, *entries: Planted, rounds: int = 5, seed: int = 1, **more: Any) -> Path:
    """A campaign of the control and these; the steady load alone where nothing else is asked for."""
    options = {"requests": 100, "loads": [LoadName.STEADY], "probes": False, "traced": False} | more
    everything = [Planted("bare"), Planted("bare#2"), *entries]
    return write_campaign(parent, everything, rounds, seed=seed, campaign_id=name, **options).path


def runs(parent: Path, name: str, count: int, *, who: str = "slow", cpu_ms: float = 20.0, **facts: Any) -> Path:
    """A folder of so many runs of one framework, whose CPU per request differs by 1 % or so."""
    source = np.random.default_rng(abs(hash(name)) % 1000)
    rate = facts.pop("rate", 20.0)
    for number in range(count):
        figures = Figures(cpu_ms=float(cpu_ms * source.lognormal(0, 0.01)), lost=facts.get("lost", 0))
        write_run(
            parent / name / f"run-{number}", load_plan(rate, 100, 1, traced=False), framework(who), figures, number,
            **({"environment": {}, "rig_environment": {}} | {k: v for k, v in facts.items() if k != "lost"}),
        )  # fmt: skip
    return parent / name


def framework(who: str, version: str | None = "1.0.0") -> Framework:
    return Framework(who, version, "default", "llm")


def change_manifests(side: Path, **machine: Any) -> None:
    """Give all runs under `side` another machine, or another field of the manifest where its name has a dot before."""
    for file in side.rglob("manifest.json"):
        document = json.loads(file.read_text(encoding="utf-8"))
        for name, value in machine.items():
            (document if name in document else document["machine"])[name] = value
        file.write_text(json.dumps(document), encoding="utf-8")


def protocol_only(side: Path) -> Path:
    """Make all runs under `side` ones on a vLLM without a GPU, judged anew."""
    change_manifests(side, backend={"kind": "vllm-cpu", "model": "agentdyno-copying", "url": None})
    for file in side.rglob("manifest.json"):
        RunFolder(file.parent).write_json("summary.json", summarise(read_run(file.parent)))
    return side
