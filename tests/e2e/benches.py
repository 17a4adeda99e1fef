"""Real benches: `agentdyno bench` in processes of their own, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from agentdyno.record.checksums import checksum_faults
from agentdyno.rig.environments.environment import ROOT

PROGRAM = Path(sys.executable).with_name("agentdyno")
ADAPTERS = Path(__file__).with_name("adapters")
SHORT = ("--rate", "20", "--warmup", "500ms", "--duration", "2s", "--cooldown", "0s")
# Whatever comes due while the machine stands still is taken when it goes on.
LONG = ("--rate", "20", "--warmup", "1500ms", "--duration", "120s", "--cooldown", "0s", "--admission", "off")


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """What `condition` gives once that is true."""
    end_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"waited {timeout_s} s in vain for {what}"
        time.sleep(0.02)
    return found


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def processes_of(out: Path) -> dict[int, str]:
    """The live processes that write a log into a run folder under `out`: a run's children and theirs, and nobody's
    else; by the name of the log.
    """
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            log = Path(os.readlink(entry / "fd" / "1"))  # noqa: PTH115 - "(deleted)" may follow
        except OSError:
            continue
        if log.is_relative_to(out):
            found[int(entry.name)] = log.name.removesuffix(".log")
    return found


@dataclass
class Bench:
    """One bench that was started. out: the parent of its run folder. temporary: its TMPDIR."""

    process: subprocess.Popen[str]
    out: Path
    temporary: Path

    def folder(self) -> Path:
        folders = list(self.out.iterdir())
        assert len(folders) == 1, folders
        return folders[0]

    def child(self, log: str) -> int:
        """The pid of the child that writes `log`."""
        found = wait_for(lambda: [pid for pid, name in processes_of(self.out).items() if name == log], f"the {log}")
        return int(found[0])

    def stage(self, stage: str) -> None:
        """Wait until some requests of `stage` have been answered and recorded."""
        wait_for(lambda: self._recorded(stage) >= 5, f"the stage {stage}")

    def _recorded(self, stage: str) -> int:
        files = self.out.glob("*/raw/requests-*.jsonl")
        return sum(file.read_text(encoding="utf-8").count(f'"stage":"{stage}"') for file in files)

    def interrupt(self, number: signal.Signals) -> None:
        """As a terminal does it: to the whole process group."""
        os.killpg(self.process.pid, number)

    def end(self, timeout_s: float = 60.0) -> Ended:
        """Wait for its end; whatever happens, no process of it is left."""
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        finally:
            self.kill()
        left = processes_of(self.out)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        folders = sorted(self.out.iterdir()) if self.out.is_dir() else []
        return Ended(self.process.returncode, out, err, folders, left, sorted(self.temporary.iterdir()))

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass
class Ended:
    """What a bench came to. left: processes of it that were still there. temporary: what is left in its TMPDIR."""

    code: int
    out: str
    err: str
    folders: list[Path]
    left: dict[int, str]
    temporary: list[Path]

    @property
    def folder(self) -> Path:
        assert len(self.folders) == 1, (self.folders, self.err)
        return self.folders[0]

    @property
    def summary(self) -> dict[str, Any]:
        found = strict_json((self.folder / "summary.json").read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found

    @property
    def manifest(self) -> dict[str, Any]:
        found = strict_json((self.folder / "manifest.json").read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found

    @property
    def backend(self) -> dict[str, Any]:
        found = strict_json((self.folder / "backend.json").read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found

    @property
    def reasons(self) -> dict[str, str]:
        """The verdict's reasons: code and sentence."""
        return {reason["code"]: reason["message"] for reason in self.summary["verdict"]["reasons"]}

    @property
    def notes(self) -> set[str]:
        return {note["code"] for note in self.summary["verdict"]["notes"]}

    def requests(self) -> list[dict[str, Any]]:
        rows = pq.read_table(self.folder / "requests.parquet").to_pylist()
        assert isinstance(rows, list)
        return rows

    def check_clean(self) -> None:
        """Nothing is left but the folder, and the last line on stdout is its path."""
        assert "Traceback" not in self.err, self.err
        assert self.left == {}
        assert self.temporary == []
        if self.folders:
            assert self.out.splitlines()[-1] == str(self.folder)
        assert list(self.folder.glob("**/*.partial")) == []
        assert checksum_faults(self.folder) == []

    def check_valid(self) -> None:
        """The run is valid; or it would be, had the machine under the test not been too busy to send on time."""
        assert self.reasons.keys() <= {"generator_late"}, self.reasons
        assert self.code == (3 if self.reasons else 0), self.err

    def check_conserved(self) -> None:
        load = self.summary["load"]
        outcomes = ("ok", "failed", "timeout", "rejected", "dropped")
        assert load["arrivals"] == sum(load[outcome] for outcome in outcomes)
        for counts in load["excluded"].values():
            assert counts["arrivals"] == sum(counts[outcome] for outcome in outcomes)


class Benches:
    """Starts benches, each with a folder and a TMPDIR of its own, and ends what a test left running."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Bench] = []
        self._numbers = count()

    def start(
        self,
        framework: str,
        *options: str,
        out: Path | None = None,
        program: tuple[str, ...] = (str(PROGRAM), "bench"),
        **variables: str,
    ) -> Bench:
        number = next(self._numbers)  # threads may start some at a time
        temporary = self._folder / f"tmp-{number}"
        temporary.mkdir()
        out = out or self._folder / f"runs-{number}"
        process = subprocess.Popen(
            [*program, framework, *options, "--out", str(out)] if program[0] != "make" else [*program, f"OUT={out}"],
            env=environment(TMPDIR=str(temporary), **variables),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        bench = Bench(process, out, temporary)
        self._started.append(bench)
        return bench

    def run(self, framework: str, *options: str, out: Path | None = None, **variables: str) -> Ended:
        return self.start(framework, *options, out=out, **variables).end()

    def close(self) -> None:
        for bench in self._started:
            bench.kill()
            for pid in processes_of(bench.out):
                os.kill(pid, signal.SIGKILL)


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what is ours, make's or Locust's in it, and with `variables`."""
    ours = ("AGENTDYNO", "MAKE", "MFLAGS", "LOCUST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, **variables}
