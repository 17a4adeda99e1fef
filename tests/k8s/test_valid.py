"""Step 2: what is rendered is valid Kubernetes, to the letter, in each version; another operator's kinds likewise."""

import copy
import json
from collections.abc import Callable

import pytest
import yaml

from tests.k8s.conftest import CASES, KEY, Objects
from tests.k8s.pods import matches, of_kind, pods
from tests.k8s.programs import ROOT, Programs

# The oldest that the chart says it takes, the published comparison's, and those of today.
VERSIONS = ("1.28", "1.34", "1.35", "1.36", "1.37")
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
    found = monitors(rendered("existing-observability")) + monitors(tools.objects("--set", "monitoring.monitors=on"))
    rules = list((ROOT / "k8s" / "chart" / "files" / "rules").glob("*.y*ml"))
    kinds = {"PodMonitor", "ServiceMonitor"} | ({"PrometheusRule"} if rules else set())
    assert {o["kind"] for o in found} == kinds
    for document in found:
        schema = json.loads((SCHEMAS / f"{document['kind'].lower()}.json").read_text())
        assert tools.against_schema(document, schema) == []
    assert all(
        o["metadata"]["labels"]["release"] == "kube-prometheus-stack"
        for o in monitors(rendered("existing-observability"))
    )


def test_a_field_that_the_operator_does_not_know_would_be_found(
    tools: Programs, rendered: Callable[[str], Objects]
) -> None:
    (monitor,) = copy.deepcopy([o for o in rendered("existing-observability") if o["kind"] == "PodMonitor"])
    schema = json.loads((SCHEMAS / "podmonitor.json").read_text())
    monitor["spec"]["podMetricsEndpoints"][0]["scrapeInterval"] = "5s"
    assert len(tools.against_schema(monitor, schema)) == 1


def test_monitors_find_what_they_are_for(tools: Programs, rendered: Callable[[str], Objects]) -> None:
    objects = rendered("existing-observability")
    (monitor,) = (o for o in monitors(objects) if o["kind"] == "PodMonitor")
    found = [pod for pod in pods(objects) if matches(monitor["spec"]["selector"], pod.labels)]
    assert {pod.component for pod in found} == {"sut", "backend", "load-master"}
    wanted = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
    for pod in found:
        ports = {p["name"] for container in pod.containers for p in container.get("ports", [])}
        assert len(ports & wanted) == 1
    with_collector = tools.objects("--set", "monitoring.monitors=on")
    (monitor,) = (o for o in monitors(with_collector) if o["kind"] == "ServiceMonitor")
    services = [o for o in with_collector if o["kind"] == "Service"]
    (service,) = (o for o in services if matches(monitor["spec"]["selector"], o["metadata"]["labels"]))
    assert [endpoint["port"] for endpoint in monitor["spec"]["endpoints"]] == ["metrics"]
    assert "metrics" in {port["name"] for port in service["spec"]["ports"]}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("load.rate=0.50", ("yes", "0.5")),
        ("load.rate=200", ("yes", "200")),
        ("run.compared=false", ("no", None)),
        ("run.heapProfile=true", ("no", None)),
    ],
)
def test_pods_say_whether_and_at_which_rate_their_run_is_compared(
    tools: Programs, setting: str, expected: tuple[str, str | None]
) -> None:
    """Both as text: a bare yes would be a boolean, which no label may be."""
    objects = tools.objects("--set", f"load.enabled=true,run.id=first,proof.key={KEY},{setting}")
    found = {pod.component: pod.labels for pod in pods(objects) if "agentdyno.io/run" in pod.labels}
    assert {"sut", "backend", "load-master"} <= set(found)
    for labels in found.values():
        assert (labels["agentdyno.io/compared"], labels.get("agentdyno.io/rate")) == expected


def test_series_get_the_same_labels_from_the_operator_as_from_our_own_prometheus(
    rendered: Callable[[str], Objects],
) -> None:
    (monitor,) = (o for o in monitors(rendered("existing-observability")) if o["kind"] == "PodMonitor")
    config = of_kind(rendered("default"), "ConfigMap")["dyno-prometheus"]["data"]["prometheus.yml"]
    job = next(job for job in yaml.safe_load(config)["scrape_configs"] if job["job_name"] == "agentdyno")
    own = [rule for rule in job["relabel_configs"] if rule.get("action") != "keep"]
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        first, *rules = endpoint["relabelings"]
        assert first == {"targetLabel": "job", "replacement": job["job_name"]}
        assert [{names.get(key, key): value for key, value in rule.items()} for rule in rules] == own
        assert endpoint["honorLabels"] is job["honor_labels"] is True
    labels = {"run", "framework", "scenario", "backend", "compared", "rate", "role", "pod"}
    assert {rule["target_label"] for rule in own} == labels
