"""Step 2: what is rendered is valid Kubernetes, to the letter, in each version; another operator's kinds likewise."""

import copy
import json
from collections.abc import Callable

import pytest

from tests.k8s.conftest import CASES, Objects
from tests.k8s.programs import ROOT, Programs

VERSIONS = ("1.34", "1.35", "1.36", "1.37")
SCHEMAS = ROOT / "tests" / "golden" / "k8s" / "crds"
OPERATOR = "monitoring.coreos.com/v1"


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_it(tools: Programs, rendered: Callable[[str], Objects], version: str) -> None:
    # Most objects are the same in all cases: each once.
    own = {json.dumps(o): o for case in CASES for o in rendered(case) if o["apiVersion"] != OPERATOR}
    assert len(own) > 60
    assert tools.validate(list(own.values()), version) == []


def test_a_field_that_kubernetes_does_not_know_would_be_found(
    tools: Programs, rendered: Callable[[str], Objects]
) -> None:
    (service, *_) = copy.deepcopy([o for o in rendered("default") if o["kind"] == "Service"])
    service["spec"]["portz"] = []
    (line,) = tools.validate([service], VERSIONS[-1])
    assert line.startswith("Service/")
    assert "portz" in line


def monitors(objects: Objects) -> Objects:
    return [o for o in objects if o["apiVersion"] == OPERATOR]


def test_kinds_of_the_operator_are_made_where_the_cluster_knows_them(tools: Programs) -> None:
    assert monitors(tools.objects()) == []
    known = [f"{OPERATOR}/{kind}" for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule")]
    made = monitors(tools.objects("--api-versions", ",".join(known)))
    assert {o["kind"] for o in made} >= {"PodMonitor", "ServiceMonitor"}
    off = ("--set", "monitoring.monitors=off,monitoring.rules=off,monitoring.dashboards=off")
    assert monitors(tools.objects(*off, "--api-versions", ",".join(known))) == []


def test_kinds_of_the_operator_are_as_it_knows_them(tools: Programs, rendered: Callable[[str], Objects]) -> None:
    found = monitors(rendered("existing-observability"))
    rules = list((ROOT / "k8s" / "chart" / "files" / "rules").glob("*.yaml"))
    kinds = {"PodMonitor", "ServiceMonitor"} | ({"PrometheusRule"} if rules else set())
    assert {o["kind"] for o in found} == kinds
    for document in found:
        schema = json.loads((SCHEMAS / f"{document['kind'].lower()}.json").read_text())
        assert tools.against_schema(document, schema) == []
        assert document["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_a_field_that_the_operator_does_not_know_would_be_found(
    tools: Programs, rendered: Callable[[str], Objects]
) -> None:
    (monitor,) = copy.deepcopy([o for o in rendered("existing-observability") if o["kind"] == "PodMonitor"])
    schema = json.loads((SCHEMAS / "podmonitor.json").read_text())
    monitor["spec"]["podMetricsEndpoints"][0]["scrapeInterval"] = "5s"
    assert len(tools.against_schema(monitor, schema)) == 1


def test_monitors_find_what_they_are_for(rendered: Callable[[str], Objects]) -> None:
    objects = rendered("existing-observability")
    for monitor in monitors(objects):
        if monitor["kind"] == "PrometheusRule":
            continue
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        if monitor["kind"] == "PodMonitor":
            pods = [o["spec"]["template"] for o in objects if o["kind"] == "Deployment"]
            found = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
            ports = {p["name"] for pod in found for c in pod["spec"]["containers"] for p in c.get("ports", [])}
            endpoints = monitor["spec"]["podMetricsEndpoints"]
        else:
            found = [o for o in objects if o["kind"] == "Service" and wanted <= o["metadata"]["labels"].items()]
            ports = {p["name"] for service in found for p in service["spec"]["ports"]}
            endpoints = monitor["spec"]["endpoints"]
        assert len(found) == 1
        assert {endpoint["port"] for endpoint in endpoints} <= ports
