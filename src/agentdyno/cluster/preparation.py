"""Rolling a framework in: host, backend and recorder of a new run, ready, and what the manifest says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentdyno.cluster.kube import Kube, NotThere
from agentdyno.cluster.objects import COMPONENT, INSTANCE, RUN, Pod
from agentdyno.cluster.programs import Container
from agentdyno.cluster.release import HelmError, Release
from agentdyno.cluster.settings import Asked, State, run_values
from agentdyno.cluster.sources import differences, facts, host_image, mock_image, rig_image
from agentdyno.cluster.watch import SERVERS, known
from agentdyno.contract.errors import UserError
from agentdyno.record.manifest import Machine, Manifest
from agentdyno.rig.backend_options import MOCK
from agentdyno.rig.environments.building import say
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.preparation import manifest_of
from agentdyno.rig.profile import TOP_LEVEL, packages_among
from agentdyno.rig.snapshots import heap_facts

# Of a container that waits for another, which says more.
_BEFORE_IT = ("PodInitializing", "ContainerCreating")
PROFILER_STAMP = "/profiler/agentdyno-stamp.json"
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
        held = held_up(run_pods(kube, state))
        raise HelmError(f"{error}{held}") from error
    pods = [
        pod for pod in run_pods(kube, state) if pod.component in SERVERS and pod.metadata.deletion_timestamp is None
    ]
    ready = {pod.component for pod in pods if pod.ready}
    wanted = {"sut", *(["recorder"] if state.recorded else []), *(["backend"] if state.backend_kind != "url" else [])}
    if not wanted <= ready:
        raise UserError(f"Of run {state.run} {', '.join(sorted(wanted - ready))} did not become ready.{held_up(pods)}")
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


def rig_container(kube: Kube, pods: Sequence[Pod], state: State) -> Container | None:
    """One that runs the rig's image and is there before the load; None where the release has neither."""
    if state.sampled:
        return beside_host(kube, pods, state)
    there = any(pod.component == "recorder" for pod in pods)
    return container(kube, pods, "recorder", "recorder") if there else None


def prepare_manifest(kube: Kube, pods: Sequence[Pod], asked: Asked, state: State) -> Manifest:
    """What is known before the load, of a run that has no folder yet. Raises KubeError, ApiLost."""
    host, rig = container(kube, pods, "sut", "host"), rig_container(kube, pods, state)
    built = facts(host)
    machine = msgspec.json.decode(host.python(_MACHINE), type=Machine)
    manifest = manifest_of(
        asked.options, asked.variant, built, built if rig is None else facts(rig), machine, run_id=""
    )
    manifest.backend = {**asked.backend}
    state.nodes = list(dict.fromkeys(pod.spec.node_name for pod in pods if pod.spec.node_name))
    manifest.cluster = {
        "run": state.run,
        "placement": asked.release_values["placement"]["ownNode"],
        "nodes": node_facts(kube, state.nodes),
        "pods": pod_facts(pods, state.nodes),
    }
    manifest.findings += differences(host, host_image(asked.adapter.path))
    if rig is not None:
        manifest.findings += differences(rig, rig_image())
        state.rig_images = [image for pod in pods if (image := _image_id(pod, rig)) is not None]
    if state.backend_kind == MOCK:
        manifest.findings += differences(container(kube, pods, "backend", "mock"), mock_image())
    if asked.heap_interval_s is not None:
        manifest.heap_profile = _heap_facts(host, asked, asked.heap_interval_s)
    return manifest


def _image_id(pod: Pod, where: Container) -> str | None:
    """Of that container, in its pod."""
    status = pod.container(where.name) if pod.name == where.pod else None
    return status.image_id if status else None


def _heap_facts(host: Container, asked: Asked, interval_s: float) -> dict[str, Any]:
    """The profiler is what its image was made of, and the framework's packages are those in the host's image."""
    packages = packages_among(
        host.import_names(TOP_LEVEL.pattern), adapter_environment(asked.adapter.path), asked.variant
    )
    return heap_facts(interval_s, packages, facts(host, PROFILER_STAMP))


def node_facts(kube: Kube, names: Sequence[str]) -> dict[str, Any]:
    """Nodes by their numbers: a manifest names nobody's machines."""
    return {str(number): _node(kube, name) for number, name in enumerate(names, 1)}


def pod_facts(pods: Sequence[Pod], nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Pods, where they are, their images and limits. nodes: names, in the order of their numbers."""
    numbers = {name: number for number, name in enumerate(nodes, 1)}
    return [
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
    ]


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


def held_up(pods: Sequence[Pod]) -> str:
    """What the first pod that is not ready says of itself, ready to follow a sentence; else empty."""
    for pod in pods:
        scheduled = pod.condition("PodScheduled")
        if scheduled is not None and scheduled.status == "False":
            return f" The {pod.metadata.labels.get(COMPONENT)}'s pod finds no node: {scheduled.message}"
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            state = status.state
            if state.waiting is not None and state.waiting.reason not in (None, *_BEFORE_IT):
                ended = status.last_state.terminated
                before = "" if ended is None else f", after it {ended.describe()}"
                return f" {pod.name}, container {status.name}: {state.waiting.reason}{before}."
    late = [pod.name for pod in pods if not pod.ready and _runs(pod)]
    return f" {late[0]} runs and was not ready in time; its log says more." if late else ""


def _runs(pod: Pod) -> bool:
    """Do all its containers? Those of a load that is over do not."""
    statuses = pod.status.container_statuses
    return bool(statuses) and all(status.state.running is not None for status in statuses)
