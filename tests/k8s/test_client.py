"""What the client sets is what the chart makes of it: its values are taken, and render the run that was asked for."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agentdyno.cluster.bench import ask, bench
from agentdyno.cluster.release import Place, Release
from agentdyno.cluster.settings import LOAD_ON, new_run_id, run_values
from agentdyno.contract.scenario import Workload
from agentdyno.host.serve import _parser as host_parser
from agentdyno.load.options import add_arguments, plan_of
from agentdyno.rig.options import Words
from tests.cluster.conftest import cluster, pod_python
from tests.cluster.fake_cluster import FakeCluster
from tests.k8s.pods import pods
from tests.k8s.programs import CHART, Programs

__all__ = ["cluster", "pod_python"]
PLACE = Place("dyno", "bench")


class Installed(Release):
    """A release with the chart's own values."""

    def values(self) -> dict[str, Any]:
        values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
        return values


class Planned(Release):
    """What helm would install where nothing is, without asking a cluster."""

    def _helm(self, *words: str) -> str:
        assert words[:2] == ("upgrade", "--install")
        return super()._helm("install", *words[2:])


@pytest.mark.parametrize(
    "words",
    [
        Words(framework="lightagent-llm", rate="1000", profile="standard"),
        Words(framework="bare", rate="0.5", duration="1m30s", warmup="0s", admission="off", traces="off"),
        Words(framework="bare-openai", scenario="parallel"),
        Words(framework="langchain", ttft="exp:120", seats="64", tool_latency="order_status=20,resolution=exp:50"),
        Words(framework="bare", rate="900", workers="7", timeout="500ms", seed="123456789", traces="20/s"),
    ],
    ids=lambda words: words.framework,
)
def test_the_chart_renders_the_run_that_was_asked_for(tools: Programs, tmp_path: Path, words: Words) -> None:
    asked = ask(words, Installed(PLACE))
    files = [tmp_path / "run.json", tmp_path / "load.json"]
    for file, values in zip(files, (run_values(asked, new_run_id()), LOAD_ON), strict=True):
        file.write_text(json.dumps(values))
    objects = tools.objects(values=files)
    found = {f"{pod.component}/{c['name']}": c for pod in pods(objects) for c in pod.containers}

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    plan, _ = parser.parse_known_args(found["load-worker/locust"]["args"])
    plan.master, plan.expect_workers = False, 0
    assert plan_of(plan) == asked.options.plan
    host = host_parser().parse_args(found["sut/host"]["args"])
    assert msgspec.json.decode(host.workload, type=Workload).hash() == asked.options.workload.hash()
    assert (host.variant, host.admission, host.model) == (words.framework, asked.options.admission, asked.options.model)
    assert (host.spans is None) == (words.traces == "off")
    (job,) = (o for o in objects if o["kind"] == "Job" and "load-worker" in o["metadata"]["name"])
    assert job["spec"]["completions"] == asked.options.plan.workers


@pytest.mark.parametrize(("interval_s", "folder"), [(None, None), (30.0, Path("/profiler/site-packages"))])
def test_the_profiler_is_rendered_for_a_profile_run_and_for_no_other(
    tools: Programs, tmp_path: Path, interval_s: float | None, folder: Path | None
) -> None:
    asked = replace(ask(Words(framework="bare"), Installed(PLACE)), heap_interval_s=interval_s)
    (tmp_path / "run.json").write_text(json.dumps(run_values(asked, new_run_id())))
    (sut,) = (pod for pod in pods(tools.objects(values=[tmp_path / "run.json"])) if pod.component == "sut")
    host = next(container for container in sut.containers if container["name"] == "host")
    assert host_parser().parse_args(host["args"]).heap_profile == folder


def test_workers_follow_from_the_rate(tmp_path: Path) -> None:
    def workers(**words: str) -> int:
        return ask(Words(framework="bare", **words), Installed(PLACE)).options.plan.workers

    assert [workers(rate=rate) for rate in ("1", "400", "401", "2000")] == [1, 1, 2, 5]
    assert workers(profile="standard") == 1
    assert workers(rate="2000", workers="9") == 9


def test_the_places_names_are_the_charts(tools: Programs) -> None:
    place = Place("a-release-of-this-length", "bench")
    names = {
        o["metadata"]["name"] for o in tools.objects(release=place.release) if o["kind"] in ("Deployment", "Secret")
    }
    assert {place.name("sut"), place.name("proof")} <= names


def test_the_runners_role_allows_what_the_client_asks_for_and_nothing_else(
    tools: Programs, cluster: FakeCluster, tmp_path: Path
) -> None:
    bench(
        Words(framework="bare", rate="20", duration="3s", warmup="1s", workers="2", out=str(tmp_path / "runs")), PLACE
    )
    # Since 1.35 a stream that is opened by GET must be allowed to create as well.
    asked = cluster.asked | {("pods/exec", "create")}
    roles = [o for o in tools.objects() if o["kind"] in ("Role", "ClusterRole") and "runner" in o["metadata"]["name"]]
    allowed = {
        (resource, verb)
        for o in roles
        for rule in o["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed == asked


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ("{}", 300 + 900),
        ("backend: {kind: vllm}", 1800 + 900),
        ("backend: {kind: vllm, vllm: {startup: {failureThreshold: 360}}}", 3600 + 900),
        ("sut: {startup: {periodSeconds: 5, failureThreshold: 200}}", 1000 + 900),
    ],
)
def test_an_installation_has_the_time_that_its_probes_allow_and_that_of_an_image(
    tools: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: str, seconds: int
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values)
    monkeypatch.setenv("HELM", str(tools.helm))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    release = Planned(PLACE)
    assert release.start_s([file]) == seconds
    planned = release._helm(*release._installing([file]), "--dry-run=client", "-o", "json")
    assert f"--timeout={seconds}s deploy" in json.loads(planned)["info"]["notes"]
    for pod in pods(tools.objects(values=[file])):
        for probe in (c["startupProbe"] for c in pod.containers if "startupProbe" in c):
            least = probe["periodSeconds"] * probe["failureThreshold"] + 900
            assert pod.workload["spec"]["progressDeadlineSeconds"] == least
