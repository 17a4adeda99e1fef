"""Rolling a framework in: host, backend and recorder of a new run, ready, and what the manifest says of them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from agentdyno.cluster.kube import Kube, NotThere
from agentdyno.cluster.objects import COMPONENT, INSTANCE, RUN, Pod
from agentdyno.cluster.programs import Container
from agentdyno.cluster.release import HelmError, Release
from agentdyno.cluster.settings import Asked, State, run_values
from agentdyno.cluster.watch import SERVERS, known
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import Finding, Reason
from agentdyno.record.manifest import Machine, Manifest
from agentdyno.rig.building import say
from agentdyno.rig.environments import ROOT, Facts, Stamp, adapter_environment, lock_sha256
from agentdyno.rig.preparation import manifest_of

_STAMP = "/opt/agentdyno/venv/agentdyno-stamp.json"
_SOURCES = "/opt/agentdyno/src/agentdyno"
_MACHINE = """
import sys, msgspec
from agentdyno.record.manifest import machine_facts
sys.stdout.buffer.write(msgspec.json.encode(machine_facts()))
"""


def run_labels(state: State) -> dict[str, str]:
    """Of every pod of a run but vLLM's, which keeps its model from one to the next."""
    return {INSTANCE: state.release, RUN: state.run}


def run_pods(kube: Kube, state: State) -> list[Pod]:
    """All that a run depends on, as they are now."""
    pods = kube.pods(run_labels(state))
    if state.backend_kind == "vllm":
        pods += kube.pods({INSTANCE: state.release, COMPONENT: "backend"})
    return pods


def roll_in(release: Release, kube: Kube, asked: Asked, state: State) -> list[Pod]:
    """Start host, backend and recorder of the run, and wait until they are ready; they are in `state.servers` then.

    Raises HelmError with what holds the pods up, KubeError, ApiLost.
    """
    say(f"{asked.variant.name}: rolled in as run {state.run}")
    try:
        release.change(run_values(asked, state.run), wait_s=state.ready_timeout_s)
    except HelmError as error:
        held = _held_up(run_pods(kube, state))
        raise HelmError(f"{error}{held}") from error
    pods = [
        pod for pod in run_pods(kube, state) if pod.component in SERVERS and pod.metadata.deletion_timestamp is None
    ]
    ready = {pod.component for pod in pods if pod.ready}
    wanted = {"sut", *(["recorder"] if state.recorded else []), *(["backend"] if state.backend_kind != "url" else [])}
    if not wanted <= ready:
        raise UserError(f"Of run {state.run} {', '.join(sorted(wanted - ready))} did not become ready.{_held_up(pods)}")
    if sum(pod.component == "sut" for pod in pods) > 1:
        raise UserError("There are several pods of the host: a run measures one. Set replicas=1.")
    state.servers = known(pods)
    return pods


def container(kube: Kube, pods: Sequence[Pod], component: str, name: str) -> Container:
    """A container of one of the run's pods. Raises NotThere when there is no such pod any more."""
    for pod in pods:
        if pod.component == component:
            return Container(kube, pod.name, name)
    raise NotThere(f"There is no pod of the {component} in the namespace {kube.namespace} any more.")


def beside_host(kube: Kube, pods: Sequence[Pod], state: State) -> Container:
    """The container next to the host, on its clock and its network, whose CPU is not the host's."""
    return container(kube, pods, "sut", "sampler" if state.sampled else "host")


def prepare_manifest(kube: Kube, pods: Sequence[Pod], asked: Asked, state: State) -> Manifest:
    """What is known before the load, of a run that has no folder yet. Raises KubeError, ApiLost."""
    built = _facts(container(kube, pods, "sut", "host"))
    beside = beside_host(kube, pods, state)
    rig = _facts(beside) if state.sampled else built
    machine = msgspec.json.decode(beside.python(_MACHINE), type=Machine)
    manifest = manifest_of(asked.options, asked.variant, built, rig, machine, run_id="")
    manifest.backend = asked.backend
    manifest.cluster = {"run": state.run, **cluster_facts(kube, pods, asked.release_values)}
    wheres = [container(kube, pods, "sut", "host"), *([beside] if state.sampled else [])]
    for where in wheres:
        if changed := _changed(where):
            text = (
                f"The image of {where.name} was built from other sources than those here ({', '.join(changed[:3])}"
                f"{', ...' if len(changed) > 3 else ''}). Build it again: make images"
            )
            manifest.findings.append(Finding(Reason.ENVIRONMENT_DIFFERS, text))
    own = lock_sha256(adapter_environment(asked.adapter.path))
    if built.lock_sha256 != own:
        text = (
            f"The host's image was built from another lock ({built.lock_sha256[:12]}...) than "
            f"{asked.adapter.path.name} has here ({own[:12]}...). Build it again: make images"
        )
        manifest.findings.append(Finding(Reason.ENVIRONMENT_DIFFERS, text))
    return manifest


def cluster_facts(kube: Kube, pods: Sequence[Pod], values: dict[str, Any]) -> dict[str, Any]:
    """Pods, their images and limits, and their nodes, by numbers: a manifest names nobody's machines."""
    names = list(dict.fromkeys(pod.spec.node_name for pod in pods if pod.spec.node_name))
    numbers = {name: number for number, name in enumerate(names, 1)}
    return {
        "placement": values["placement"]["ownNode"],
        "nodes": {str(number): _node(kube, name) for name, number in numbers.items()},
        "pods": [
            {
                "component": pod.component,
                "node": numbers.get(pod.spec.node_name or ""),
                "qos": pod.status.qos_class,
                "containers": {
                    one.name: {
                        "resources": one.resources,
                        "image": status.image if (status := pod.container(one.name)) else None,
                        "image_id": status.image_id if status else None,
                    }
                    for one in pod.spec.containers
                },
            }
            for pod in pods
        ],
    }


def _node(kube: Kube, name: str) -> dict[str, Any] | None:
    """None where nodes may not be read: facts are worth having, and not worth a run."""
    try:
        node = kube.node(name)
    except UserError:
        return None
    told = ("architecture", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion")
    return {
        "capacity": node.status.capacity,
        "allocatable": node.status.allocatable,
        **{name: node.status.node_info.get(name) for name in told},
    }


def _facts(where: Container) -> Facts:
    """Of the environment that an image was built with, by its stamp."""
    stamp = msgspec.json.decode(where.read(_STAMP), type=Stamp)
    return Facts(stamp.python, stamp.lock_sha256, len(stamp.distributions), stamp.disk_mb, stamp.distributions)


def _changed(where: Container) -> list[str]:
    """Files of this program that are not in the image as they are here."""
    here = ROOT / "src" / "agentdyno"
    there = where.sources(_SOURCES)
    own = {str(file.relative_to(here)): sha256(file.read_bytes()).hexdigest() for file in here.rglob("*.py")}
    return sorted(name for name in own.keys() | there.keys() if own.get(name) != there.get(name))


def _held_up(pods: Sequence[Pod]) -> str:
    """What the first pod that is not ready says of itself, ready to follow a sentence."""
    for pod in pods:
        scheduled = pod.condition("PodScheduled")
        if scheduled is not None and scheduled.status == "False":
            return f" The {pod.metadata.labels.get(COMPONENT)}'s pod finds no node: {scheduled.message}"
        for status in pod.status.container_statuses:
            state = status.state
            if state.waiting is not None and state.waiting.reason:
                ended = status.last_state.terminated
                before = "" if ended is None else f", after it {ended.describe()}"
                return f" {pod.name}, container {status.name}: {state.waiting.reason}{before}."
    return ""
