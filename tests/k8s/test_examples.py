"""What examples, notes and README tell a person to type is what they say that it is."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from agentdyno.cluster.bench import ask
from agentdyno.cluster.release import Release
from agentdyno.cluster.settings import new_run_id, run_values
from agentdyno.contract.run import LoadPlan
from agentdyno.host.serve import _parser as host_parser
from agentdyno.load.options import add_arguments, plan_of
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import BenchOptions, Words
from tests.k8s.conftest import CASES, Objects
from tests.k8s.container_api import _over
from tests.k8s.pods import pods
from tests.k8s.programs import CHART, ROOT, Programs
from tests.k8s.test_client import PLACE
from tests.k8s.test_documents import README, VALUES, table

EXAMPLES = ("kind", "gpu", "existing-observability")
NO_OPTIONS = {"TARGET", "FRAMEWORK", "RELEASE", "NAMESPACE"}


@dataclass(frozen=True)
class Example(Release):
    """A release with these values beside the chart's own."""

    given: dict[str, Any] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        return _over(VALUES, self.given)


def text_of(case: str) -> str:
    return (ROOT / "k8s" / f"{case}-values.yaml").read_text()


def typed(text: str) -> list[list[str]]:
    """The commands in a file's head, by their words."""
    head = re.sub(r"(?m)^# ?", "", text[: re.search(r"(?m)^\w", text).start()])
    return [line.split() for line in head.replace("\\\n", " ").splitlines() if line.startswith("  ")]


def asked_by(line: str, given: dict[str, Any]) -> BenchOptions:
    """The options of a `make bench` line."""
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    options = {name.lower(): value for name, value in words.items() if name not in NO_OPTIONS}
    return ask(Words(framework=words["FRAMEWORK"], **options), Example(PLACE, given=given)).options


def by_hand(objects: Objects) -> tuple[LoadPlan, int | None]:
    """The load that is rendered, and what the host admits at once."""
    found = {f"{pod.component}/{c['name']}": c for pod in pods(objects) for c in pod.containers}
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options, _ = parser.parse_known_args(found["load-worker/locust"]["args"])
    options.master, options.expect_workers = False, 0
    return plan_of(options), host_parser().parse_args(found["sut/host"]["args"]).admission


@pytest.mark.parametrize("case", [*EXAMPLES, "default"])
def test_the_notes_options_ask_for_the_load_of_the_values(
    tools: Programs, rendered: Callable[[str], Objects], case: str
) -> None:
    files, _ = CASES[case]
    command = [str(tools.helm), "install", "dyno", str(CHART), "--dry-run=client", "-o", "json"]
    command += [word for file in files for word in ("-f", str(file))]
    notes = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["info"]["notes"]
    (line,) = (line for line in notes.splitlines() if "make bench" in line)
    asked = asked_by(line, yaml.safe_load(files[0].read_text()) if files else {})
    assert (asked.plan, asked.admission) == by_hand(rendered(case))
    assert f"FRAMEWORK={asked.framework} RELEASE=dyno " in line


def test_the_published_run_is_asked_for_in_the_same_words_everywhere(rendered: Callable[[str], Objects]) -> None:
    (line,) = (" ".join(words) for words in typed(text_of("gpu")) if words[:2] == ["make", "bench"])
    asked = asked_by(line, yaml.safe_load(text_of("gpu")))
    assert (asked.plan, asked.admission) == by_hand(rendered("gpu"))
    assert line in README


def test_the_readme_says_which_values_a_run_sets() -> None:
    asked = ask(Words(framework="bare"), Example(PLACE))
    values = run_values(asked, new_run_id())
    left = [name for name in VALUES["load"] if name not in values["load"]]
    assert set(values["run"]) >= set(VALUES["run"])
    said = re.sub(r"\s+", " ", README)
    assert f"of `load.*`, all but {', '.join(f'`{name}`' for name in left[:-1])} and `{left[-1]}` are set anew" in said
    assert set(values) - {"adapter"} == {"framework", "run", "replicas", "load"}


def test_what_a_laptop_loads_is_what_its_pods_run(tools: Programs) -> None:
    """A run of the example, one of the control, one with the heap profiler: in one store's names and the other's."""
    example = [ROOT / "k8s" / "kind-values.yaml"]
    images = {
        container["image"]
        for framework in ("lightagent", "bare")
        for pod in pods(tools.objects("--set", f"framework={framework},run.heapProfile=true", values=example))
        for container in pod.containers
        if container["image"].startswith("agentdyno/")
    }
    cluster = yaml.safe_load((ROOT / "k8s" / "kind-cluster.yaml").read_text())["name"]
    commands = typed(text_of("kind"))
    (loaded,) = (words for words in commands if words[:3] == ["kind", "load", "docker-image"])
    assert loaded[3:5] == ["--name", cluster]
    assert set(loaded[5:]) == images
    # A name without a registry is one of docker.io to a node.
    (saved,) = (words for words in commands if words[:2] == ["podman", "save"])
    assert set(saved[5:]) == {f"docker.io/{image}" for image in images}
    assert ["make", "images", "PREFIX=docker.io/"] in commands
    assert ["kind", "load", "image-archive", "--name", cluster, saved[4]] in commands


def test_a_release_with_several_hosts_is_not_measured() -> None:
    with pytest.raises(OptionError, match="The release has replicas=3, and a run measures one pod of the host"):
        ask(Words(framework="bare"), Example(PLACE, given={"replicas": 3}))
    for replicas in (0, 1):
        asked = ask(Words(framework="bare"), Example(PLACE, given={"replicas": replicas}))
        assert run_values(asked, "a")["replicas"] == 1


def test_measured_cells_are_as_many_as_host_pods() -> None:
    text = (CHART.parent / "SCALING.md").read_text()
    shown = table(text, "Ten minutes at each rate")
    cells = re.search(r"2,000 a second, measured, are (\d+) cells of\s`bare` and (\d+) of `langchain`", text)
    assert cells is not None
    assert cells.groups() == tuple(shown[f"host pods, `{name}`"][1] for name in ("bare", "langchain"))
