"""What a run tells of itself while it runs, to whom, and that it takes it back."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentdyno.contract.campaign import PROBE
from agentdyno.record.live import running
from agentdyno.record.manifest import Manifest
from agentdyno.record.processes import Reading
from agentdyno.record.sampler import Sample
from agentdyno.rig import observation as module
from agentdyno.rig.backends import start_backend
from agentdyno.rig.observation import Observation, export_to_collector, observed
from agentdyno.rig.options import Words, read
from agentdyno.rig.processes import Children, fetch
from agentdyno.rig.series.watched import WatchedSeries
from tests.golden.run import manifest as golden_manifest


def sample(role: str, pid: int, look: int, **reading: float) -> Sample:
    return Sample(0, look, role, pid, Reading(**reading))


class Seen:
    """A sampler that has seen these."""

    def __init__(self, plain: list[Sample], detailed: list[Sample]) -> None:
        self._by_kind = {False: plain, True: detailed}

    def __call__(self, *, detailed: bool) -> list[Sample]:
        return self._by_kind[detailed]


@pytest.fixture
def manifest() -> Manifest:
    return golden_manifest()


@pytest.fixture
def raw(tmp_path: Path, manifest: Manifest) -> Path:
    folder = tmp_path / "runs" / manifest.run_id / "raw"
    folder.mkdir(parents=True)
    return folder


def values(url: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(fetch(url, 5.0).decode())
    return {(s.name, *(v for k, v in s.labels.items() if k == "role")): s.value for f in families for s in f.samples}


def test_a_prometheus_is_told_of_every_part_and_untold(tmp_path: Path, manifest: Manifest, raw: Path) -> None:
    observed = tmp_path / "observed"
    watching = Observation(manifest, raw, observed)
    watching.add("host", "http://127.0.0.1:8000/metrics")
    watching.add("backend", "https://llm.example:8443/behind/a/proxy/metrics")
    watching.add("recorder", None)
    watching.add("load", "http://127.0.0.1:9646/metrics")
    with watching:
        (file,) = observed.glob("*.json")
        assert file.stem == manifest.run_id
        told = {entry["labels"]["role"]: entry for entry in json.loads(file.read_text())}
        assert set(told) == {"rig", "load", "host", "backend"}
        assert told["host"]["targets"] == ["127.0.0.1:8000"]
        assert told["backend"]["targets"] == ["llm.example:8443"]
        assert told["backend"]["labels"]["__scheme__"] == "https"
        assert told["backend"]["labels"]["__metrics_path__"] == "/behind/a/proxy/metrics"
        for entry in told.values():
            labels = entry["labels"]
            assert (labels["run"], labels["framework"]) == (manifest.run_id, manifest.framework.name)
            assert labels["scenario"] == manifest.plan.scenario
            assert labels["backend"] == manifest.backend["kind"]
            assert (labels["compared"], labels["rate"]) == ("yes", f"{manifest.plan.rate:g}")
        assert told["load"]["targets"] == ["127.0.0.1:9646"]
        (run,) = running([tmp_path / "runs"])
        assert run.metrics["host"] == "http://127.0.0.1:8000/metrics"
    assert list(observed.iterdir()) == []


def test_what_is_no_measurement_of_the_framework_is_compared_with_nothing(
    tmp_path: Path, manifest: Manifest, raw: Path
) -> None:
    def told(change: Callable[[Manifest], None] = lambda _: None, *, bench: bool = True) -> set[tuple[str, str | None]]:
        one = deepcopy(manifest)
        change(one)
        with Observation(one, raw, tmp_path / "observed", bench=bench):
            (file,) = (tmp_path / "observed").glob("*.json")
            labels = [entry["labels"] for entry in json.loads(file.read_text())]
        return {(each["compared"], each.get("rate")) for each in labels}

    def profiled(one: Manifest) -> None:
        one.heap_profile = {"interval_s": 10.0}

    def with_its_own_spans(one: Manifest) -> None:
        one.native_spans = {"title": "OpenInference"}

    def without_a_gpu(one: Manifest) -> None:
        one.backend = {**one.backend, "kind": "vllm-cpu"}

    def probe(one: Manifest) -> None:
        one.profile = PROBE

    assert told() == {("yes", f"{manifest.plan.rate:g}")}
    assert told(bench=False) == {("no", None)}  # capacity, sweep, soak
    for change in (profiled, with_its_own_spans, without_a_gpu, probe):
        assert told(change) == {("no", None)}, change.__name__


def test_who_looks_is_told_what_has_changed(tmp_path: Path, manifest: Manifest, raw: Path) -> None:
    observed = tmp_path / "observed"

    def told() -> dict[str, str]:
        entries = json.loads((observed / f"{manifest.run_id}.json").read_text())
        return {entry["labels"]["role"]: entry["targets"][0] for entry in entries if entry["labels"]["role"] != "rig"}

    with Observation(manifest, raw, observed) as watching:
        for host, load in (("http://127.0.0.1:1/m", "http://127.0.0.1:2/m"), ("http://127.0.0.1:3/m", None)):
            watching.add("host", host)
            watching.add("load", load)
            watching.tell()
            expected = {
                role: url.removeprefix("http://").removesuffix("/m")
                for role, url in (("host", host), ("load", load))
                if url
            }
            assert told() == expected
            (run,) = running([tmp_path / "runs"])
            assert run.metrics.keys() == {"rig", *expected}
    assert list(observed.iterdir()) == []


URL = "http://gpu.example:8000/behind/v1"


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (Words(framework="bare", backend=URL, model="m"), None),  # whether it has any nobody knows: it is no target
        (Words(framework="bare", backend="vllm", url=URL, model="m"), "http://gpu.example:8000/behind/metrics"),
    ],
)
def test_of_a_backend_that_is_not_ours_only_vllms_metrics_are_looked_for(
    tmp_path: Path, manifest: Manifest, raw: Path, words: Words, target: str | None
) -> None:
    """In a run of one load, and in one of many."""
    options = read(words)
    backend = start_backend(options, None, tmp_path / "log", Children())
    assert backend.metrics_url == target
    host = SimpleNamespace(url="http://127.0.0.1:1")
    options = replace(options, observe=tmp_path / "observed")
    task = SimpleNamespace(folder=SimpleNamespace(raw=raw), options=options)
    run: Any = SimpleNamespace(task=task, metrics_port=2, host=host, backend=backend)
    driven: Any = SimpleNamespace(host=host, backend=backend)
    for watching in (observed(run, manifest), WatchedSeries(manifest, raw, options.observe, driven)):
        with watching:
            (told,) = running([tmp_path / "runs"])
            assert told.metrics.get("backend") == target
            assert told.metrics["host"] == "http://127.0.0.1:1/metrics"
            entries = json.loads((tmp_path / "observed" / f"{manifest.run_id}.json").read_text())
            found = [f"http://{it['targets'][0]}{it['labels']['__metrics_path__']}" for it in entries]
            assert sorted(found) == sorted(told.metrics.values())


def test_between_two_loads_nothing_is_known_of_cpu_and_memory(manifest: Manifest, raw: Path) -> None:
    """What the last load's sampler saw last would look like a host that does nothing."""
    backend = SimpleNamespace(metrics_url=None)
    driven: Any = SimpleNamespace(host=SimpleNamespace(url="http://127.0.0.1:1"), backend=backend)
    seen = [sample("host", 1, 1, cpu_s=2.5, rss_bytes=40_000_000)]
    sampler: Any = SimpleNamespace(latest=Seen(seen, []))
    with WatchedSeries(manifest, raw, None, driven) as series:
        (run,) = running([raw.parents[1]])
        with series.load(sampler):
            assert values(run.metrics["rig"])["agentdyno_process_cpu_seconds_total", "host"] == 2.5
        assert {name for name, *role in values(run.metrics["rig"]) if role} == set()


def test_without_observe_only_top_is_told(tmp_path: Path, manifest: Manifest, raw: Path) -> None:
    with Observation(manifest, raw, None):
        assert [run.run_id for run in running([tmp_path / "runs"])] == [manifest.run_id]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_the_word_of_a_rig_that_was_killed_is_removed_and_others_are_kept(
    tmp_path: Path, manifest: Manifest, raw: Path
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name, pid in (("dead", gone.pid), ("alive", os.getpid())):
        (tmp_path / f"{name}.json").write_text(json.dumps([{"labels": {"__rig_pid": str(pid)}, "targets": []}]))
    (tmp_path / "others.json").write_text("[]")
    with Observation(manifest, raw, tmp_path):
        assert {file.stem for file in tmp_path.glob("*.json")} == {"alive", "others", manifest.run_id}


def test_the_rigs_metrics_are_of_the_run_and_of_its_processes_by_role(manifest: Manifest, raw: Path) -> None:
    plain = [
        sample("host", 1, 100, cpu_s=2.5, cpu_user_s=2.4, cpu_system_s=0.2, rss_bytes=40_000_000, threads=3),
        sample("host", 2, 60, cpu_user_s=1.0, cpu_system_s=0.0, rss_bytes=10_000_000),  # ended long ago
        sample("generator", 3, 99, cpu_s=1.5, rss_bytes=20_000_000),
        sample("generator", 4, 99, rss_bytes=20_000_000),
    ]
    detailed = [sample("host", 1, 96, rss_bytes=1, pss_bytes=30_000_000)]
    with Observation(manifest, raw, None, Seen(plain, detailed)):
        (run,) = running([raw.parents[1]])
        text = fetch(run.metrics["rig"], 5.0).decode()
        found = values(run.metrics["rig"])
    assert found["agentdyno_process_cpu_seconds_total", "host"] == 3.5
    assert ("agentdyno_process_cpu_seconds_total", "generator") not in found  # not known whole, so not there
    assert found["agentdyno_process_resident_memory_bytes", "host"] == 40_000_000
    assert found["agentdyno_process_resident_memory_bytes", "generator"] == 40_000_000
    assert found["agentdyno_process_proportional_memory_bytes", "host"] == 30_000_000
    assert f'run="{manifest.run_id}"' in text
    assert f'workload_hash="{manifest.workload_hash}"' in text


def test_traces_go_to_the_collector_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in module.ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with socket.create_server(("127.0.0.1", 0)) as collector:
        address = collector.getsockname()
        monkeypatch.setattr(module, "COLLECTOR", address)
        export_to_collector()
        assert os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://127.0.0.1:{address[1]}"
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://elsewhere:4318"
        export_to_collector()
        assert os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://elsewhere:4318"
    del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    export_to_collector()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ
