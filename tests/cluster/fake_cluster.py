"""A fake Kubernetes API with a fake release in it, over real HTTP and real websockets, and a helm that changes it.

What is run in a pod really runs, on this machine: paths, addresses and clocks of the pod are put in the place of ours.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from agentdyno.cluster import collect, kube, run
from agentdyno.cluster.objects import COMPLETION_INDEX, COMPONENT, RUN
from agentdyno.contract.invoke import InvokeRequest
from agentdyno.contract.run import LoadPlan
from agentdyno.record.cgroup import Cgroup
from agentdyno.rig.environments.environment import (
    ROOT,
    adapter_environment,
    lock_sha256,
    profiler_environment,
    rig_environment,
)
from tests.cluster import fake_load
from tests.cluster.api_faults import Fault
from tests.cluster.fake_load import Clocks
from tests.cluster.fake_pods import IMAGES, RELEASE, FakePods
from tests.cluster.pod_python import PodPython
from tests.load.contract_target import answer_of

KEY = "00112233445566778899aabbccddeeff"
NAMESPACE = "bench"
STAMP, PROFILER_STAMP = "/opt/agentdyno/venv/agentdyno-stamp.json", "/profiler/agentdyno-stamp.json"
VALUES: dict[str, Any] = {
    "framework": "lightagent",
    "replicas": 1,
    "run": {"id": "none"},
    "load": {"enabled": False, "ratePerWorker": 400},
    "sut": {"port": 8000, "sampler": {"enabled": True}},
    "backend": {
        "kind": "mock",
        "model": "agentdyno-mock",
        "port": 8001,
        "url": {"address": ""},
        "vllm": {
            "model": "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4",
            "revision": "",
            "maxModelLen": 8192,
            "toolCallParser": "hermes",
            "extraArgs": [],
        },
    },
    "recorder": {"enabled": True},
    "proof": {"existingSecret": ""},
    "placement": {"ownNode": "required"},
}
# Without urllib, whose import takes longer than all else that it does.
_HELM = """#!{python} -S
import json, socket, sys
words = sys.argv[1:]
values = [open(words[i + 1]).read() for i, word in enumerate(words) if word == "-f"]
sent = json.dumps({{"words": words, "values": values}}).encode()
with socket.create_connection(("127.0.0.1", {port}), timeout=30) as connection:
    connection.sendall(b"POST /fake/helm HTTP/1.0\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(sent) + sent)
    answer = connection.makefile("rb").read()
code, out, err = json.loads(answer.partition(b"\\r\\n\\r\\n")[2])
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


class FakeCluster(FakePods):
    """Use as a context manager. folder: for what pods hold.

    looks: how often the load's pods are looked at before it ends. on_list: called before each list of pods. faults:
    each for one request whose path holds a text; what it returns is answered. down: the API answers 503 to all.
    sources, locks: of an image, or of a folder in one, that was made of others than those here. python: what runs the
    pods' programs; None: each has an interpreter of its own.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.clocks = Clocks()
        self.given: dict[str, Any] = {"prometheus": {"enabled": False}}
        self.values = deepcopy(VALUES)
        self.helm_calls: list[list[str]] = []
        self.helm_fails: dict[str, str] = {}
        self.helm_says = ""
        self.manifest = "progressDeadlineSeconds: 600"
        self.faults: list[tuple[str, Fault]] = []
        self.asked: set[tuple[str, str]] = set()
        self.down = False
        self.rolled_in: list[str] = []
        self.compared: list[bool] = []
        self.looks = 2
        self.on_list: Callable[[FakeCluster], None] = lambda _: None
        self.cgroup = Cgroup(cpu_limit_cores=2.5, periods=1000, throttled_periods=0, oom_kills=0)
        self.sources: dict[str, Path] = {}
        self.locks: dict[str, str] = {}
        self.python: PodPython | None = None
        self.profiles = 0
        self.vllm_known = True
        self.t0_ns = 0
        self.worker_exit = {0: 0}
        self.left_out: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""

    def __enter__(self) -> FakeCluster:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        helm = self.folder / "helm"
        helm.write_text(_HELM.format(python=sys.executable, port=self.port))
        helm.chmod(helm.stat().st_mode | stat.S_IXUSR)
        self.helm = helm
        self.kubeconfig = self.folder / "kubeconfig"
        user, cluster = {"name": "u", "user": {"token": "t"}}, {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
        self.kubeconfig.write_text(
            json.dumps({**config, "users": [user], "clusters": [cluster], "contexts": [context]})
        )
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _start(self) -> None:
        app = web.Application(middlewares=[self._fault])
        core = f"/api/v1/namespaces/{NAMESPACE}"
        app.router.add_get(f"{core}/pods", self._list)
        app.router.add_get(f"{core}/pods/{{pod}}/exec", self._exec)
        app.router.add_get(f"{core}/pods/{{pod}}/log", self._log)
        app.router.add_get(f"{core}/secrets/{RELEASE}-proof", self._secret)
        app.router.add_get("/api/v1/nodes/{node}", self._node)
        app.router.add_post("/fake/helm", self._helm)
        app.router.add_route("*", "/fake/{pod}/{path:.*}", self._inside)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"

    # the API

    @web.middleware
    async def _fault(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.startswith("/api/v1/"):
            resource, *name = (
                request.path.removeprefix(f"/api/v1/namespaces/{NAMESPACE}").removeprefix("/api/v1").split("/")[1:]
            )
            self.asked.add(("/".join([resource, *name[1:]]), "get" if name else "list"))
        if self.down and request.path.startswith("/api"):
            return web.json_response({"kind": "Status", "code": 503}, status=503)
        for number, (path, fault) in enumerate(self.faults):
            if path in request.path:
                del self.faults[number]
                answer = await fault(request)
                if answer is not None:
                    return answer
                break
        return await handler(request)

    async def _list(self, request: web.Request) -> web.Response:
        wanted = dict(pair.split("=") for pair in request.query["labelSelector"].split(","))
        self._advance()
        self.on_list(self)
        items = [pod for pod in self.pods.values() if wanted.items() <= pod["metadata"]["labels"].items()]
        return web.json_response({"kind": "PodList", "items": items})

    async def _secret(self, _: web.Request) -> web.Response:
        return web.json_response({"data": {"proof-key": base64.b64encode(KEY.encode()).decode()}})

    async def _node(self, request: web.Request) -> web.Response:
        info = {"kubeletVersion": "v1.34.1", "architecture": "amd64", "machineID": "must not be kept"}
        return web.json_response(
            {"metadata": {"name": request.match_info["node"]}, "status": {"capacity": {"cpu": "4"}, "nodeInfo": info}}
        )

    async def _log(self, request: web.Request) -> web.Response:
        return web.Response(text=f"log of {request.query['container']}\n")

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        pod, container = request.match_info["pod"], request.query["container"]
        if pod not in self.pods:
            return web.json_response({"status": "Failure", "code": 404}, status=404)
        if self.pods[pod]["status"]["phase"] == "Pending":
            return web.json_response({"message": f"pod {pod} does not have a host assigned"}, status=400)
        if self.pods[pod]["status"]["phase"] in ("Failed", "Succeeded"):
            return web.json_response({"message": "cannot exec into a container in a completed pod"}, status=400)
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        command = [self._here(word, pod, container) for word in request.query.getall("command")]
        if "os.kill(1" in " ".join(command):
            self._end_load(143)
            code, out, err = 0, b"", b""
        else:
            code, out, err = await self._run(command)
        for channel, said in ((b"\1", out), (b"\2", err)):
            for at in range(0, len(said), 4096):
                await socket.send_bytes(channel + said[at : at + 4096])
        failure = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}
        await socket.send_bytes(b"\3" + json.dumps({"status": "Success"} if code == 0 else failure).encode())
        await socket.close()
        return socket

    async def _run(self, command: list[str]) -> tuple[int, bytes, bytes]:
        if self.python is not None and command[0] == sys.executable:
            return await self.python.run(command[1:])
        pipe = asyncio.subprocess.PIPE
        own = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        child = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=own)
        out, err = await child.communicate()
        return child.returncode or 0, out, err

    def _here(self, word: str, pod: str, container: str) -> str:
        word = word.replace("/records", str(self.records(pod)), 1) if word.startswith("/records") else word
        image = IMAGES.get(container, container)
        program = self.sources.get(container) or self.sources.get(image) or ROOT / "src" / "agentdyno"
        word = word.replace("/opt/agentdyno/src/agentdyno", str(program))
        for folder in ("adapters", "locustfiles"):
            word = word.replace(f"/opt/agentdyno/{folder}", str(self.sources.get(folder, ROOT / folder)))
        word = word.replace(STAMP, str(self._stamp(image))).replace(PROFILER_STAMP, str(self._stamp("profiler")))
        word = word.replace(f"http://{RELEASE}-backend:8001", f"{self.url}/fake/{self._name('backend')}")
        for port in (8000, 8001, 4318):
            word = word.replace(f"http://127.0.0.1:{port}", f"{self.url}/fake/{pod}")
        word = word.replace("time.monotonic_ns()", f"time.monotonic_ns() + {self._ahead_ns(pod)}")
        return sys.executable if word == "python" else word

    def _name(self, component: str) -> str:
        return next((n for n, p in self.pods.items() if p["metadata"]["labels"][COMPONENT] == component), "")

    def _stamp(self, image: str) -> Path:
        file = self.folder / f"stamp-{image}.json"
        environment = {
            "host": lambda: adapter_environment(ROOT / "adapters" / self.values["adapter"]),
            "rig": rig_environment,
            "mock": lambda: adapter_environment(ROOT / "adapters" / "bare"),
            "profiler": profiler_environment,
        }.get(image)
        if environment is not None:
            lock = self.locks.get(image) or lock_sha256(environment())
            stamp = {"format": 1, "lock_sha256": lock, "python": "3.12.12", "base": "", "place": ""}
            file.write_text(json.dumps({**stamp, "distributions": {"aiohttp": "3"}, "disk_mb": 1.0, "build_s": 1.0}))
        return file

    def _ahead_ns(self, pod: str) -> int:
        labels = self.pods[pod]["metadata"]["labels"]
        if labels[COMPONENT] == "load-worker":
            return self.clocks.worker[int(labels[COMPLETION_INDEX])]
        return self.clocks.host

    async def _inside(self, request: web.Request) -> web.Response:
        """The servers in the pods."""
        path = request.match_info["path"]
        if path == "agent/invoke":
            asked = msgspec.json.decode(await request.read(), type=InvokeRequest)
            return web.Response(body=msgspec.json.encode(answer_of(asked, bytes.fromhex(KEY))))
        plan = self.plan()
        if path == "debug/pprof/heap" and not self.values["run"].get("heapProfile"):
            return web.Response(status=501)
        if self.pods[request.match_info["pod"]]["spec"]["containers"][0]["name"] == "vllm":
            if not self.vllm_known:
                return web.Response(text="# of another server\n")
            served = plan if self.values["load"]["enabled"] else None
            return web.Response(body=fake_load.vllm(path, served, self.values["backend"]["model"]))
        answers = {
            "metrics": lambda: b"# metrics\n",
            "debug/pprof/heap": self._profile,
            "debug/probes": lambda: fake_load.probes(self.t0_ns + self.clocks.host),
            "stats": lambda: fake_load.stats(plan),
            "ledger": fake_load.ledger,
        }
        return web.Response(body=answers[path]()) if path in answers else web.Response(status=404)

    def _profile(self) -> bytes:
        self.profiles += 1
        return fake_load.profile(self.profiles)

    # the release

    async def _helm(self, request: web.Request) -> web.Response:
        asked = await request.json()
        words = asked["words"]
        self.helm_calls.append(words)
        failure = self.helm_fails.get(words[0], "")
        if failure and words[0] != "upgrade":
            return web.json_response([1, "", failure])
        if words[:2] == ["get", "values"]:
            return web.json_response([0, json.dumps(self.values if "--all" in words else self.given), ""])
        if "--dry-run=client" in words:
            return web.json_response([0, json.dumps({"manifest": self.manifest}), ""])
        if words[0] == "uninstall":
            self.pods.clear()
        if asked["values"]:
            values: dict[str, Any] = {}
            for text in asked["values"]:
                _merge(values, yaml.safe_load(text))
            self.set(values)  # with --reset-values: what is given is all that is given
        return web.json_response([int(bool(failure)), self.helm_says, failure])

    def set(self, values: dict[str, Any]) -> None:
        before, self.given, self.values = self.values, deepcopy(values), deepcopy(VALUES)
        _merge(self.values, values)
        run, load = self.values["run"]["id"], self.values["load"]["enabled"]
        if run != before["run"]["id"]:
            self._roll_in()
        if load and not before["load"]["enabled"]:
            self._begin_load()
        if not load:
            for name in [n for n, p in self.pods.items() if p["metadata"]["labels"][COMPONENT].startswith("load-")]:
                del self.pods[name]

    def _roll_in(self) -> None:
        llm = self.values["backend"]["kind"]
        kept = {name: pod for name, pod in self.pods.items() if pod["spec"]["containers"][0]["name"] == "vllm"}
        self.pods = dict(kept)
        sampled = self.values["sut"]["sampler"]["enabled"]
        self._pod("sut", ["host", "sampler"] if sampled else ["host"], "node-1")
        if not kept:
            self._pod("backend", [llm], "node-2")
        if llm == "vllm":
            self.named("backend")["metadata"]["labels"].pop(RUN, None)
        self._pod("recorder", ["recorder"], "node-3")
        self.rolled_in.append(self.values["framework"])
        self.compared.append(self.values["run"]["compared"])

    def _begin_load(self) -> None:
        self._left = self.looks
        self.t0_ns = time.monotonic_ns()
        self._pod("load-master", ["locust", "records"], "node-2")
        for worker in range(self.plan().workers):
            if worker not in self.left_out:
                self._pod("load-worker", ["locust", "records"], f"node-{worker + 2}", {COMPLETION_INDEX: str(worker)})

    def plan(self) -> LoadPlan:
        load, run = self.values["load"], self.values["run"]
        seconds = {name: float(load[name].removesuffix("s")) for name in ("warmup", "duration", "cooldown")}
        return LoadPlan(
            rate=load["rate"],
            **{f"{name}_s": value for name, value in seconds.items()},
            timeout_s=10.0,
            max_in_flight=1000,
            seed=run["seed"],
            scenario=run["scenario"],
            workers=load["workers"],
            trace_every=load["traceEvery"] if run["traces"] else 0,
        )

    def _advance(self) -> None:
        """One look nearer to the load's end."""
        if self.values["load"]["enabled"]:
            self._left -= 1
            if self._left == 0:
                self._end_load(0)

    def _end_load(self, code: int) -> None:
        plan = self.plan()
        for name, pod in self.pods.items():
            component = pod["metadata"]["labels"][COMPONENT]
            if component == "load-worker":
                worker = int(pod["metadata"]["labels"][COMPLETION_INDEX])
                self.ended(name, "locust", self.worker_exit.get(worker, code))
                fake_load.write_load(self.records(name), plan, worker, self.t0_ns + self.clocks.worker[worker])
            elif component == "load-master":
                self.ended(name, "locust", code)
            elif component == "sut":
                fake_load.write_samples(self.records(name), plan, self.t0_ns + self.clocks.host, self.cgroup)
            elif component == "recorder":
                fake_load.write_spans(self.records(name), plan, self.t0_ns, self.clocks)

    # pods

    def records(self, pod: str) -> Path:
        return self.folder / "pods" / pod

    def _pod(self, component: str, containers: list[str], node: str, labels: dict[str, str] | None = None) -> None:
        self.start_pod(component, containers, node, self.values["run"]["id"], labels)


def point_at(cluster: FakeCluster, patched: pytest.MonkeyPatch) -> None:
    """Let the rig find it, and look at it without waiting."""
    patched.setattr(run, "LOOK_S", 0.02)
    patched.setattr(collect, "SETTLE_PAUSE_S", 0.01)
    patched.setattr(kube, "PATIENCE_S", 20.0)
    patched.setenv("KUBECONFIG", str(cluster.kubeconfig))
    patched.setenv("HELM", str(cluster.helm))


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    """As helm lays values over values."""
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = deepcopy(value)
