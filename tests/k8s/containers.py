"""A node that runs rendered pods as containers: their images, commands, variables, mounts, limits, users and probes.

It does what Kubernetes would do with the objects of the chart, as far as one machine can: a Deployment's container that
ends is started again and counted, a Job's is not, a Service is a name for the pod that it selects. What it does not:
NetworkPolicies, sizes of emptyDirs, placement, several pods behind one Service.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.k8s.engine import Engine
from tests.k8s.pods import Object, of_kind, pods, quantity

INDEX = "batch.kubernetes.io/job-completion-index"
NODE = "node-1"
_HOOK = "helm.sh/hook"
_KILLED = 128 + 9
_KERNEL_LOG = Path("/dev/kmsg")


@dataclass
class Started:
    """A pod that runs. what: the hash of all that it was made from. lasts: its containers are started again."""

    name: str
    what: str
    labels: dict[str, str]
    spec: Object
    ip: str
    lasts: bool
    uid: str = field(default_factory=lambda: secrets.token_hex(8))
    begun: set[str] = field(default_factory=set)
    ended: dict[str, list[Object]] = field(default_factory=dict)

    def container(self, name: str) -> str:
        """As podman knows it."""
        return f"{self.name}.{name}"


class Node:
    """All pods of one release. folder: for what they mount."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._folder = folder
        self._hosts: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self.started: dict[str, Started] = {}

    # what is wanted

    def apply(self, objects: list[Object]) -> None:
        """End what is no longer wanted as it is, then start what is new."""
        self._objects = objects
        self.name_services(objects)
        wanted = {}
        for pod in pods(objects):
            if _HOOK in pod.workload["metadata"].get("annotations", {}):
                continue
            what = hashlib.sha256(json.dumps([pod.labels, pod.spec], sort_keys=True).encode()).hexdigest()[:8]
            for index in range(pod.workload["spec"].get("completions", 1)):
                owner = pod.workload["metadata"]["name"]
                wanted[f"{owner}-{index}" if pod.workload["kind"] == "Job" else f"{owner}-{what}"] = (pod, what, index)
        for name in [name for name, pod in self.started.items() if name not in wanted or wanted[name][1] != pod.what]:
            self.remove(name)
        for pod in self.started.values():
            for volume in pod.spec.get("volumes", []):
                self._fill(pod, volume)
        for name, (pod, what, index) in wanted.items():
            if name not in self.started:
                job = pod.workload["kind"] == "Job"
                labels = pod.labels | ({INDEX: str(index)} if job else {})
                variables = {"JOB_COMPLETION_INDEX": str(index)} if job else {}
                self._start(Started(name, what, labels, pod.spec, self._address(pod.component), not job), variables)

    def run_hook(self, name: str) -> tuple[int, str]:
        """A pod of `helm test`, to its end: exit code and log."""
        (pod,) = (pod for pod in pods(self._objects) if pod.workload["metadata"]["name"] == name)
        started = Started(name, "", pod.labels, pod.spec, self._address(pod.component), lasts=False)
        self._start(started, {})
        container = started.container(pod.containers[0]["name"])
        code = int(self._engine("wait", container).stdout)
        said = self.log(name, pod.containers[0]["name"])
        self.remove(name)
        return code, said.decode()

    def remove(self, name: str) -> None:
        self.started.pop(name)
        self._engine("pod", "rm", "--force", "--time", "10", name)
        shutil.rmtree(self._folder / name)

    # what is there

    def look(self) -> list[Object]:
        """The pods as the API would tell them; what ended of those that last is started again."""
        names = [pod.container(c["name"]) for pod in self.started.values() for c in pod.spec["containers"]]
        found = {one["Name"]: one for one in self._engine.json("inspect", *names)} if names else {}
        return [self._status(pod, found) for pod in self.started.values()]

    def exec(self, pod: str, container: str, command: list[str]) -> Any:
        name = self.started[pod].container(container)
        return self._engine("exec", name, *command, check=False, text=False, timeout_s=300)

    def log(self, pod: str, container: str) -> bytes:
        name = f"{pod}.{container}"
        said = self._engine("logs", name, text=False)
        return said.stdout + said.stderr

    def wait_ready(self, timeout_s: float) -> str:
        """Until all probes say so; else which pod was not, in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            waiting = [pod["metadata"]["name"] for pod in self.look() if not _ready(pod)]
            if not waiting or time.monotonic() > deadline:
                return ", ".join(waiting)
            time.sleep(0.3)

    # one pod

    def _start(self, pod: Started, variables: dict[str, str]) -> None:
        self.started[pod.name] = pod
        shared = "net,ipc,uts" + (",pid" if pod.spec.get("shareProcessNamespace") else "")
        names = [word for service, ip in self._hosts.items() for word in ("--add-host", f"{service}:{ip}")]
        where = ["--network", self._engine.network, "--ip", pod.ip, "--cgroup-parent", f"/{self._engine.cgroup}"]
        self._engine("pod", "create", "--name", pod.name, "--share", shared, *where, *names)
        for volume in pod.spec.get("volumes", []):
            self._volume(pod, volume)
        for container in pod.spec.get("initContainers", []):  # one after the other, each to its end
            self._engine("run", "--rm", *self._words(pod, container, variables))
        for container in pod.spec["containers"]:
            self._engine("run", "--detach", *self._words(pod, container, variables))

    def _words(self, pod: Started, container: Object, more: dict[str, str]) -> list[str]:
        security, about = container["securityContext"], pod.spec["securityContext"]
        limits = container["resources"]["limits"]
        assert limits == container["resources"]["requests"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        memory = str(int(quantity(limits["memory"])))
        variables = {v["name"]: self._value(v) for v in container.get("env", [])} | more
        return [
            *("--pull", "never", "--pod", pod.name, "--name", pod.container(container["name"])),
            *("--user", f"{about['runAsUser']}:{about['runAsGroup']}", "--read-only", "--read-only-tmpfs=false"),
            *("--cap-drop", *security["capabilities"]["drop"], "--security-opt", "no-new-privileges"),
            # No swap, as on a node of Kubernetes.
            *("--cpus", f"{quantity(limits['cpu']):g}", "--memory", memory, "--memory-swap", memory),
            *("--no-healthcheck", "--restart", "no"),
            *(word for name, value in variables.items() for word in ("--env", f"{name}={value}")),
            *(word for mount in container.get("volumeMounts", []) for word in ("--volume", self._mount(pod, mount))),
            *(("--entrypoint", json.dumps(container["command"])) if "command" in container else ()),
            *(container["image"], *container.get("args", [])),
        ]

    def _value(self, variable: Object) -> str:
        if "value" in variable:
            return variable["value"]
        reference = variable["valueFrom"]["secretKeyRef"]
        data = of_kind(self._objects, "Secret")[reference["name"]]["data"]
        return base64.b64decode(data[reference["key"]]).decode()

    def _mount(self, pod: Started, mount: Object) -> str:
        folder = self._folder / pod.name / mount["name"]
        assert folder.is_dir(), f"{pod.name} has no volume {mount['name']}"
        return f"{folder}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"

    def _volume(self, pod: Started, volume: Object) -> None:
        folder = self._folder / pod.name / volume["name"]
        folder.mkdir(parents=True)
        if "configMap" not in volume:
            assert "emptyDir" in volume, volume
            os.chown(folder, 0, pod.spec["securityContext"]["fsGroup"])
            folder.chmod(0o2775)
        self._fill(pod, volume)

    def _fill(self, pod: Started, volume: Object) -> None:
        """A ConfigMap's files; those of a pod that runs are renewed, too."""
        if "configMap" in volume:
            data = of_kind(self._objects, "ConfigMap")[volume["configMap"]["name"]]["data"]
            lay_out(self._folder / pod.name / volume["name"], data)

    def _status(self, pod: Started, found: dict[str, Object]) -> Object:
        statuses = [self._container(pod, c, found[pod.container(c["name"])]) for c in pod.spec["containers"]]
        ended = [s["state"]["terminated"] for s in statuses if "terminated" in s["state"]]
        phase = "Running"
        if len(ended) == len(statuses):
            phase = "Failed" if any(one["exitCode"] for one in ended) else "Succeeded"
        ready = all(self._is_ready(pod, c) for c in pod.spec["containers"]) and not ended
        return {
            "metadata": {"name": pod.name, "uid": pod.uid, "labels": pod.labels},
            "spec": {"nodeName": NODE, "containers": pod.spec["containers"]},
            "status": {
                "phase": phase,
                "qosClass": "Guaranteed",
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                "containerStatuses": statuses,
            },
        }

    def _container(self, pod: Started, container: Object, found: Object) -> Object:
        state, ended = found["State"], pod.ended.setdefault(container["name"], [])
        image = found["ImageName"]
        status = {"name": container["name"], "image": image, "imageID": f"{image}@sha256:{found['Image']}"}
        if state["Status"] in ("exited", "stopped"):
            code = state["ExitCode"]
            killed = code == _KILLED and (state["OOMKilled"] or _out_of_memory(found["Id"]))
            reason = "OOMKilled" if killed else "Error" if code else "Completed"
            last = {"exitCode": code, "reason": reason}
            if not pod.lasts:
                return status | {"restartCount": 0, "state": {"terminated": last}}
            ended.append(last)
            pod.begun.discard(container["name"])
            self._engine("start", found["Name"])
        status |= {"restartCount": len(ended), "state": {"running": {"startedAt": state["StartedAt"]}}}
        return status | ({"lastState": {"terminated": ended[-1]}} if ended else {})

    def _is_ready(self, pod: Started, container: Object) -> bool:
        """A startup probe is asked until it has answered once, one of readiness each time."""
        for name in ("startupProbe", "readinessProbe"):
            if name not in container or (name == "startupProbe" and container["name"] in pod.begun):
                continue
            probe = container[name]
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            url = f"http://{pod.ip}:{ports[probe['httpGet']['port']]}{probe['httpGet']['path']}"
            if self._engine.ask(url, probe.get("timeoutSeconds", 1)) is None:
                return False
            pod.begun.add(container["name"])
        return True

    # the network

    def name_services(self, objects: list[Object]) -> None:
        """Give each Service an address, which its pods have whenever they are started."""
        for service in of_kind(objects, "Service").values():
            spec, name = service["spec"], service["metadata"]["name"]
            (behind,) = (p for p in pods(objects) if spec["selector"].items() <= p.labels.items())
            offered = {p["name"]: p["containerPort"] for c in behind.containers for p in c.get("ports", [])}
            for port in spec["ports"]:  # a name is all that a Service is here
                assert offered[port["targetPort"]] == port["port"], (name, port)
            self._hosts.setdefault(name, f"10.213.0.{10 + len(self._hosts)}")
            self._addresses[behind.component] = self._hosts[name]

    def _address(self, component: str) -> str:
        """That of its Service, or one that nobody has."""
        taken = {pod.ip for pod in self.started.values()}
        free = next(ip for last in range(100, 250) if (ip := f"10.213.0.{last}") not in taken)
        return self._addresses.get(component, free)


def lay_out(folder: Path, data: dict[str, str]) -> None:
    """A ConfigMap's files as a kubelet mounts them: links, through a folder and a link to it whose names are hidden,
    but not from whoever asks for all that is there.
    """
    (folder / "..1").mkdir(parents=True, exist_ok=True)
    links = {"..data": "..1", **{name: f"..data/{name}" for name in data}}
    for name, target in links.items():
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(target)
    for name, text in data.items():
        (folder / name).write_text(text)


def _ready(pod: Object) -> bool:
    return pod["status"]["conditions"][0]["status"] == "True"


def _out_of_memory(container: str) -> bool:
    """Has the kernel killed something in this container's group? By its log, as a kubelet reads it: conmon sees it in
    groups of version 2, and of version 1 not always before the group is gone.
    """
    log = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                line = os.read(log, 1 << 13)
            except BlockingIOError:
                return False
            except BrokenPipeError:  # overwritten meanwhile; the next is there
                continue
            if b"oom-kill:" in line and f"libpod-{container}".encode() in line:
                return True
    finally:
        os.close(log)
