"""Each part can be switched off, and nothing of it is left then, nor anything that would look for it."""

import re

import pytest

from tests.k8s.conftest import KEY, Objects
from tests.k8s.pods import of_kind, pods, strings
from tests.k8s.programs import Programs

ALL = ("collector", "tempo", "prometheus", "grafana", "recorder")


def render(tools: Programs, *off: str) -> Objects:
    settings = ",".join(["load.enabled=true,run.id=a", f"proof.key={KEY}", *(f"{part}.enabled=false" for part in off)])
    return tools.objects("--set", settings)


@pytest.mark.parametrize("off", [*[(part,) for part in ALL], ("tempo", "prometheus"), ALL], ids="-".join)
def test_a_part_that_is_off_is_gone(tools: Programs, off: tuple[str, ...]) -> None:
    objects = render(tools, *off)
    components = {pod.component for pod in pods(objects)}
    expected = {"sut", "backend", "load-master", "load-worker", "check", *ALL} - set(off)
    assert components == expected
    services = set(of_kind(objects, "Service"))
    named = {name for o in objects for text in strings(o) for name in re.findall(r"\bdyno-([a-z-]+):\d", text)}
    assert {f"dyno-{name}" for name in named} <= services
    for part in off:
        assert not [o for o in objects if o["metadata"]["labels"]["app.kubernetes.io/component"] == part]


def test_the_sampler_can_be_left_out(tools: Programs) -> None:
    (sut,) = (pod for pod in pods(tools.objects("--set", "sut.sampler.enabled=false")) if pod.component == "sut")
    assert [container["name"] for container in sut.containers] == ["host"]
    assert sut.spec["shareProcessNamespace"] is False


def test_the_clusters_own_parts_are_named_instead(tools: Programs) -> None:
    objects = tools.objects(
        *("--set", "collector.enabled=false,collector.endpoint=http://otel.obs:4318"),
        *("--set", "prometheus.enabled=false,grafana.prometheusUrl=http://prom.obs:9090"),
        *("--set", "tempo.enabled=false,grafana.tempoUrl=http://tempo.obs:3200"),
    )
    (recorder,) = (pod for pod in pods(objects) if pod.component == "recorder")
    variables = {v["name"]: v.get("value") for v in recorder.containers[0]["env"]}
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://otel.obs:4318"
    sources = of_kind(objects, "ConfigMap")["dyno-grafana"]["data"]["datasources.yaml"]
    assert "url: http://prom.obs:9090" in sources
    assert "url: http://tempo.obs:3200" in sources


@pytest.mark.parametrize(
    ("settings", "exporters"),
    [
        ("tempo.enabled=true", ["otlp/tempo"]),
        ("tempo.enabled=false,collector.tempoEndpoint=tempo.obs:4317", ["otlp/tempo"]),
        ("tempo.enabled=false", ["nop"]),
    ],
)
def test_kept_traces_go_to_tempo_or_nowhere(tools: Programs, settings: str, exporters: list[str]) -> None:
    import yaml

    config = of_kind(tools.objects("--set", settings), "ConfigMap")["dyno-collector"]["data"]
    more = yaml.safe_load(config["exporters.yaml"])
    assert more["service"]["pipelines"]["traces/kept"]["exporters"] == exporters
    known = yaml.safe_load(config["collector.yaml"].replace("${env:", "${"))["exporters"] | more.get("exporters", {})
    assert set(exporters) <= set(known)


def test_policies_budgets_and_roles_can_be_left_out(tools: Programs) -> None:
    settings = "networkPolicy.enabled=false,podDisruptionBudget.enabled=false,rbac.create=false"
    kinds = {o["kind"] for o in tools.objects("--set", settings)}
    assert not kinds & {"NetworkPolicy", "PodDisruptionBudget", "ClusterRole", "ClusterRoleBinding"}
    assert not [o for o in tools.objects("--set", settings) if o["metadata"]["name"] == "dyno-runner"]


def test_a_key_of_ones_own_is_used_and_none_is_made(tools: Programs) -> None:
    objects = tools.objects("--set", "proof.existingSecret=mine,grafana.admin.existingSecret=admin")
    assert of_kind(objects, "Secret") == {}
    (sut,) = (pod for pod in pods(objects) if pod.component == "sut")
    references = [v["valueFrom"]["secretKeyRef"]["name"] for v in sut.containers[0]["env"] if "valueFrom" in v]
    assert references == ["mine"]


def test_keys_that_are_made_are_random(tools: Programs) -> None:
    first, second = (of_kind(tools.objects(), "Secret") for _ in range(2))
    for name, key in (("dyno-proof", "proof-key"), ("dyno-grafana", "admin-password")):
        assert first[name]["data"][key] != second[name]["data"][key]
