"""A host whose memory is filled in the middle of the load, so that the kernel kills it at its limit."""

from __future__ import annotations

import threading
from contextlib import suppress

from agentdyno.cluster.kube import ApiLost, Kube, KubeError
from agentdyno.cluster.objects import INSTANCE
from agentdyno.cluster.release import Place
from agentdyno.cluster.watch import load_running

LIMIT = "80Mi"  # a host has room in it, and not with what is put beside it
# Shared memory is nobody's own, so that of all processes the kernel takes the largest: the host.
FILL = ("python", "-S", "-c", "f = open('/dev/shm/full', 'wb')\nfor _ in range(62): f.write(bytes(1 << 20))")
LOOK_S = 0.5


class Filler:
    """Fills the host's memory once the load's master and workers have all been started, by the API, beside a bench.

    Use as a context manager around the bench. filled: the pod, once there was one.
    """

    def __init__(self, place: Place, workers: int) -> None:
        self.filled: str | None = None
        self._place = place
        self._workers = workers
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._fill)

    def __enter__(self) -> Filler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _fill(self) -> None:
        kube = Kube.connect(self._place.namespace, self._place.context)
        while not self._over.wait(LOOK_S):
            pods = [
                pod for pod in kube.pods({INSTANCE: self._place.release}) if pod.metadata.deletion_timestamp is None
            ]
            if load_running(pods, self._workers):
                (self.filled,) = (pod.name for pod in pods if pod.component == "sut")
                with suppress(KubeError, ApiLost):  # what fills it may end with the host, before it could say so
                    kube.run(self.filled, "host", FILL)
                return
