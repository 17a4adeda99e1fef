"""A release of the tests' own on a kubeconfig's cluster: what it is given, and what is asked of it beside a run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from agentdyno.cluster.bench import install
from agentdyno.cluster.kube import Kube, NotThere
from agentdyno.cluster.objects import INSTANCE, Pod
from agentdyno.cluster.release import HelmError, Place, Release

LEAVING_S = 60.0


class OwnRelease:
    """values: what the cluster needs. folder: for what the tests lay over that."""

    def __init__(self, place: Place, values: Path, folder: Path) -> None:
        self.place = place
        self._values = values
        self._folder = folder

    def give(self, cpu: str, memory: str) -> None:
        """Install it with these limits of the host, or bring it to them, without anything of a run before."""
        prometheus = {"enabled": True, "scrapeInterval": "1s"}  # a run of half a minute is to be seen
        file = self._folder / "own-values.json"
        file.write_text(json.dumps({"sut": {"resources": {"cpu": cpu, "memory": memory}}, "prometheus": prometheus}))
        install(self.place, [self._values, file])

    def check(self) -> None:
        """`helm test`: the chart's own check. Raises AssertionError with what it said."""
        try:
            Release(self.place)._helm("test", self.place.release, "--timeout", "300s")
        except HelmError as error:
            try:
                said = self._kube.log(self.place.name("check"), "check").decode()
            except NotThere:
                said = "its pod is not there"
            raise AssertionError(f"{error}\n{said}") from error

    def ask(self, query: str) -> list[Any]:
        """Its Prometheus, in its own pod: from elsewhere the network policies let nobody through to it."""
        (pod,) = (pod for pod in self.pods() if pod.component == "prometheus")
        words = ("promtool", "query", "instant", "--format=json", "http://127.0.0.1:9090", query)
        ran = self._kube.run(pod.name, "prometheus", words)
        assert ran.exit_code == 0, ran.stderr.decode()
        found: list[Any] = json.loads(ran.stdout)
        return found

    def must_be_without_load(self) -> None:
        """Its pods go with their Jobs, a moment later."""
        deadline = time.monotonic() + LEAVING_S
        while left := [pod.name for pod in self.pods() if pod.component.startswith("load-")]:
            assert time.monotonic() < deadline, left
            time.sleep(0.5)

    def pods(self) -> list[Pod]:
        """All that are not being removed."""
        return [
            pod for pod in self._kube.pods({INSTANCE: self.place.release}) if pod.metadata.deletion_timestamp is None
        ]

    @property
    def _kube(self) -> Kube:
        return Kube.connect(self.place.namespace, self.place.context)
