"""Watching a host that is put under one load after the other, as `make capacity` and `make sweep` do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from agentdyno.record.manifest import Manifest
from agentdyno.record.sampler import Sample, Sampler
from agentdyno.rig.observation import Observation
from agentdyno.rig.processes import free_port
from agentdyno.rig.series.driven_host import DrivenHost


class WatchedSeries:
    """One observation over all the loads, so that `agentdyno top` and Prometheus see one run.

    Enter it when the host is ready; use once. observe: see Observation. metrics_port: for the metrics of each load;
    between two loads nobody looks for them, nor is anything known of CPU and memory.
    """

    def __init__(self, manifest: Manifest, raw: Path, observe: Path | None, driven: DrivenHost) -> None:
        self.metrics_port = free_port()
        self._driven = driven
        self._sampler: Sampler | None = None
        self._observation = Observation(manifest, raw, observe, self._latest, bench=False)

    def __enter__(self) -> WatchedSeries:
        """Serve and tell. Raises OSError."""
        self._point(None)
        self._observation.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the word back."""
        self._observation.__exit__(kind, error, trace)

    @contextmanager
    def load(self, sampler: Sampler) -> Iterator[None]:
        """Around one load. sampler: of the processes of this load. Raises OSError."""
        self._sampler = sampler
        self._point(f"http://127.0.0.1:{self.metrics_port}/metrics")
        self._observation.tell()
        try:
            yield
        finally:
            self._sampler = None  # it looks no more: what it last saw is not what is
            self._point(None)
            self._observation.tell()

    def _point(self, load_url: str | None) -> None:
        # The host may be another process than for the load before.
        self._observation.add("host", f"{self._driven.host.url}/metrics")
        self._observation.add("backend", self._driven.backend.metrics_url)
        self._observation.add("load", load_url)

    def _latest(self, *, detailed: bool) -> Sequence[Sample]:
        return () if self._sampler is None else self._sampler.latest(detailed=detailed)
