"""The chart as helm renders it: for its defaults, for each example, and for what no example shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.programs import ROOT, NotToBeHad, Programs, programs

KEY = "00112233445566778899aabbccddeeff"
EXAMPLES = sorted((ROOT / "k8s").glob("*values*.yaml"))
# What is rendered: an example's file and what is set beside it. Each with a run going on, so that all parts are there.
_RUN = ("--set", f"load.enabled=true,run.id=first,proof.key={KEY}")
CASES: dict[str, tuple[list[Path], tuple[str, ...]]] = {
    "default": ([], _RUN),
    **{file.name.partition("-values")[0]: ([file], _RUN) for file in EXAMPLES},
    "url": (
        [],
        (
            *_RUN,
            *("--set", "backend.kind=url,backend.model=m,backend.url.address=https://llm.example/v1"),
            *("--set", "backend.url.apiKey.existingSecret=llm,load.workers=3"),
        ),
    ),
    "profile": ([], (*_RUN, "--set", "run.heapProfile=true")),
    "persistent": (
        [],
        (
            *_RUN,
            *("--set", "prometheus.storage.persistent=true,tempo.storage.persistent=true,replicas=3"),
            *("--set", "rbac.subjects[0].kind=User,rbac.subjects[0].name=jane"),
            *("--set", "rbac.subjects[1].kind=ServiceAccount,rbac.subjects[1].name=ci"),
            *("--set", "networkPolicy.viewersFrom[0].matchLabels.team=perf"),
        ),
    ),
}

Objects = list[dict[str, Any]]


@pytest.fixture(scope="session")
def tools() -> Programs:
    try:
        return programs()
    except NotToBeHad as error:
        pytest.skip(f"helm and kubernetes-validate are not here and could not be downloaded: {error}")


@pytest.fixture(scope="session")
def rendered(tools: Programs) -> Callable[[str], Objects]:
    """The objects of a case, rendered once."""

    @cache
    def render(case: str) -> Objects:
        files, arguments = CASES[case]
        return tools.objects(*arguments, values=files)

    return render
