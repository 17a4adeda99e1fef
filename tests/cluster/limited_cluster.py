"""A fake cluster that holds a host to its limits as a node would, and has a Prometheus in a pod of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web

from agentdyno.record.cgroup import Cgroup
from tests.cluster.fake_cluster import FakeCluster
from tests.k8s.pods import quantity

NEEDED_CORES, HELD_BYTES = 0.3, 60 << 20  # of a host


class LimitedCluster(FakeCluster):
    """limits: of the host in this run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.limits = {"cpu": "1", "memory": "512Mi"}
        self.on_list = lambda _: self._kill()
        self.profiles = 1  # the first one has 2 MB

    def _roll_in(self) -> None:
        super()._roll_in()
        self._pod("prometheus", ["prometheus"], "node-3")
        sut = self.named("sut")
        self.limits = self.values["sut"].get("resources", self.limits)
        sut["spec"]["containers"][0]["resources"] = {"limits": self.limits}
        short = quantity(self.limits["cpu"]) < NEEDED_CORES
        self.cgroup = Cgroup(
            cpu_limit_cores=quantity(self.limits["cpu"]),
            periods=330,
            throttled_periods=300 if short else 0,
            throttled_s=20.0 if short else 0.0,
            memory_limit_bytes=int(quantity(self.limits["memory"])),
            memory_peak_bytes=HELD_BYTES,
            oom_kills=0,
        )
        self.records(sut["metadata"]["name"]).mkdir(parents=True)

    def _here(self, word: str, pod: str, container: str) -> str:
        word = super()._here(word, pod, container).replace("/dev/shm", str(self.records(pod)))
        return word.replace("http://127.0.0.1:9090", f"{self.url}/fake/{pod}")

    def _kill(self) -> None:
        for name in [name for name, pod in self.pods.items() if pod["spec"]["containers"][0]["name"] == "host"]:
            full = self.records(name) / "full"
            if full.exists() and HELD_BYTES + full.stat().st_size > quantity(self.limits["memory"]):
                full.unlink()
                self.restarted("sut", "host", 137, "OOMKilled")

    async def _inside(self, request: web.Request) -> web.Response:
        if request.match_info["path"] != "api/v1/query":
            return await super()._inside(request)
        try:
            result = self.series(str((await request.post())["query"]))
        except KeyError:
            said = {"status": "error", "errorType": "bad_data", "error": "no such series"}
            return web.json_response(said, status=400)
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    def series(self, query: str) -> list[Any]:
        """What its Prometheus has seen of the run. Raises KeyError for another question than those of the tests."""
        which = f'{{run="{self.values["run"]["id"]}"}}'
        pods = {"host": self._name("sut"), "backend": self._name("backend"), "generator": "dyno-load-master"}
        known = {
            f"max_over_time(up{which}[5m])": [self._series("1", role=role, pod=pod) for role, pod in pods.items()],
            f"max_over_time(run:agentdyno_load_goodput:rate20s{which}[5m])": [self._series("19.8")],
        }
        return known[query]

    def _series(self, value: str, **labels: str) -> Any:
        own = {"run": self.values["run"]["id"], "framework": self.values["framework"]}
        return {"metric": {**own, **labels}, "value": [1.0, value]}
