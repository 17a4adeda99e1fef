"""The policies let through what values ask for, by the address that each names, and nothing beside it."""

import json

import pytest

from tests.k8s.conftest import Objects
from tests.k8s.pods import Network, of_kind, pods
from tests.k8s.programs import Programs, Refused

WORLD = "0.0.0.0/0"
URL = "backend.kind=url,backend.model=m,backend.url.address="
OWN_PROMETHEUS = "prometheus.enabled=false,grafana.prometheusUrl=http://prom.obs:9090"
OWN_TEMPO = "tempo.enabled=false,grafana.tempoUrl=http://tempo.obs"
OWN_COLLECTOR = "collector.enabled=false,collector.endpoint=http://otel.obs:4318"


def leaving(objects: Objects) -> dict[str, list[tuple[str, list[int]]]]:
    """By component: what it may reach that is not the release's."""
    network = Network(objects)
    return {pod.component: way for pod in pods(objects) if (way := network.leaves(pod.labels))}


@pytest.mark.parametrize(
    ("settings", "component", "ports"),
    [
        (f"{URL}http://vllm.llm.svc:8000/v1", "sut", [8000]),
        (f"{URL}http://vllm.llm/v1", "sut", [80]),
        (f"{URL}https://llm.example/v1", "sut", [443]),
        (f"{URL}https://[fd00::1]:8443/v1", "sut", [8443]),
        (f"{URL}http://vllm.llm/v1,networkPolicy.outside.ports[0]=8000", "sut", [8000, 80]),
        (OWN_COLLECTOR, "recorder", [4318]),
        ("tempo.enabled=false,collector.tempoEndpoint=tempo.obs:14317", "collector", [14317]),
        (OWN_PROMETHEUS, "grafana", [9090]),
        (OWN_TEMPO, "grafana", [80]),
        (f"{OWN_PROMETHEUS},{OWN_TEMPO}", "grafana", [9090, 80]),
        ("backend.kind=vllm", "backend", [443]),
        ("networkPolicy.apiServerPorts[0]=8443", "prometheus", [8443]),
    ],
)
def test_an_address_that_is_named_can_be_reached_on_its_port(
    tools: Programs, settings: str, component: str, ports: list[int]
) -> None:
    found = leaving(tools.objects("--set", settings))
    assert found.pop(component) == [(WORLD, ports)]
    assert set(found) <= {"prometheus"}


@pytest.mark.parametrize(
    "settings",
    [
        "collector.endpoint=,grafana.prometheusUrl=http://not.asked:9090,grafana.tempoUrl=http://not.asked:3200",
        "collector.tempoEndpoint=not.asked:4317,backend.url.address=http://not.asked/v1",
        "grafana.enabled=false,prometheus.enabled=false,grafana.prometheusUrl=http://not.asked:9090",
        "recorder.enabled=false,collector.enabled=false,collector.endpoint=http://not.asked:4318",
        "backend.kind=vllm,backend.vllm.download=false",
    ],
)
def test_what_nobody_asks_opens_nothing(tools: Programs, settings: str) -> None:
    assert set(leaving(tools.objects("--set", settings))) <= {"prometheus"}


def test_servers_in_the_cluster_are_reached_by_their_namespace_and_the_world_is_not(tools: Programs) -> None:
    outside = "networkPolicy.outside.namespaces={obs,llm}"
    everything = f"{URL}http://vllm.llm:8000/v1,{OWN_COLLECTOR},{OWN_TEMPO}"
    found = leaving(tools.objects("--set", f"{everything},{outside}"))
    assert found["sut"] == [(WORLD, [8000]), ("obs", [8000]), ("llm", [8000])]
    assert found["prometheus"] == [(WORLD, [443, 6443])]  # the Kubernetes API is in no namespace
    settings = f"{everything},{OWN_PROMETHEUS},{outside}"
    assert leaving(tools.objects("--set", settings, "--set-json", "networkPolicy.outside.cidrs=[]")) == {
        "sut": [("obs", [8000]), ("llm", [8000])],
        "recorder": [("obs", [4318]), ("llm", [4318])],
        "grafana": [("obs", [9090, 80]), ("llm", [9090, 80])],
    }


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (f"prometheus.enabled=false,{OWN_COLLECTOR}", "let recorder reach nothing at http://otel.obs:4318"),
        ("prometheus.enabled=true", "so prometheus does not reach the Kubernetes API (or set prometheus.enabled"),
        ("prometheus.enabled=false,backend.kind=vllm", "so backend does not reach the hub"),
    ],
)
def test_policies_that_would_block_what_is_asked_for_are_refused(tools: Programs, settings: str, sentence: str) -> None:
    words = ("--set", settings, "--set-json", "networkPolicy.outside.cidrs=[]")
    with pytest.raises(Refused) as refused:
        tools.template(*words)
    assert sentence in str(refused.value)
    tools.template(*words, "--set", "networkPolicy.enabled=false")


@pytest.mark.parametrize("ports", ["dns.ports", "apiServerPorts"])
def test_a_rule_without_ports_which_would_open_all_is_refused(tools: Programs, ports: str) -> None:
    with pytest.raises(Refused, match="minItems: got 0, want 1"):
        tools.template("--set-json", f"networkPolicy.{ports}=[]")


def test_names_are_asked_where_the_cluster_answers_them(tools: Programs) -> None:
    dns = {"namespace": "openshift-dns", "ports": [53, 5353], "cidrs": ["169.254.20.10/32"]}
    objects = tools.objects("--set-json", f"networkPolicy.dns={json.dumps(dns)}")
    (rule,) = of_kind(objects, "NetworkPolicy")["dyno-deny"]["spec"]["egress"]
    assert rule["to"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}},
        {"ipBlock": {"cidr": "169.254.20.10/32"}},
    ]
    asked = {(port["port"], port["protocol"]) for port in rule["ports"]}
    assert asked == {(port, protocol) for port in (53, 5353) for protocol in ("UDP", "TCP")}
