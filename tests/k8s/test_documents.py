"""The chart's documents: every value with its default, every example, and figures that add up."""

import json
import re
from collections.abc import Iterator
from math import ceil
from typing import Any

import yaml

from tests.k8s.conftest import EXAMPLES
from tests.k8s.programs import CHART
from tests.otel.test_collector import FILE, substituted

README = (CHART / "README.md").read_text()
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
ROWS = {
    row[0].strip("`"): row[1:]
    for line in README.partition("## Values")[2].splitlines()
    if line.startswith("| `") and (row := [cell.strip() for cell in line.strip("|").split("|")])
}
# Free in what they hold: one row for the whole.
WHOLE = {"monitoring.dashboardLabels"}


def leaves(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        here = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict) and value and here not in WHOLE:
            yield from leaves(value, here)
        else:
            yield here, value


def test_every_value_is_in_the_readme_with_its_default() -> None:
    found = dict(leaves(VALUES))
    assert sorted(ROWS) == sorted(found)
    for name, value in found.items():
        default, meaning = ROWS[name]
        text = "null" if value is None else value if isinstance(value, str) else json.dumps(value)
        assert default.strip("`") == text, name
        assert meaning, name


def test_every_example_is_in_the_readme() -> None:
    assert [file.name for file in EXAMPLES if f"(../{file.name})" not in README] == []


def test_values_that_the_prose_names_are_there() -> None:
    known = set(dict(leaves(VALUES))) | set(VALUES)
    parents = {name.rsplit(".", depth)[0] for name in known for depth in range(1, 4)}
    prose = README.partition("## Values")[0] + (CHART.parent / "SCALING.md").read_text()
    roots = "|".join(VALUES)
    named = set(re.findall(rf"`((?:{roots})\.[A-Za-z_.]+?)(?:\.\*)?`", prose))
    assert named
    assert sorted(named - known - parents) == []


def table(text: str, heading: str) -> dict[str, list[str]]:
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows[2:]}


def test_each_part_of_the_scaling_says_what_kind_of_figures_it_has() -> None:
    parts = (CHART.parent / "SCALING.md").read_text().split("\n## ")[1:]
    kinds = re.compile(r"\b(measured|derived|reasoned)\b", re.IGNORECASE)
    for part in parts:
        heading, _, text = part.partition("\n")
        items = re.findall(r"(?m)^\d+\. (.+)$", text)
        assert items or heading == "Formulas" or kinds.search(text.strip().partition("\n")[0]), heading
        assert [item for item in items if not kinds.search(item)] == []


def test_the_scaling_adds_up() -> None:
    """Every figure of the second table from the first by the formulas between them, and the collector's settings."""
    text = (CHART.parent / "SCALING.md").read_text()
    cost = {part: float(cells[0].split()[0]) for part, cells in table(text, "What a request costs").items()}
    shown = {part: [float(cell) for cell in cells] for part, cells in table(text, "Ten minutes at each rate").items()}
    tail = substituted(FILE.read_text(), {})["processors"]["tail_sampling"]
    waits_s, holds = int(tail["decision_wait"].removesuffix("s")), tail["num_traces"]
    for column, (rate, every) in enumerate(((200, 1), (2_000, 1), (20_000, 50))):

        def processes(cost_ms: float, rate: int = rate) -> int:
            return ceil(rate * cost_ms / 1000 / 0.8 - 1e-9)

        expected = {
            "load workers": ceil(rate / VALUES["load"]["ratePerWorker"]),
            **{
                f"host pods, `{name}`": processes(cost[f"host, `{name}`"])
                for name in ("bare", "langchain", "llamaindex")
            },
            "mocks": processes(cost["mock LLM"]),
            "recorders": processes(cost["recorder, keeping"] + cost["recorder, exporting"] / every),
            "traces in the collector": rate / every * waits_s,
            "collectors": ceil(rate / every * waits_s / holds),
            "records, GB": rate * 600 * (cost["raw records of the load"] + cost["raw spans"]) / 1e9,
            "LLM traffic, Gbit/s": rate * cost["LLM traffic"] * 8 / 1e9,
        }
        assert set(shown) == set(expected)
        for part, value in expected.items():
            assert float(f"{value:.2g}") == float(f"{shown[part][column]:.2g}"), (part, rate, value)
            assert "pods" not in part or shown[part][column] == value, (part, rate, value)
    # And what the prose says of the two settings, and makes of them.
    assert f"R / k x {waits_s} s, the time it waits" in text
    assert text.count(f"{holds:,} (`TRACES_IN_MEMORY`)") == text.count(f"ceil(traces in memory / {holds:,})") == 1
    assert f"at {holds:,} / {waits_s} s = {holds / waits_s:.0f} traced requests a second" in text
    needed = [f"{part} {shown[part][1]:.0f}" for part in ("mocks", "recorders", "collectors")]
    assert f"Load {shown['load workers'][1]:.0f} cores, {', '.join(needed)}, the rest one node." in text
