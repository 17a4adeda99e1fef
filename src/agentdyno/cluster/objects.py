"""What is read of Kubernetes' objects: the few fields that a run goes by."""

from __future__ import annotations

from typing import Any

import msgspec

RUN, COMPONENT, INSTANCE = "agentdyno.io/run", "app.kubernetes.io/component", "app.kubernetes.io/instance"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    """Fields that are not named here are passed over."""


class Terminated(_Object, frozen=True):
    """How a container ended. reason: `Completed`, `Error`, `OOMKilled`, ..."""

    exit_code: int
    reason: str | None = None
    message: str | None = None

    def describe(self) -> str:
        """As the verb of a sentence."""
        why = f" ({self.reason})" if self.reason and self.reason not in ("Error", "Completed") else ""
        return f"ended with exit code {self.exit_code}{why}"

    @property
    def out_of_memory(self) -> bool:
        """Did the kernel kill it at its memory limit?"""
        return self.reason == "OOMKilled"


class Waiting(_Object, frozen=True):
    """Why a container does not run yet, or again."""

    reason: str | None = None
    message: str | None = None


class ContainerState(_Object, frozen=True):
    """One of three, or none while it is not known. running: with when it was started."""

    running: dict[str, Any] | None = None
    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(_Object, frozen=True):
    """A container as its node sees it. image_id: with the digest of what really runs."""

    name: str
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    image: str = ""
    image_id: str = msgspec.field(name="imageID", default="")


class Condition(_Object, frozen=True):
    """One of a pod's, such as `Ready`, `PodScheduled`, `DisruptionTarget`."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class PodStatus(_Object, frozen=True):
    """Where a pod stands."""

    phase: str = "Unknown"
    reason: str | None = None
    message: str | None = None
    qos_class: str | None = None
    conditions: list[Condition] = []
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []


class PodContainer(_Object, frozen=True):
    """A container as it was asked for."""

    name: str
    resources: dict[str, Any] = {}


class PodSpec(_Object, frozen=True):
    """Where a pod is, and what is in it."""

    node_name: str | None = None
    containers: list[PodContainer] = []


class Metadata(_Object, frozen=True):
    """Who an object is. deletion_timestamp: it is being removed."""

    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class Pod(_Object, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def component(self) -> str:
        """What it is in a release: `sut`, `backend`, `recorder`, `load-master`, `load-worker`."""
        return self.metadata.labels.get(COMPONENT, "")

    @property
    def ready(self) -> bool:
        """Do its probes say so?"""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    def container(self, name: str) -> ContainerStatus | None:
        """One of its containers; None while its node has not said anything of it."""
        return next((c for c in self.status.container_statuses if c.name == name), None)

    def ended(self, container: str) -> Terminated | None:
        """How that container ended; None while it has not."""
        status = self.container(container)
        return None if status is None else status.state.terminated

    def condition(self, kind: str) -> Condition | None:
        """One of its conditions."""
        return next((c for c in self.status.conditions if c.type == kind), None)


class PodList(_Object, frozen=True):
    """What a list request answers."""

    items: list[Pod] = []


class NodeStatus(_Object, frozen=True):
    """What a node has and runs."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    node_info: dict[str, Any] = {}


class Node(_Object, frozen=True):
    """A node."""

    metadata: Metadata
    status: NodeStatus = NodeStatus()


class SecretData(_Object, frozen=True):
    """A Secret's values, in base64."""

    data: dict[str, str] = {}
