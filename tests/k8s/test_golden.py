"""What each case renders, kept: a change of the chart shows what it changes. `make chart-golden` records anew.

The whole of the default; of the others what differs from it.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.k8s.conftest import CASES, Objects
from tests.k8s.programs import CHART, ROOT

GOLDEN = ROOT / "tests" / "golden" / "k8s"
RECORD = "RECORD_CHART_GOLDEN"


class Dumper(yaml.SafeDumper):
    """Texts of several lines as such, so that a change in one shows as one."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(str, _text)


def recorded(objects: Objects, but: Objects) -> str:
    """In a steady order; a file of the chart by its name, and what is random or follows from a file not at all.

    but: what need not be said again; of these, those that are not there are named first.
    """
    own, known = by_name(objects), by_name(but)
    lacking = sorted(known.keys() - own.keys())
    differing = [own[name] for name in sorted(own) if own[name] != known.get(name)]
    return yaml.dump_all([{"notHere": lacking}, *differing], Dumper=Dumper, sort_keys=False, width=120)


def by_name(objects: Objects) -> dict[str, Any]:
    files = {
        file.read_text().strip(): str(file.relative_to(CHART))
        for file in (CHART / "files").rglob("*")
        if file.is_file() and file.stat().st_size
    }

    def steady(value: Any, key: str = "") -> Any:
        if key.startswith("checksum/"):
            return "<checksum>"
        if key == "admin-password":
            return "<random>"
        if isinstance(value, dict):
            return {name: steady(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [steady(item) for item in value]
        return f"<{files[value.strip()]}>" if isinstance(value, str) and value.strip() in files else value

    return {f"{o['kind']}/{o['metadata']['name']}": steady(o) for o in objects}


@pytest.mark.parametrize("case", CASES)
def test_it_renders_what_it_did(rendered: Callable[[str], Objects], case: str) -> None:
    file = GOLDEN / f"{case}.yaml"
    now = recorded(rendered(case), [] if case == "default" else rendered("default"))
    if os.environ.get(RECORD):
        file.write_text(now)
    assert file.exists(), "There is no golden file yet: make chart-golden"
    before = file.read_text()
    assert named(now) == named(before)  # first, so that a failure names the objects that differ
    assert now == before


def named(text: str) -> dict[str, Any]:
    lacking, *objects = yaml.safe_load_all(text)
    return {**lacking, **{f"{o['kind']}/{o['metadata']['name']}": o for o in objects}}


def test_no_case_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.glob("*.yaml")} == set(CASES)
