"""The fake release's pods as the API tells them, and what befalls them."""

from __future__ import annotations

from typing import Any

from agentdyno.cluster.objects import COMPONENT, INSTANCE, RUN

RELEASE = "dyno"
# What a container runs, where that is not what it is called.
IMAGES = dict.fromkeys(("sampler", "recorder", "locust", "records"), "rig")


class FakePods:
    """pods: by name. images: ids by container, where one is of another image."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.images: dict[str, str] = {}
        self._number = 0

    def named(self, component: str) -> dict[str, Any]:
        return next(p for p in self.pods.values() if p["metadata"]["labels"][COMPONENT] == component)

    def ended(self, pod: str, container: str, code: int, reason: str = "Error") -> None:
        for status in self.pods[pod]["status"]["containerStatuses"]:
            if status["name"] == container:
                status["state"] = {"terminated": {"exitCode": code, "reason": reason if code else "Completed"}}

    def evicted(self, component: str) -> None:
        message = "The node was low on resource: memory."
        self.named(component)["status"].update({"phase": "Failed", "reason": "Evicted", "message": message})

    def disrupted(self, component: str) -> None:
        message = "Eviction API: evicting"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": message,
        }
        self.named(component)["status"]["conditions"].append(condition)

    def replaced(self, component: str) -> None:
        pod = self.named(component)
        pod["metadata"]["uid"] += "-another"

    def unscheduled(self, component: str) -> None:
        message = "0/1 nodes are available: 1 Insufficient cpu"
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self.named(component)["status"].update({"phase": "Pending", "conditions": [condition], "containerStatuses": []})

    def waits(self, component: str, container: str, reason: str) -> None:
        for status in self.named(component)["status"]["containerStatuses"]:
            if status["name"] == container:
                status["state"] = {"waiting": {"reason": reason}}

    def restarted(self, component: str, container: str, code: int, reason: str = "Error") -> None:
        for status in self.named(component)["status"]["containerStatuses"]:
            if status["name"] == container:
                status["restartCount"] += 1
                status["lastState"] = {"terminated": {"exitCode": code, "reason": reason}}

    def start_pod(
        self, component: str, containers: list[str], node: str, run: str, labels: dict[str, str] | None = None
    ) -> None:
        self._number += 1
        name = f"{RELEASE}-{component}-{self._number}"
        own = {INSTANCE: RELEASE, RUN: run, COMPONENT: component, **(labels or {})}
        limits = {"limits": {"cpu": "2500m", "memory": "4Gi"}}
        self.pods[name] = {
            "metadata": {"name": name, "uid": f"uid-{self._number}", "labels": own},
            "spec": {"nodeName": node, "containers": [{"name": c, "resources": limits} for c in containers]},
            "status": {
                "phase": "Running",
                "qosClass": "Guaranteed",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    {
                        "name": c,
                        "restartCount": 0,
                        "state": {"running": {}},
                        "image": f"i/{IMAGES.get(c, c)}:1",
                        "imageID": self.images.get(c, f"i/{IMAGES.get(c, c)}@sha256:1"),
                    }
                    for c in containers
                ],
            },
        }
