"""`agentdyno soak`: one host under load for long, paused now and then to read what it holds when it is drained."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import msgspec

from agentdyno.analysis.growth import RESULT_FILE, Drained, Growth, Verdict, growth
from agentdyno.contract.run import ExitCode, LoadPlan, Outcome, RequestRecord
from agentdyno.record.checksums import write_checksums
from agentdyno.record.manifest import Status
from agentdyno.record.processes import Reading, default_reader
from agentdyno.record.sampler import Sample, Sampler, sampling
from agentdyno.rig.environments.building import ensure, say
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.interruption import Interrupted
from agentdyno.rig.native_spans import refuse_native_spans
from agentdyno.rig.observation import observed
from agentdyno.rig.options import Words, read
from agentdyno.rig.preparation import first_manifest
from agentdyno.rig.processes import ChildFailed
from agentdyno.rig.run_processes import RunProcesses
from agentdyno.rig.servers import STALLED, Host, WrongAnswer
from agentdyno.rig.task import Task, begun
from agentdyno.rig.vllm_cpu import refuse_vllm_cpu

SEGMENTS_MIN = 12
SEGMENT_S = 10.0
SETTLE_S = 1.0


class Segment(msgspec.Struct, frozen=True):
    """One stretch of load, and what the host's processes held after it. None: what could not be read, never 0."""

    arrivals: int
    ok: int
    rss_bytes: int | None
    pss_bytes: int | None
    uss_bytes: int | None


class Soak(msgspec.Struct, kw_only=True):
    """`soak.json`. The first segment is the warm-up, where the count of requests begins. growth: of the RSS. failure:
    why it ended early. not_readable: what could not be read of the host, and why.
    """

    framework: str
    segment_s: float
    settle_s: float
    segments: list[Segment] = []
    growth: Growth | None = None
    failure: str | None = None
    not_readable: list[str] = []


def soak(words: Words) -> ExitCode:
    """Run it and say whether memory grows; the folder's path is the last line on stdout.

    VALID when it does not grow, GATE_FAILED when it does, INVALID_RUN when that cannot be told.
    Raises OptionError, AdapterError, SetupError or FolderError.
    """
    options = read(words)
    refuse_native_spans(options, "soak")
    refuse_vllm_cpu(options, "soak")
    adapter, variant = resolve(options.framework)
    ensure(adapter_environment(adapter.path))
    with begun(options, adapter, variant) as task:
        result = _SoakRun(task).run()
    _print(result)
    sys.stdout.write(f"{task.folder.path}\n")
    return ExitCode.INTERRUPTED if task.interruption.asked else _exit_code(result)


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
    for said in (*result.not_readable, result.failure):
        if said is not None:
            sys.stdout.write(f"{said}\n")


class _SoakRun:
    """One soak, from an empty folder to its verdict. Use once."""

    def __init__(self, task: Task) -> None:
        self._processes = processes = RunProcesses(task)
        self._interruption = task.interruption
        self._folder = task.folder
        self._plan = task.options.plan
        self._name = task.variant.name
        self._reader = default_reader()
        self._sampler: Sampler | None = None
        self._count = max(SEGMENTS_MIN, round(self._plan.duration_s / SEGMENT_S))
        self._manifest = first_manifest(
            task.options, task.variant, processes.environment, processes.cores, task.folder.run_id
        )
        segment_s = self._plan.duration_s / self._count
        self._result = Soak(framework=self._name, segment_s=segment_s, settle_s=SETTLE_S)

    def run(self) -> Soak:
        """Whatever happens, the children are ended and what was read is judged and kept."""
        result, manifest = self._result, self._manifest
        manifest.status = Status.FAILED
        try:
            self._folder.reserve()
            try:
                self._interruption.listen()
                host = self._start()
                with observed(self._processes, self._manifest, self._latest, bench=False):
                    self._follow(host)
            finally:
                self._interruption.end()
            manifest.status = Status.FINISHED
        except Interrupted:
            manifest.status = Status.INTERRUPTED
            result.failure = "The soak was interrupted before its end."
        except (ChildFailed, WrongAnswer, OSError) as error:
            result.failure = str(error)
        self._processes.end_load()
        self._processes.end_servers()
        result.growth = growth(drained_points(result.segments))
        try:
            self._folder.release_reserve()
            self._folder.write_json(RESULT_FILE, result)
            self._folder.write_json("manifest.json", manifest)
            self._folder.drop_raw()
            write_checksums(self._folder.path)
        except OSError as error:
            result.failure = f"Not everything could be kept: {error}."
        return result

    def _start(self) -> Host:
        self._folder.write_json("manifest.json", self._manifest)
        say(f"{self._name}: starting")
        host = self._processes.start_host()
        self._processes.first_answer(host)
        self._manifest.backend |= self._processes.told()
        self._result.not_readable = self._reader.gaps(host.child.pid)
        return host

    def _follow(self, host: Host) -> None:
        plan = self._plan
        for number in range(self._count + 1):
            seconds = self._result.segment_s if number else max(plan.warmup_s, 1.0)
            one = msgspec.structs.replace(
                plan, warmup_s=0.0, cooldown_s=0.0, duration_s=seconds, seed=plan.seed + number, trace_every=0
            )
            segment = self._segment(host, one, number)
            self._result.segments.append(segment)
            self._folder.write_json(RESULT_FILE, self._result)
            held = "not readable" if segment.rss_bytes is None else f"{segment.rss_bytes / 1e6:.1f} MB"
            say(f"{self._name}: {number}/{self._count}  ok {segment.ok} of {segment.arrivals}  RSS {held}")

    def _segment(self, host: Host, plan: LoadPlan, number: int) -> Segment:
        records = self._folder.raw / f"{number:04}"
        records.mkdir()
        servers = {child.role: child.pid for child in self._processes.children()}
        # For whoever watches alone: it is gone with the records, and looks no more when the host is read.
        with sampling(records / "resources.jsonl", servers) as self._sampler:
            load = self._processes.start_load(plan, host, records)
            for child in load:
                self._sampler.watch("generator", child.pid)
            self._processes.follow(load, plan, self._refuse_stalled)
            self._processes.wait(SETTLE_S, self._refuse_stalled)
        outcomes = [
            msgspec.json.decode(line, type=RequestRecord).outcome
            for file in records.glob("requests-*.jsonl")
            for line in file.read_bytes().splitlines()
        ]
        shutil.rmtree(records)
        readings = [
            self._reader.read(pid, detailed=True) for pid in (host.child.pid, *self._reader.children(host.child.pid))
        ]
        self._processes.check()  # what was read of a host that has died since is no reading of it
        alive = [reading for reading in readings if reading is not None]
        sums = (_sum(alive, name) for name in ("rss_bytes", "pss_bytes", "uss_bytes"))
        return Segment(len(outcomes), outcomes.count(Outcome.OK), *sums)

    def _latest(self, *, detailed: bool) -> Sequence[Sample]:
        return () if self._sampler is None else self._sampler.latest(detailed=detailed)

    def _refuse_stalled(self) -> None:
        if self._processes.backend is not None and self._processes.backend.stalled():
            raise ChildFailed("backend", STALLED)


def _sum(readings: list[Reading], name: str) -> int | None:
    """Over the host's processes; None when it could not be read of one of them."""
    values = [getattr(reading, name) for reading in readings]
    return None if not values or None in values else sum(values)


def drained_points(segments: list[Segment]) -> list[Drained]:
    """Requests answered after the warm-up, and the RSS then; what could not be read is a gap."""
    points: list[Drained] = []
    requests = 0
    for number, segment in enumerate(segments):
        requests += segment.ok if number else 0
        if segment.rss_bytes is not None:
            points.append(Drained(requests, segment.rss_bytes))
    return points
