"""What a run asks of a cluster, answered by a node of containers: the few calls of the Kubernetes API, and helm.

The chart is rendered by the real helm; a release is the values that it was given.
"""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import threading
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from tests.k8s.containers import NODE, Node
from tests.k8s.pods import Object, of_kind
from tests.k8s.programs import CHART, Programs

NAMESPACE, RELEASE = "bench", "dyno"
_HELM = """#!{python} -S
import json, sys, urllib.request
words = sys.argv[1:]
values = [json.load(open(words[i + 1])) for i, word in enumerate(words) if word == "-f"]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
request = urllib.request.Request("{url}/helm", data=json.dumps({{"words": words, "values": values}}).encode())
with opener.open(request, timeout=600) as answer:
    code, out, err = json.load(answer)
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


class ContainerCluster:
    """Use as a context manager. given: the release's values. adapt: changes rendered objects before they are applied.

    on_look: called at each look at the pods while there is load.
    """

    def __init__(self, folder: Path, node: Node, tools: Programs, given: Object) -> None:
        self.node = node
        self.given = given
        self.adapt: Callable[[list[Object]], None] = lambda _: None
        self.on_look: Callable[[list[Object]], None] = lambda _: None
        self.objects: list[Object] = []
        self._folder = folder
        self._tools = tools
        self._alone = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> ContainerCluster:
        self.render("--set", "load.enabled=true,run.id=first")  # with all Services that there will be
        self.node.name_services(self.objects)
        self._thread.start()
        url = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)
        self.helm, self.kubeconfig = self._folder / "helm", self._folder / "kubeconfig"
        self.helm.write_text(_HELM.format(python=sys.executable, url=url))
        self.helm.chmod(self.helm.stat().st_mode | stat.S_IXUSR)
        named = {"users": {"user": {"token": "t"}}, "clusters": {"cluster": {"server": url}}}
        named["contexts"] = {"context": {"cluster": "x", "user": "x"}}
        config = {kind: [{"name": "x", **one}] for kind, one in named.items()}
        self.kubeconfig.write_text(json.dumps({"kind": "Config", "current-context": "x", **config}))
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _serve(self) -> str:
        app, core = web.Application(), f"/api/v1/namespaces/{NAMESPACE}"
        app.router.add_get(f"{core}/pods", self._list)
        app.router.add_get(f"{core}/pods/{{pod}}/exec", self._exec)
        app.router.add_get(f"{core}/pods/{{pod}}/log", self._log)
        app.router.add_get(f"{core}/secrets/{{name}}", self._secret)
        app.router.add_get("/api/v1/nodes/{node}", self._tell_node)
        app.router.add_post("/helm", self._answer_helm)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    # the API

    def _look(self) -> list[Object]:
        with self._alone:
            found = self.node.look()
            self.on_look(found)
            return found

    async def _list(self, request: web.Request) -> web.Response:
        wanted = dict(pair.split("=") for pair in request.query["labelSelector"].split(","))
        found = await asyncio.to_thread(self._look)
        items = [pod for pod in found if wanted.items() <= pod["metadata"]["labels"].items()]
        return web.json_response({"kind": "PodList", "items": items})

    async def _secret(self, request: web.Request) -> web.Response:
        return web.json_response(of_kind(self.objects, "Secret")[request.match_info["name"]])

    async def _tell_node(self, _: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": NODE}, "status": {"capacity": {}, "nodeInfo": {}}})

    async def _log(self, request: web.Request) -> web.Response:
        said = await asyncio.to_thread(self.node.log, request.match_info["pod"], request.query["container"])
        return web.Response(body=said)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        pod, container = request.match_info["pod"], request.query["container"]
        if pod not in self.node.started:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        done = await asyncio.to_thread(self.node.exec, pod, container, request.query.getall("command"))
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        for channel, said in ((b"\1", done.stdout), (b"\2", done.stderr)):
            for at in range(0, len(said), 1 << 16):
                await socket.send_bytes(channel + said[at : at + (1 << 16)])
        cause = {"reason": "ExitCode", "message": str(done.returncode)}
        failed = {"status": "Failure", "details": {"causes": [cause]}}
        await socket.send_bytes(b"\3" + json.dumps(failed if done.returncode else {"status": "Success"}).encode())
        await socket.close()
        return socket

    # helm

    async def _answer_helm(self, request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response(await asyncio.to_thread(self._helm, asked["words"], asked["values"]))

    def _helm(self, words: list[str], values: list[Object]) -> list[Any]:
        if words[:2] == ["get", "values"]:
            return [0, json.dumps(self.values if "--all" in words else self.given), ""]
        assert words[0] == "upgrade", words
        (self.given,) = values
        with self._alone:
            self.render()
            self.node.apply(self.objects)
            limit_s = float(words[words.index("--timeout") + 1].removesuffix("s")) if "--wait" in words else 0
            waiting = self.node.wait_ready(limit_s) if limit_s else ""
        return [1, "", f"Error: timed out waiting for {waiting}"] if waiting else [0, "", ""]

    @property
    def values(self) -> Object:
        """As `helm get values --all` tells them."""
        return _over(yaml.safe_load((CHART / "values.yaml").read_text()), self.given)

    def render(self, *more: str) -> None:
        file = self._folder / "values.json"
        file.write_text(json.dumps(self.given))
        self.objects = self._tools.objects(*more, values=[file], release=RELEASE)
        self.adapt(self.objects)


def _over(base: Object, more: Object) -> Object:
    """As helm lays values over values."""
    merged = deepcopy(base)
    for name, value in more.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = _over(merged[name], value) if both else deepcopy(value)
    return merged
