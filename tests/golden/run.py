"""A run whose every figure is known beforehand, written the way a real one is: raw lines, then parquet.

1000 arrivals a second: 1 s of warm-up, 5 s of measurement, 0.5 s of cool-down. The measured arrivals have the ranks
1 to 5000 in a scrambled order; rank j takes j * 10 us, and the higher ranks are sent later, so that the order by
latency is the order by rank whichever start it is counted from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agentdyno.analysis.run_data import RunData, read_run
from agentdyno.analysis.summary import summarise
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import BackendStage, BackendStats, LoadPlan, Outcome, RequestRecord, WorkerEnd
from agentdyno.contract.scenario import Workload
from agentdyno.contract.summary import Framework, Summary
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Backend, Machine, Manifest, Status
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import Sample

MS = 1_000_000
S = 1_000_000_000
MB = 1_000_000
T0 = 7_000 * S + 123_456_789  # of the machine's monotonic clock
RATE = 1000
COUNTS = {Stage.WARMUP: 1000, Stage.MEASURE: 5000, Stage.COOLDOWN: 500}
START, END = 1 * S, 6 * S  # the window, since t0
HOST, FORKED, ENDED, BACKEND, GENERATOR = 100, 101, 102, 200, 300

GcEvent = tuple[int, int, int, int]


def rank_of(index: int) -> int:
    """The rank of a measured arrival. The last 60 have the lowest, so that all are answered within the window."""
    return 5000 - index if index >= 4940 else 61 + index * 7 % 4940


def lateness_ns(rank: int) -> int:
    """0.5 ms for 4900 of them, 1.5 ms for 99, and 8 ms for one."""
    return 8 * MS if rank == 5000 else 1_500_000 if rank > 4900 else 500_000


def answered(record: RequestRecord, number: int) -> RequestRecord:
    """With the work of a correct answer: token counts alternate between two values."""
    return msgspec.structs.replace(
        record,
        status=200,
        trace_id=f"{record.index:032x}",
        response_bytes=900,
        llm_calls=4,
        tool_calls=3,
        prompt_bytes=9000 + 100 * (number % 2),
        prompt_tokens=2000 + 10 * (number % 2),
        completion_tokens=120,
        retries=0,
        connections=number % 2,
    )


def arrivals() -> list[RequestRecord]:
    """All of the run, each verified."""
    made: list[RequestRecord] = []
    for stage, count in COUNTS.items():
        for number in range(count):
            index = len(made)
            intended = index * S // RATE
            rank = rank_of(number) if stage is Stage.MEASURE else 20
            sent = intended + lateness_ns(rank)
            done = sent + rank * 10_000
            record = RequestRecord(index, stage.value, number, index % 2, intended, sent, done, Outcome.OK)
            made.append(answered(record, number))
    return made


def samples() -> list[Sample]:
    """Looks at -0.9 s, -0.65 s, ... 6.6 s after t0, never at the window's borders.

    The host's own process uses 0.3 cores all the time. It forks at 2.1 s, and that process uses 0.1 cores from then
    to 4.1 s, when it goes: 0.2 s. From 6.5 s on the host has given back 20 MB. Another of its processes had used 5 s
    and was gone before the window began.
    """
    made: list[Sample] = []
    for look in range(31):
        at = -900 * MS + look * 250 * MS
        seconds = at / S
        detailed = look % 4 == 0

        def add(role: str, pid: int, reading: Reading, at: int = at, look: int = look) -> None:
            made.append(Sample(T0 + at, look, role, pid, reading))

        own = Reading(
            rss_bytes=(90 if 3 < seconds < 3.2 else 60 if seconds > 6.5 else 80) * MB,
            rss_peak_bytes=95 * MB,
            pss_bytes=70 * MB if detailed else None,
            private_dirty_bytes=60 * MB if detailed else None,
            cpu_user_s=10 + 0.2 * seconds,
            cpu_system_s=3 + 0.1 * seconds,
        )
        add("host", HOST, own)
        if 2.1 <= seconds <= 4.1:
            forked = Reading(
                rss_bytes=30 * MB,
                rss_peak_bytes=31 * MB,
                pss_bytes=12 * MB if detailed else None,
                private_dirty_bytes=5 * MB if detailed else None,
                cpu_user_s=0.1 * (seconds - 2.1),
                cpu_system_s=0.0,
            )
            add("host", FORKED, forked)
        if seconds < 0:
            add("host", ENDED, Reading(rss_bytes=1 * MB, cpu_user_s=5.0 + seconds, cpu_system_s=0.0))
        add("backend", BACKEND, Reading(rss_bytes=500 * MB, cpu_user_s=0.9 * (seconds + 1), cpu_system_s=0.0))
        add("generator", GENERATOR, Reading(rss_bytes=400 * MB, cpu_user_s=0.5 * (seconds + 1), cpu_system_s=0.0))
    return made


def collections() -> list[GcEvent]:
    """Three within the window, the first at its very start; one just before, one at its very end."""
    return [
        (T0 + START - 1, 100 * MS, 2, 9),
        (T0 + START, 1 * MS, 0, 5),
        (T0 + 3 * S, 4_500_000, 2, 500),
        (T0 + END - 1, 2 * MS, 1, 7),
        (T0 + END, 200 * MS, 2, 9),
    ]


def ticks() -> list[tuple[int, int]]:
    """500 within the window, with lags of 0.1 to 50 ms in a scrambled order; a bad one on either side."""
    inside = [(T0 + START + i * 10 * MS, (1 + i * 7 % 500) * 100_000) for i in range(500)]
    return [(T0 + START - 1, 999 * MS), *inside, (T0 + END, 999 * MS)]


def manifest() -> Manifest:
    """Of a run that was finished."""
    return Manifest(
        run_id="golden",
        status=Status.FINISHED,
        started_utc="2026-01-02T03:04:05+00:00",
        framework=Framework("golden", "1.2.3", "default", "llm"),
        workload=Workload(),
        workload_hash=Workload().hash(),
        plan=LoadPlan(
            rate=float(RATE),
            warmup_s=1.0,
            duration_s=5.0,
            cooldown_s=0.5,
            timeout_s=10.0,
            max_in_flight=1000,
            seed=1,
            scenario="chain",
            workers=2,
        ),
        scheduled={stage.value: count for stage, count in COUNTS.items()},
        expected_llm_calls=4,
        expected_tool_calls=3,
        backend={"kind": "mock", "model": "scripted"},
        machine=Machine("Linux", "6.1", "x86_64", "a processor", 4, 8_000_000_000, "3.11.9"),
        environment={},
        rig_environment={},
        cores={"host": [0], "rest": [1, 2, 3]},
        cold_start_ms=812.5,
        rss_idle_bytes=50 * MB,
        t0_monotonic_ns=T0,
        moments_monotonic_ns={"drained": T0 + 6_300 * MS, "rested": T0 + 6_590 * MS},
    )


def ends() -> list[WorkerEnd]:
    """Two workers, each with half of the requests; the sum of all service times is what was in flight."""
    area_s = sum(range(1, 5001)) * 10_000 / S
    return [WorkerEnd(n, True, T0, area_s / 2, START, END, cpu_s) for n, cpu_s in ((0, 1.0), (1, 0.5))]


def backend() -> Backend:
    """It served what the hosts counted."""
    measured = BackendStage(
        calls=20_000,
        prompt_bytes=45_250_000,
        prompt_tokens=10_025_000,
        completion_tokens=600_000,
        tool_calls=15_000,
        connections=2500,
    )
    stages = {"m": measured, "w": BackendStage(calls=4000), "": BackendStage(calls=4)}
    return Backend(kind="mock", model="scripted", stats=BackendStats(stages, 0, 60, 0))


@dataclass
class GoldenRun:
    """The raw material of one run; change what a test is about, then write it."""

    records: list[RequestRecord] = field(default_factory=arrivals)
    samples: list[Sample] | None = field(default_factory=samples)
    gc: list[GcEvent] | None = field(default_factory=collections)
    loop: list[tuple[int, int]] | None = field(default_factory=ticks)
    manifest: Manifest = field(default_factory=manifest)
    ends: list[WorkerEnd] = field(default_factory=ends)
    backend: Backend | None = field(default_factory=backend)

    def change(self, number: int, /, **fields: object) -> None:
        """Change a measured arrival."""
        at = COUNTS[Stage.WARMUP] + number
        self.records[at] = msgspec.structs.replace(self.records[at], **fields)

    def write(self, parent: Path) -> RunFolder:
        """As the workers, the sampler and the rig write it; then turned into what is kept."""
        folder = RunFolder.create(parent, self.manifest.framework.name)
        for worker in (0, 1):
            own = [record for record in self.records if record.worker == worker]
            _lines(folder.raw / f"requests-{worker}.jsonl", own)
        for end in self.ends:
            (folder.raw / f"end-{end.worker}.json").write_bytes(msgspec.json.encode(end))
        if self.samples is not None:
            _lines(folder.raw / "resources.jsonl", self.samples)
            folder.write_resources(folder.samples())
        self.manifest.workers = folder.worker_ends()
        folder.write_requests(folder.requests())
        if self.gc is not None:
            folder.write_gc(self.gc)
        if self.loop is not None:
            folder.write_loop(self.loop)
        if self.backend is not None:
            folder.write_json("backend.json", self.backend)
        folder.write_json("manifest.json", self.manifest)
        folder.drop_raw()
        return folder

    def read(self, parent: Path) -> RunData:
        """Written and read back."""
        return read_run(self.write(parent).path)

    def summary(self, parent: Path) -> Summary:
        """Written, read back and summarised."""
        return summarise(self.read(parent))


def _lines(file: Path, objects: list[RequestRecord] | list[Sample]) -> None:
    file.write_bytes(b"".join(msgspec.json.encode(item) + b"\n" for item in objects))
