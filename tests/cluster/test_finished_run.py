"""What must hold of a finished run holds of the fake cluster's; and each assertion fails where what it guards is
broken, by its own line.
"""

from __future__ import annotations

import ast
import json
import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentdyno.cluster.bench import bench
from agentdyno.cluster.profile import profile
from agentdyno.contract.run import ExitCode, Reason
from agentdyno.contract.summary import Summary
from agentdyno.record.manifest import Manifest
from tests.cluster import finished_run
from tests.cluster.finished_run import FinishedRun
from tests.cluster.full_memory import LIMIT
from tests.cluster.limited_cluster import LimitedCluster
from tests.cluster.test_bench import PLACE, words

CLUSTER = LimitedCluster
CPU, MEMORY = "1", "512Mi"
VALID, INVALID = ExitCode.VALID, ExitCode.INVALID_RUN
MODULE = Path(finished_run.__file__)
ASSERTIONS = [node for node in ast.walk(ast.parse(MODULE.read_text())) if isinstance(node, ast.Assert)]
Change = Callable[[FinishedRun], FinishedRun]
Look = Callable[[FinishedRun], object]


@dataclass(frozen=True)
class Broken:
    """says: the assertion, or a part that no other has. change: what it must see. look: another way to look."""

    says: str
    change: Change = lambda run: run
    look: Look | None = None

    @property
    def assertion(self) -> ast.Assert:
        texts = {ast.unparse(node.test): node for node in ASSERTIONS}
        (text,) = [self.says] if self.says in texts else [text for text in texts if self.says in text]
        return texts[text]


def manifest(*path: str | int, to: object) -> Change:
    """One thing in it is another; path: where."""
    return lambda run: replace(run, manifest=msgspec.convert(_changed(run.manifest, path, to), Manifest))


def summary(*path: str | int, to: object) -> Change:
    return lambda run: replace(run, summary=msgspec.convert(_changed(run.summary, path, to), Summary))


def _changed(document: Any, path: tuple[str | int, ...], to: object) -> Any:
    changed = at = msgspec.to_builtins(document)
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = to
    return changed


def file(name: str, change: Callable[[Path], object]) -> Change:
    """The folder is a copy in which one file is another."""

    def changed(run: FinishedRun) -> FinishedRun:
        folder = run.folder.parent / "broken" / run.folder.name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run.folder, folder)
        change(folder / name)
        return replace(run, folder=folder)

    return changed


def first(column: str, to: object) -> Callable[[Path], object]:
    """In a table's first row."""

    def change(path: Path) -> None:
        table = pq.read_table(path)
        values = [to, *table[column].to_pylist()[1:]]
        at = table.schema.get_field_index(column)
        pq.write_table(table.set_column(at, column, pa.array(values, table.schema.field(at).type)), path)

    return change


def snapshots(change: Callable[[dict[str, Any]], object]) -> Change:
    def rewrite(path: Path) -> None:
        index = json.loads(path.read_text())
        change(index)
        path.write_text(json.dumps(index))

    return file("heap/snapshots.json", rewrite)


def finding(code: Reason, text: str = "") -> dict[str, str]:
    return {"code": code.value, "message": text}


def seen(run: FinishedRun, **other: str) -> object:
    """other: labels and `value` that its Prometheus has instead."""
    fake = LimitedCluster(run.folder)
    fake.values |= {"run": {"id": run.manifest.cluster["run"]}, "framework": "bare"}

    def ask(query: str) -> list[Any]:
        found = fake.series(query)
        value = other.get("value") if "goodput" in query else None
        return [
            {
                "metric": one["metric"] | {name: to for name, to in other.items() if name in one["metric"]},
                "value": [1.0, value or one["value"][1]],
            }
            for one in found
        ]

    return run.must_be_seen_by(ask)


def each_is_seen(run: FinishedRun, look: Look, broken: list[Broken]) -> None:
    look(run)
    for one in broken:
        with pytest.raises(AssertionError) as caught:
            (one.look or look)(one.change(run))
        lines = [frame.lineno for frame in traceback.extract_tb(caught.tb) if frame.filename == str(MODULE)]
        where = one.assertion
        assert lines, f"{one.says}: {caught.value}"
        assert where.lineno <= lines[-1] <= (where.end_lineno or 0), f"{one.says}: line {lines[-1]} failed"


SUT = ("cluster", "pods", 0)
VERDICT = [
    Broken("<= but_for", summary("verdict", "reasons", to=[finding(Reason.SPANS_MISSING)])),
    Broken("verdict.valid is not", summary("verdict", "valid", to=False)),
    Broken("code is (", look=lambda run: run.must_be_valid(INVALID)),
]
WHOLE = [
    Broken("Status.FINISHED", manifest("status", to="failed")),
    Broken("sorted(indexes)", file("requests.parquet", first("index", 1))),
    Broken("index % workers", file("requests.parquet", first("worker", 1))),
    Broken("{'ok'}", file("requests.parquet", first("outcome", "failed"))),
    Broken("received == expected", summary("spans", "received", to=7)),
    Broken("received", lambda run: summary("spans", "received", to=0)(summary("spans", "expected", to=0)(run))),
    Broken("recorder is not None", manifest("recorder", to=None)),
    Broken("frames > 2", manifest("recorder", "frames", to=2)),
    Broken("{'host'}", file("resources.parquet", first("role", "backend"))),
    Broken("cpu_ms_per_request", summary("cpu_ms_per_request", to=None)),
    Broken("'causality'", manifest("cluster", "t0", "by", to="marks")),
    Broken("width_ns", manifest("cluster", "t0", "workers", 1, "width_ns", to=-1)),
    Broken("'raw'", file("raw", lambda path: path.mkdir())),
    Broken("audit_run", file("logs/host.log", lambda path: path.write_text("another"))),
    Broken("self.manifest.cluster is not None", manifest("cluster", to=None)),
]
MADE = [
    Broken("framework.name == framework", look=lambda run: run.must_be_made_of_this_checkout("lightagent")),
    Broken("adapter_environment", manifest("environment", "lock_sha256", to="0" * 64)),
    Broken("rig_environment()", manifest("rig_environment", "lock_sha256", to="0" * 64)),
    Broken("source_commit", manifest("commit", to="0" * 40)),
    Broken("ENVIRONMENT_DIFFERS", manifest("findings", to=[finding(Reason.ENVIRONMENT_DIFFERS)])),
    Broken("'load-worker'", manifest(*SUT, "component", to="backend")),
    Broken("'sha256:'", manifest(*SUT, "containers", "sampler", "image_id", to="agentdyno/rig:1")),
]
LIMITS = [
    Broken("'Guaranteed'", manifest(*SUT, "qos", to="Burstable")),
    Broken("['limits']", manifest(*SUT, "containers", "host", "resources", "limits", "cpu", to="2")),
    Broken("cgroup is not None", manifest("cgroup", to=None)),
    Broken("cpu_limit_cores", manifest("cgroup", "memory_limit_bytes", to=1 << 30)),
    Broken("cgroup.periods is not None", manifest("cgroup", "periods", to=None)),
    Broken("cgroup.periods >= 0", manifest("cgroup", "periods", to=-5)),
    Broken("oom_kills == 0", manifest("cgroup", "oom_kills", to=1)),
    Broken("or 0) > 100", manifest("cgroup", "periods", to=100)),
]
SEEN = [
    Broken("'backend', '1'", look=lambda run: seen(run, role="host")),
    Broken("float(", look=lambda run: seen(run, value="0")),
    Broken("(*up, *goodput)", look=lambda run: seen(run, framework="langchain")),
]
HEAP = [
    Broken("index is not None", file("heap/snapshots.json", lambda path: path.unlink())),
    Broken("index.gaps", snapshots(lambda index: index["gaps"].append({"monotonic_ns": 1, "reason": "none"}))),
    Broken("len(index.snapshots)", snapshots(lambda index: index.update(snapshots=index["snapshots"][:2]))),
    Broken("inuse_space", look=lambda run: _with_an_empty_heap(run)),
    Broken("heap_profile is not None", manifest("heap_profile", to=None)),
    Broken("profiler_environment", manifest("heap_profile", "environment", "lock_sha256", to="0" * 64)),
    Broken("comparable", summary("verdict", "comparable", to=True)),
]
THROTTLED = [
    Broken("throttled_s", manifest("cgroup", "throttled_s", to=0.0)),
    Broken("in note", summary("verdict", "notes", to=[finding(Reason.THROTTLED, "It was stopped.")])),
    Broken("len(messages) == 1", summary("verdict", "notes", to=[])),
]
KILLED = [
    Broken("code is ExitCode.INVALID_RUN", look=lambda run: run.must_be_killed_at(VALID, CPU, LIMIT)),
    Broken("not self.summary.verdict.valid", summary("verdict", "valid", to=True)),
    Broken("in reason", summary("verdict", "reasons", to=[finding(Reason.OOM_KILLED, "It ended.")])),
    Broken("memory_peak_bytes", manifest("cgroup", "memory_peak_bytes", to=None)),
]


def _with_an_empty_heap(run: FinishedRun) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agentdyno.contract.pprof.Profile.total", lambda *_: 1)
        run.must_have_its_hosts_heap()


def test_of_a_run(cluster: LimitedCluster, tmp_path: Path) -> None:
    code = bench(words(tmp_path / "runs"), PLACE)
    run = FinishedRun.only(tmp_path / "runs")
    each_is_seen(run, lambda run: run.must_be_valid(code), VERDICT)
    each_is_seen(run, lambda run: run.must_be_whole(100, 2), WHOLE)
    each_is_seen(run, lambda run: run.must_be_made_of_this_checkout("bare"), MADE)
    each_is_seen(run, lambda run: run.must_not_have_met_its_limits(CPU, MEMORY), LIMITS)
    each_is_seen(run, seen, SEEN)
    busy = summary("verdict", "reasons", to=[finding(Reason.GENERATOR_LATE)])(
        summary("verdict", "valid", to=False)(run)
    )
    busy.must_be_valid(INVALID, but_for=finished_run.BUSY)


def test_of_a_profile_run(cluster: LimitedCluster, tmp_path: Path) -> None:
    cluster.looks = 12
    profile(words(tmp_path / "runs"), PLACE, "100ms", "off")
    run = FinishedRun.only(tmp_path / "runs")
    each_is_seen(run, lambda run: run.must_have_its_hosts_heap(), HEAP)


def test_of_a_host_at_its_limits(cluster: LimitedCluster, tmp_path: Path) -> None:
    cluster.given["sut"] = {"resources": {"cpu": "100m", "memory": MEMORY}}
    bench(words(tmp_path / "slow"), PLACE)
    run = FinishedRun.only(tmp_path / "slow")
    each_is_seen(run, lambda run: run.must_be_throttled_at("100m", MEMORY), THROTTLED)
    cluster.given["sut"] = {"resources": {"cpu": CPU, "memory": LIMIT}}
    cluster.on_list = lambda c: c.values["load"]["enabled"] and c.restarted("sut", "host", 137, "OOMKilled")
    code = bench(words(tmp_path / "killed"), PLACE)
    run = FinishedRun.only(tmp_path / "killed")
    each_is_seen(run, lambda run: run.must_be_killed_at(code, CPU, LIMIT), KILLED)


def test_no_assertion_is_left_out() -> None:
    broken = [one.assertion for one in (*VERDICT, *WHOLE, *MADE, *LIMITS, *SEEN, *HEAP, *THROTTLED, *KILLED)]
    assert [ast.unparse(node.test) for node in ASSERTIONS if node not in broken] == []
