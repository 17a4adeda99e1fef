"""`agentdyno soak`: one host under load for long, paused now and then to read what it holds when it is drained."""

from __future__ import annotations

import shutil
import sys
import time
from secrets import token_bytes

import msgspec

from agentdyno.analysis.growth import Drained, Growth, Verdict, growth
from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.run import ExitCode, LoadPlan, Outcome, RequestRecord
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Manifest, Status
from agentdyno.record.processes import Reading, default_reader
from agentdyno.rig import cores
from agentdyno.rig.building import ensure, say
from agentdyno.rig.environments import adapter_environment
from agentdyno.rig.frameworks import resolve
from agentdyno.rig.interruption import Interrupted, Interruption
from agentdyno.rig.load import start_load
from agentdyno.rig.observation import Observation
from agentdyno.rig.options import BenchOptions, Words, read
from agentdyno.rig.preparation import first_manifest
from agentdyno.rig.processes import ChildFailed, Children
from agentdyno.rig.servers import Host, WrongAnswer, first_answer, start_backend, start_host

SEGMENTS_MIN = 12
SEGMENT_S = 10.0
SETTLE_S = 1.0
_POLL_S = 0.1
_LOAD_START_S = 30.0
_GRACE_S = 12.0


class Segment(msgspec.Struct, frozen=True):
    """One stretch of load, and what the host's processes held after it. None: what could not be read, never 0."""

    arrivals: int
    ok: int
    rss_bytes: int | None
    pss_bytes: int | None
    uss_bytes: int | None


class Soak(msgspec.Struct, kw_only=True):
    """`soak.json`. The first segment is the warm-up, where the count of requests begins. growth: of the RSS. failure:
    why it ended early.
    """

    framework: str
    segment_s: float
    settle_s: float
    segments: list[Segment] = []
    growth: Growth | None = None
    failure: str | None = None


def soak(words: Words) -> ExitCode:
    """Run it and say whether memory grows; the folder's path is the last line on stdout.

    VALID when it does not grow, GATE_FAILED when it does, INVALID_RUN when that cannot be told.
    Raises OptionError, AdapterError, SetupError or FolderError.
    """
    options = read(words)
    adapter, variant = resolve(options.framework)
    ensure(adapter_environment(adapter.path))
    with Interruption() as interruption:
        folder = RunFolder.create(options.out, variant.name)
        run = _SoakRun(options, adapter, variant, folder, interruption)
        result = run.run()
    _print(result)
    sys.stdout.write(f"{folder.path}\n")
    return ExitCode.INTERRUPTED if interruption.asked else _exit_code(result)


def _exit_code(result: Soak) -> ExitCode:
    verdict = result.growth.verdict if result.growth is not None and result.failure is None else None
    codes = {Verdict.GROWS: ExitCode.GATE_FAILED, Verdict.DOES_NOT_GROW: ExitCode.VALID}
    return ExitCode.INVALID_RUN if verdict is None else codes.get(verdict, ExitCode.INVALID_RUN)


def _print(result: Soak) -> None:
    known = [segment for segment in result.segments if segment.rss_bytes is not None]
    if known:
        first, last = ((known[at].rss_bytes or 0) / 1e6 for at in (0, -1))
        sys.stdout.write(f"RSS when drained: {first:.1f} MB after the warm-up, {last:.1f} MB at the end.\n")
    if result.growth is not None:
        fit = "" if result.growth.r2 is None else f" R2 {result.growth.r2:.2f}."
        sys.stdout.write(f"{result.growth.sentence}{fit}\n")
    if result.failure is not None:
        sys.stdout.write(f"{result.failure}\n")


class _SoakRun:
    """One soak, from an empty folder to its verdict. Use once."""

    def __init__(
        self,
        options: BenchOptions,
        adapter: AdapterFolder,
        variant: Variant,
        folder: RunFolder,
        interruption: Interruption,
    ) -> None:
        self._options = options
        self._adapter = adapter
        self._variant = variant
        self._folder = folder
        self._interruption = interruption
        self._environment = adapter_environment(adapter.path)
        self._cores = cores.plan()
        self._key = token_bytes(KEY_BYTES)
        self._servers = Children(interruption.held)
        self._generators = Children(interruption.held)
        self._reader = default_reader()
        self._count = max(SEGMENTS_MIN, round(options.plan.duration_s / SEGMENT_S))
        self._manifest: Manifest = first_manifest(options, variant, self._environment, self._cores, folder.run_id)
        segment_s = options.plan.duration_s / self._count
        self._result = Soak(framework=variant.name, segment_s=segment_s, settle_s=SETTLE_S)

    def run(self) -> Soak:
        """Whatever happens, the children are ended and what was read is judged and kept."""
        result, manifest = self._result, self._manifest
        manifest.status = Status.FAILED
        try:
            try:
                self._interruption.listen()
                host = self._start()
                with self._observed(host) as observation:
                    self._follow(host, observation.load_port)
            finally:
                self._interruption.end()
            manifest.status = Status.FINISHED
        except Interrupted:
            manifest.status = Status.INTERRUPTED
            result.failure = "The soak was interrupted before its end."
        except (ChildFailed, WrongAnswer, OSError) as error:
            result.failure = str(error)
        self._generators.stop(_GRACE_S)
        self._servers.stop(_GRACE_S)
        result.growth = growth(_points(result.segments))
        self._folder.write_json("soak.json", result)
        self._folder.write_json("manifest.json", manifest)
        self._folder.drop_raw()
        return result

    def _start(self) -> Host:
        folder, options = self._folder, self._options
        folder.write_json("manifest.json", self._manifest)
        backend = start_backend(options, self._cores.rest, folder.log("backend"), self._servers)
        host = start_host(
            self._environment.python,
            self._adapter,
            self._variant,
            options,
            backend_url=backend.url,
            key=self._key,
            cores=self._cores.host,
            log=folder.log("host"),
            children=self._servers,
        )
        first_answer(host.url, options, self._key)
        return host

    def _observed(self, host: Host) -> Observation:
        observation = Observation(self._manifest, self._folder.raw, self._options.observe)
        observation.add("host", host.url)
        return observation

    def _follow(self, host: Host, metrics_port: int) -> None:
        plan = self._options.plan
        for number in range(self._count + 1):
            seconds = self._result.segment_s if number else max(plan.warmup_s, 1.0)
            one = msgspec.structs.replace(
                plan, warmup_s=0.0, cooldown_s=0.0, duration_s=seconds, seed=plan.seed + number, trace_every=0
            )
            segment = self._segment(host, one, number, metrics_port)
            self._result.segments.append(segment)
            self._folder.write_json("soak.json", self._result)
            held = "not readable" if segment.rss_bytes is None else f"{segment.rss_bytes / 1e6:.1f} MB"
            say(f"{self._variant.name}: {number}/{self._count}  ok {segment.ok} of {segment.arrivals}  RSS {held}")

    def _segment(self, host: Host, plan: LoadPlan, number: int, metrics_port: int) -> Segment:
        records = self._folder.raw / f"{number:04}"
        records.mkdir()
        load = start_load(
            plan,
            host.url,
            records,
            self._key,
            self._cores.rest,
            self._folder.log,
            self._generators,
            metrics_port=metrics_port,
        )
        deadline = time.monotonic() + _LOAD_START_S + plan.duration_s + plan.timeout_s
        while load[0].exit_code() is None:
            self._interruption.check()
            self._refuse_dead(host)
            if time.monotonic() > deadline:
                raise ChildFailed("generator", f"The load generator did not end.{load[0].log_tail()}")
            time.sleep(_POLL_S)
        if load[0].exit_code() != 0:
            raise ChildFailed("generator", f"The load generator {load[0].describe_exit()}.{load[0].log_tail()}")
        time.sleep(SETTLE_S)
        self._refuse_dead(host)
        outcomes = [
            msgspec.json.decode(line, type=RequestRecord).outcome
            for file in records.glob("requests-*.jsonl")
            for line in file.read_bytes().splitlines()
        ]
        shutil.rmtree(records)
        readings = [
            self._reader.read(pid, detailed=True) for pid in (host.child.pid, *self._reader.children(host.child.pid))
        ]
        alive = [reading for reading in readings if reading is not None]
        sums = (_sum(alive, name) for name in ("rss_bytes", "pss_bytes", "uss_bytes"))
        return Segment(len(outcomes), outcomes.count(Outcome.OK), *sums)

    def _refuse_dead(self, host: Host) -> None:
        if host.child.exit_code() is not None:
            text = f"The host {host.child.describe_exit()} in the middle of the soak.{host.child.log_tail()}"
            raise ChildFailed("host", text)


def _sum(readings: list[Reading], name: str) -> int | None:
    """Over the host's processes; None when it could not be read of one of them."""
    values = [getattr(reading, name) for reading in readings]
    return None if not values or None in values else sum(values)


def _points(segments: list[Segment]) -> list[Drained]:
    """Requests answered after the warm-up, and the RSS then; what could not be read is a gap."""
    points: list[Drained] = []
    requests = 0
    for number, segment in enumerate(segments):
        requests += segment.ok if number else 0
        if segment.rss_bytes is not None:
            points.append(Drained(requests, segment.rss_bytes))
    return points
