"""Step 3: the security rules, read from what is rendered."""

import base64
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.k8s.conftest import CASES, KEY, Objects
from tests.k8s.containers import lay_out
from tests.k8s.pods import Network, matches, of_kind, pods, quantity, strings
from tests.k8s.programs import Programs

Rendered = Callable[[str], Objects]
pytestmark = pytest.mark.parametrize("case", CASES)
# What the restricted Pod Security standard lets a pod mount.
VOLUMES = {"configMap", "emptyDir", "projected", "secret", "downwardAPI", "persistentVolumeClaim"}


def test_pods_keep_the_restricted_standard(rendered: Rendered, case: str) -> None:
    found = pods(rendered(case))
    assert found
    for pod in found:
        security = pod.spec["securityContext"]
        assert security["runAsNonRoot"] is True, pod.owner
        assert security["runAsUser"] > 0, pod.owner
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, pod.owner
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec), pod.owner
        for volume in pod.spec.get("volumes", []):
            assert set(volume) - {"name"} <= VOLUMES, (pod.owner, volume)


def test_images_of_others_are_pinned_by_digest_and_weights_by_commit(rendered: Rendered, case: str) -> None:
    for pod in pods(rendered(case)):
        for container in pod.containers:
            image = container["image"]
            assert image.startswith("agentdyno/") or re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image), image
            if container["name"] == "vllm":
                assert any(re.fullmatch(r"--revision=[0-9a-f]{40}", word) for word in container["args"])


def test_containers_keep_the_restricted_standard(rendered: Rendered, case: str) -> None:
    for pod in pods(rendered(case)):
        for container in pod.containers:
            security = container["securityContext"]
            assert security == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, (pod.owner, container["name"])
            assert not any("hostPort" in port for port in container.get("ports", []))


def test_only_prometheus_has_a_token_of_the_cluster(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    accounts = of_kind(objects, "ServiceAccount")
    for pod in pods(objects):
        is_prometheus = pod.component == "prometheus"
        assert pod.spec["automountServiceAccountToken"] is is_prometheus, pod.owner
        assert pod.spec["serviceAccountName"] == ("dyno-prometheus" if is_prometheus else "dyno-pods")
        assert pod.spec["serviceAccountName"] in accounts
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())
    bound = {s["name"]: o for o in objects if o["kind"].endswith("RoleBinding") for s in o["subjects"]}
    assert set(accounts) & set(bound) <= {"dyno-prometheus"}
    if "dyno-prometheus" in bound:
        assert bound["dyno-prometheus"]["kind"] == "RoleBinding"
        role = of_kind(objects, "Role")[bound["dyno-prometheus"]["roleRef"]["name"]]
        assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


def test_the_role_is_as_narrow_as_a_client_can_do_with(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    rules = [rule for o in objects if o["kind"] in ("Role", "ClusterRole") for rule in o["rules"]]
    assert not [rule for rule in rules if "*" in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]]
    reading = {"get", "list", "watch"}
    writes = {(r, v) for rule in rules for r in rule["resources"] for v in rule["verbs"] if v not in reading}
    assert writes == {("pods/exec", "create")}
    assert all(rule["resourceNames"] for rule in rules if "secrets" in rule["resources"])
    (cluster,) = of_kind(objects, "ClusterRole").values()
    assert cluster["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]


def test_no_secret_is_anywhere_but_in_a_secret(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    secret_values = {
        base64.b64decode(value).decode() for o in of_kind(objects, "Secret").values() for value in o["data"].values()
    } - {"admin"}
    assert KEY in secret_values
    for o in objects:
        if o["kind"] == "Secret":
            continue
        texts = list(strings(o))
        for value in secret_values:
            assert not any(value in text for text in texts), (o["kind"], o["metadata"]["name"])
    for pod in pods(objects):
        for container in pod.containers:
            for variable in container.get("env", []):
                if re.search(r"KEY|TOKEN|PASSWORD|SECRET", variable["name"]):
                    assert set(variable["valueFrom"]) == {"secretKeyRef"}, (pod.owner, variable)


def test_images_are_pinned(rendered: Rendered, case: str) -> None:
    for pod in pods(rendered(case)):
        for container in pod.containers:
            image = container["image"]
            name, _, tag = image.rpartition(":")
            assert name, image
            assert tag != "latest", image
            assert re.search(r"\d", tag), image


def test_everything_has_limits_and_those_that_measure_are_guaranteed(rendered: Rendered, case: str) -> None:
    for pod in pods(rendered(case)):
        for container in pod.containers:
            resources = container["resources"]
            assert {"cpu", "memory"} <= set(resources["limits"])
            assert resources["requests"] == resources["limits"], (pod.owner, container["name"])


def test_the_measured_pod_has_the_published_limits(rendered: Rendered, case: str) -> None:
    (sut,) = (pod for pod in pods(rendered(case)) if pod.component == "sut")
    host, sampler = sut.containers[-2:]  # after what a profile run has before them
    if case != "kind":
        assert (quantity(host["resources"]["limits"]["cpu"]), host["resources"]["limits"]["memory"]) == (2.5, "4Gi")
    assert quantity(sampler["resources"]["limits"]["cpu"]) <= 0.25
    assert sut.spec["shareProcessNamespace"] is True
    assert sut.workload["spec"]["strategy"] == {"type": "Recreate"}
    # An overloaded host must be neither restarted nor taken out of its Service.
    assert "livenessProbe" not in host
    assert "readinessProbe" not in host
    assert host["startupProbe"]["httpGet"]["path"] == "/healthz"


def test_the_measured_pod_has_a_node_of_its_own(rendered: Rendered, case: str) -> None:
    found = {pod.component: pod for pod in pods(rendered(case))}
    sut = found.pop("sut").spec
    how = (
        "preferredDuringSchedulingIgnoredDuringExecution"
        if case == "kind"
        else "requiredDuringSchedulingIgnoredDuringExecution"
    )
    assert set(sut["affinity"]["nodeAffinity"]) == {how}
    assert set(sut["affinity"]["podAntiAffinity"]) == {how}
    assert sut["tolerations"] == [
        {"key": "agentdyno.io/node", "operator": "Equal", "value": "sut", "effect": "NoSchedule"}
    ]
    for pod in found.values():
        (term,) = pod.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term["matchExpressions"] == [{"key": "agentdyno.io/node", "operator": "NotIn", "values": ["sut"]}]
        assert not any(t.get("value") == "sut" for t in pod.spec.get("tolerations", []))


def test_every_pod_is_under_a_policy_that_denies(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    policies = of_kind(objects, "NetworkPolicy")
    deny = policies["dyno-deny"]["spec"]
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in deny
    assert [port["port"] for rule in deny["egress"] for port in rule["ports"]] == [53, 53]
    for pod in pods(objects):
        assert matches(deny["podSelector"], pod.labels), pod.owner
    for name, policy in policies.items():
        for rules, peers in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(rules, []):
                assert rule[peers], f"{name} lets everybody in or out"
                assert rule["ports"], f"{name} opens every port"
                assert all(
                    peer.get("podSelector") != {} and peer.get("namespaceSelector") != {} for peer in rule[peers]
                )


def test_what_is_not_asked_for_is_not_let_through(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    network = Network(objects)
    found = {pod.component: pod.labels for pod in pods(objects)}
    ports = sorted({p["containerPort"] for pod in pods(objects) for c in pod.containers for p in c.get("ports", [])})
    reach = {
        (source, target)
        for source, own in found.items()
        for target, other in found.items()
        for port in ports
        if network.allows(own, other, port)
    }
    assert {source for source, target in reach if target == "sut"} == {"load-worker", "check"} | (
        {"prometheus"} & set(found)
    )
    assert {target for source, target in reach if source == "sut"} == {"backend", "recorder"} & set(found)
    assert {target for source, target in reach if source == "load-worker"} == {"sut", "load-master"}
    assert not {source for source, _ in reach} & {"load-master", "tempo"}
    assert not {target for _, target in reach} & {"load-worker", "check"}
    outside = {component: way for component, labels in found.items() if (way := network.leaves(labels))}
    assert outside.pop("prometheus", None) == ([("0.0.0.0/0", [443, 6443])] if "prometheus" in found else None)
    assert outside == {
        "gpu": {"backend": [("0.0.0.0/0", [443])]},
        "url": {"sut": [("0.0.0.0/0", [443])]},
        "existing-observability": {"recorder": [("observability", [4318])]},
    }.get(case, {})


def test_every_address_that_a_command_names_can_be_reached(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    network, services = Network(objects), of_kind(objects, "Service")
    configs = of_kind(objects, "ConfigMap")
    seen = set()
    for pod in pods(objects):
        if pod.component == "load-master":
            continue  # it only tells its workers where to send
        said = [*strings(pod.spec)]
        for volume in pod.spec.get("volumes", []):
            if volume.get("configMap", {}).get("name") == f"dyno-{pod.component}":
                said += strings(configs[volume["configMap"]["name"]])
        for service, port in {pair for text in said for pair in re.findall(r"\b(dyno-[a-z-]+):(\d+)", text)}:
            target = next(
                p for p in pods(objects) if matches({"matchLabels": services[service]["spec"]["selector"]}, p.labels)
            )
            assert int(port) in [p["port"] for p in services[service]["spec"]["ports"]], (pod.owner, service, port)
            assert network.allows(pod.labels, target.labels, int(port)), (pod.owner, service, port)
            seen.add((pod.component, target.component))
    assert {("load-worker", "sut"), ("check", "sut")} <= seen
    master = next(p for p in pods(objects) if p.component == "load-master")
    worker = next(p for p in pods(objects) if p.component == "load-worker")
    assert network.allows(worker.labels, master.labels, 5557)
    for prometheus in (pod for pod in pods(objects) if pod.component == "prometheus"):
        assert network.allows(prometheus.labels, master.labels, 9646)
        assert not network.allows(prometheus.labels, worker.labels, 9646)


def test_services_lead_to_ports_that_are_open(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    for name, service in of_kind(objects, "Service").items():
        selected = [pod for pod in pods(objects) if matches({"matchLabels": service["spec"]["selector"]}, pod.labels)]
        assert len(selected) == 1, name
        ports = {p["name"] for container in selected[0].containers for p in container.get("ports", [])}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, name


def test_evictions_and_spread(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    budgets = of_kind(objects, "PodDisruptionBudget")
    protected = {"sut", "backend", "recorder", "load-master", "load-worker"}
    for pod in pods(objects):
        covering = [b for b in budgets.values() if matches(b["spec"]["selector"], pod.labels)]
        assert len(covering) == (1 if pod.component in protected else 0), pod.owner
        if pod.workload["kind"] == "Job":  # which has no scale that a share could be taken of
            assert covering[0]["spec"]["minAvailable"] == pod.workload["spec"]["parallelism"]
        elif covering:
            assert covering[0]["spec"]["maxUnavailable"] == 0
        if pod.workload["kind"] != "Pod":
            (spread,) = pod.spec["topologySpreadConstraints"]
            assert matches(spread["labelSelector"], pod.labels)
            assert spread["topologyKey"] == "kubernetes.io/hostname"


def test_load_is_begun_once(rendered: Rendered, case: str) -> None:
    for name, job in of_kind(rendered(case), "Job").items():
        # By index: a Job that has failed as a whole ends its other pods, and the records that they hold with them.
        again = "backoffLimitPerIndex" if job["spec"].get("completionMode") == "Indexed" else "backoffLimit"
        assert {k: v for k, v in job["spec"].items() if k.startswith("backoffLimit")} == {again: 0}
        assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
        assert job["spec"]["activeDeadlineSeconds"] > 0
        assert name.endswith("-first")


def test_objects_are_labelled_and_named_by_the_release(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    names = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(names) == len(set(names))
    for o in objects:
        labels = o["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "agentdyno"
        assert labels["app.kubernetes.io/instance"] == "dyno"
        assert labels["app.kubernetes.io/component"]
        prefix = "bench-dyno-" if o["kind"].startswith("Cluster") else "dyno-"
        assert o["metadata"]["name"].startswith(prefix)
        assert "namespace" not in o["metadata"]
    for pod in pods(objects):
        if pod.workload["kind"] == "Deployment":
            assert pod.workload["spec"]["selector"]["matchLabels"].items() <= pod.labels.items()
            assert not any(key.startswith("agentdyno.io/") for key in pod.workload["spec"]["selector"]["matchLabels"])
        if pod.component in ("sut", "recorder", "load-master", "load-worker"):
            assert pod.labels["agentdyno.io/run"] == "first"


def test_what_is_mounted_or_read_is_there(rendered: Rendered, case: str) -> None:
    objects = rendered(case)
    there = {kind: set(of_kind(objects, kind)) for kind in ("ConfigMap", "Secret", "PersistentVolumeClaim")}
    for pod in pods(objects):
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in there["ConfigMap"]
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in there["PersistentVolumeClaim"]
            if "emptyDir" in volume:
                assert volume["emptyDir"]["sizeLimit"], (pod.owner, volume["name"])
        used = {mount["name"] for container in pod.containers for mount in container.get("volumeMounts", [])}
        assert used == set(volumes), pod.owner
        for container in pod.containers:
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                if reference and reference["name"] != "llm":  # the one that the case says the user has
                    secret = of_kind(objects, "Secret")[reference["name"]]
                    assert reference["key"] in secret["data"]


def test_prometheus_takes_its_configuration(rendered: Rendered, case: str, tmp_path: Path) -> None:
    config = of_kind(rendered(case), "ConfigMap").get("dyno-prometheus")
    if config is None:
        assert case == "existing-observability"
        return
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    rules = of_kind(rendered(case), "ConfigMap").get("dyno-prometheus-rules", {"data": {}})
    lay_out(tmp_path / "rules", rules["data"])
    settings = yaml.safe_load(config["data"]["prometheus.yml"])
    assert settings["global"]["scrape_interval"] == "5s"
    settings["rule_files"] = [
        file.replace("/etc/agentdyno-rules", str(tmp_path / "rules")) for file in settings["rule_files"]
    ]
    # Debian builds Prometheus without the discovery of Kubernetes: its part is looked at here, the rest by promtool.
    job = settings["scrape_configs"][0]
    assert job.pop("kubernetes_sd_configs") == [
        {
            "role": "pod",
            "namespaces": {"own_namespace": True},
            "selectors": [{"role": "pod", "label": "app.kubernetes.io/name=agentdyno,app.kubernetes.io/instance=dyno"}],
        }
    ]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
    done = subprocess.run([promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules['data'])} rule files found" in done.stdout


def test_two_releases_in_a_cluster_do_not_meet(tools: Programs, rendered: Rendered, case: str) -> None:
    files, arguments = CASES[case]
    other = tools.objects(*arguments, values=files, release="other")
    names = {(o["kind"], o["metadata"]["name"]) for o in rendered(case)}
    assert not names & {(o["kind"], o["metadata"]["name"]) for o in other}
    network = Network([*rendered(case), *other])
    (own,) = (pod for pod in pods(rendered(case)) if pod.component == "load-worker")
    (sut,) = (pod for pod in pods(other) if pod.component == "sut")
    assert not network.allows(own.labels, sut.labels, 8000)
