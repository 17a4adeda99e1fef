"""One load after the other on one host, as `make capacity` and `make sweep` put them: what both have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from agentdyno.record.checksums import write_checksums
from agentdyno.record.sampler import Sampler, sampling
from agentdyno.rig import cores
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.preparation import first_manifest
from agentdyno.rig.processes import Child, ChildFailed, Children
from agentdyno.rig.series.driven_host import DrivenHost, follow_to_its_end
from agentdyno.rig.series.watched import WatchedSeries
from agentdyno.rig.task import Task

_POLL_S = 0.1
_GRACE_S = 3.0


class Series:
    """The host, the generators that load it, and the manifest of it all. Use once.

    task: as it was given. cores: who is kept on which.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.cores = cores.plan()
        self.driven = DrivenHost(task, self.cores)
        self.generators = Children(task.interruption.held)
        environment = adapter_environment(task.adapter.path)
        self.manifest = first_manifest(task.options, task.variant, environment, self.cores, task.folder.run_id)
        self.watched = WatchedSeries(self.manifest, task.folder.raw, task.options.observe, self.driven)

    def run(self, what: str, loads: Callable[[], None]) -> None:
        """Start the host and put the loads on it. Whatever happens, the children are ended and the manifest is kept.

        what: its name in the sentence of an interruption.
        """
        manifest = self.manifest

        def follow() -> None:
            cores.stay_on(self.cores.rest)
            manifest.calibration["before"] = cores.calibrate(self.cores.host)
            manifest.cold_start_ms = self.driven.start()
            manifest.backend |= self.driven.backend.told()
            with self.watched:
                loads()

        self.task.folder.write_json("manifest.json", manifest)
        follow_to_its_end(follow, manifest, self.task.interruption, what)
        self.generators.stop(_GRACE_S)
        self.driven.stop()
        manifest.calibration["after"] = cores.calibrate(self.cores.host)
        manifest.proof_key = self.driven.key.hex()
        self.task.folder.write_json("manifest.json", manifest)

    def close(self) -> None:
        """Leave what is kept, and its checksums."""
        self.task.folder.drop_raw()
        write_checksums(self.task.folder.path)

    def wait(
        self, what: str, generator: Child, sampler: Sampler, bound_s: float, show: Callable[[], None] | None = None
    ) -> None:
        """Until this load has ended by itself. what: its name in a sentence. show: called again and again meanwhile.

        Raises ChildFailed for a server or a generator that has ended otherwise or not at all, and Interrupted.
        """
        deadline = time.monotonic() + bound_s
        with self.watched.load(sampler):
            while generator.exit_code() is None:
                self.task.interruption.check()
                self.driven.refuse_dead()
                if show is not None:
                    show()
                if time.monotonic() > deadline:
                    text = f"{what} did not end within {bound_s:.0f} s.{generator.log_tail()}"
                    raise ChildFailed("generator", text)
                time.sleep(_POLL_S)
        if generator.exit_code() != 0:
            raise ChildFailed("generator", f"The load generator {generator.describe_exit()}.{generator.log_tail()}")

    def sampling(self, file: Path) -> AbstractContextManager[Sampler]:
        """Look at host and backend from outside while a load goes on: see sampler.sampling."""
        return sampling(file, {child.role: child.pid for child in self.driven.children()})
