"""A whole run against a fake cluster: from the words to a verdict that is computed from what was fetched."""

from __future__ import annotations

import json
import shutil
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from agentdyno.audit.command import audit
from agentdyno.cluster.bench import bench, vllm_settings
from agentdyno.cluster.release import Place
from agentdyno.contract.run import ExitCode, Reason
from agentdyno.contract.summary import Summary
from agentdyno.record.checksums import CHECKSUMS_FILE
from agentdyno.record.manifest import Backend, Manifest
from agentdyno.report.rebuild import rebuild
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import Words
from tests.cluster.fake_cluster import NAMESPACE, FakeCluster, point_at
from tests.cluster.fake_load import BACK_NS, CPU_PER_REQUEST_S, THERE_NS, S
from tests.cluster.fake_pods import RELEASE

PLACE = Place(RELEASE, NAMESPACE)


def words(out: Path, **more: str) -> Words:
    given = {"rate": "20", "duration": "3s", "warmup": "1s", "cooldown": "1s", "workers": "2", "out": str(out)}
    return Words(framework="bare", **(given | more))


def only(out: Path) -> Path:
    (folder,) = out.iterdir()
    return folder


def summary_of(out: Path) -> Summary:
    return msgspec.json.decode((only(out) / "summary.json").read_bytes(), type=Summary)


def manifest_of(out: Path) -> Manifest:
    return msgspec.json.decode((only(out) / "manifest.json").read_bytes(), type=Manifest)


def reasons(out: Path) -> set[str]:
    return {finding.code.value for finding in summary_of(out).verdict.reasons}


def notes(out: Path) -> set[str]:
    return {finding.code.value for finding in summary_of(out).verdict.notes}


@dataclass(frozen=True)
class Plain:
    """A run that nothing befell, which no test changes. said: on stdout."""

    cluster: FakeCluster
    out: Path
    code: ExitCode
    said: str


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """Each program of its pods has an interpreter of its own."""
    folder = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as patched, FakeCluster(folder) as made:
        point_at(made, patched)
        with redirect_stdout(StringIO()) as said:
            code = bench(words(folder / "runs"), PLACE)
    return Plain(made, folder / "runs", code, said.getvalue())


def test_a_run_leaves_what_a_local_one_leaves(plain: Plain) -> None:
    summary, folder = summary_of(plain.out), only(plain.out)
    assert (plain.code, summary.verdict.reasons) == (ExitCode.VALID, ())
    assert plain.said.splitlines()[-1] == str(folder)
    assert {path.name for path in folder.iterdir()} == {
        *("manifest.json", "summary.json", "requests.parquet", "spans.parquet", "resources.parquet", "gc.parquet"),
        *("loop.parquet", "backend.json", "logs", CHECKSUMS_FILE),
    }
    assert summary.load is not None
    assert (summary.load.arrivals, summary.load.ok, summary.generator.workers) == (60, 60, 2)
    assert summary.spans.expected == summary.spans.received == 60 * 12
    assert (summary.gc.collections, summary.memory_mb.rss_idle) == (1, 60.0)
    assert {path.name for path in (folder / "logs").iterdir()} == {
        *("host.log", "backend.log", "recorder.log", "coordinator.log", "generator-0.log", "generator-1.log"),
        "host-metrics.txt",
    }


def test_what_is_measured_on_the_hosts_clock_is_laid_beside_the_load_without_comparing_clocks(plain: Plain) -> None:
    summary, manifest = summary_of(plain.out), manifest_of(plain.out)
    # The host's CPU runs at a steady rate in the load and not at all before it: a window that is off would show.
    assert summary.cpu_ms_per_request == pytest.approx(CPU_PER_REQUEST_S * 1000, rel=0.02)
    true_t0_ns = plain.cluster.t0_ns + plain.cluster.clocks.host
    assert manifest.t0_monotonic_ns is not None
    assert abs(manifest.t0_monotonic_ns - true_t0_ns) <= (THERE_NS + BACK_NS) / 2
    assert manifest.cluster is not None
    assert [one["width_ns"] for one in manifest.cluster["t0"]["workers"]] == [THERE_NS + BACK_NS] * 2


def test_percentiles_are_those_of_all_workers_samples_together(cluster: FakeCluster, tmp_path: Path) -> None:
    bench(words(tmp_path / "runs", rate="100", workers="3"), PLACE)
    service = summary_of(tmp_path / "runs").latency_ms.service
    # Request i takes 10 + i ms; measured are 100 to 399, a third of them by each worker.
    pooled = [10.0 + index for index in range(100, 400)]
    assert (service.n, service.mean, service.max) == (300, pytest.approx(sum(pooled) / 300), 409.0)
    for name, quantile in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95)):
        assert getattr(service, name) == pytest.approx(pooled[round(quantile * 300) - 1]), name


def test_each_call_is_served_within_it_on_the_hosts_clock(plain: Plain) -> None:
    spans = pq.read_table(only(plain.out) / "spans.parquet").to_pylist()
    by_id = {(span["service"], span["span_id"]): span for span in spans}
    served = [span for span in spans if span["kind"] == "served"]
    assert len(served) == 100 * 4
    for span in served:
        call = by_id["host", span["parent_span_id"]]
        assert call["start_monotonic_ns"] < span["start_monotonic_ns"] < span["end_monotonic_ns"]
        assert span["end_monotonic_ns"] < call["end_monotonic_ns"]
    roots = [span for span in spans if span["kind"] == "request"]
    for root in roots:
        client = by_id["generator", root["parent_span_id"]]
        assert client["start_monotonic_ns"] <= root["start_monotonic_ns"] <= client["end_monotonic_ns"]


def test_without_traces_the_pods_clocks_are_looked_at(cluster: FakeCluster, tmp_path: Path) -> None:
    bench(words(tmp_path / "runs", traces="off"), PLACE)
    manifest = manifest_of(tmp_path / "runs")
    assert manifest.cluster is not None
    assert manifest.cluster["t0"]["by"] == "marks"
    assert manifest.t0_monotonic_ns is not None
    width = max(one["width_ns"] for one in manifest.cluster["t0"]["workers"])
    assert abs(manifest.t0_monotonic_ns - cluster.t0_ns - cluster.clocks.host) <= width / 2 + 1
    assert width < 5 * S


def test_two_upgrades_begin_a_run_and_one_ends_it(plain: Plain) -> None:
    cluster = plain.cluster
    changes = [call for call in cluster.helm_calls if call[0] == "upgrade"]
    assert len(changes) == 3
    assert all("--reset-values" in call and call[-2:] == ["--namespace", NAMESPACE] for call in changes)
    assert ["--wait" in call for call in changes] == [True, False, False]
    assert all("--cleanup-on-fail" in call for call in changes)
    assert cluster.values["load"]["enabled"] is False
    assert cluster.given["prometheus"] == {"enabled": False}  # as a person had it
    assert not [name for name in cluster.pods if "load" in name]
    run = cluster.values["run"]["id"]
    assert len(run) <= 22
    assert manifest_of(plain.out).cluster["run"] == run


def test_nothing_of_the_run_before_stays_in_the_values(cluster: FakeCluster, tmp_path: Path) -> None:
    bench(words(tmp_path / "slow", tool_latency="order_status=20", seats="8"), PLACE)
    assert cluster.given["run"]["timing"]["tool_latency_ms"] == {"order_status": "const:20"}
    bench(words(tmp_path / "plain"), PLACE)
    assert cluster.given["run"]["timing"]["tool_latency_ms"] == {}
    assert "max_num_seqs" not in cluster.given["run"]["timing"]


def with_vllm(cluster: FakeCluster) -> None:
    more = ["--chat-template=/x.jinja", "--api-key", "hush", "--api-key=hush", "--seed=1"]
    more += ["--api_key", "hush", "and hush", "--api_k=hush", "--hf-token", "hush", "--hf_token=hush"]
    cluster.given["backend"] = {"kind": "vllm", "model": "qwen", "vllm": {"extraArgs": more}}
    cluster.set(cluster.given)


def test_a_vllm_is_watched_its_own_count_is_kept_and_no_secret_of_it(cluster: FakeCluster, tmp_path: Path) -> None:
    with_vllm(cluster)
    out = tmp_path / "runs"
    assert bench(words(out), PLACE) is ExitCode.VALID
    weights = "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"
    about = {"kind": "vllm", "model": "qwen", "url": None, "served_by": "vllm qwen", "weights": weights}
    settings = "--max-model-len=8192 --tool-call-parser=hermes --chat-template=/x.jinja --seed=1"
    told = {"version": "0.18.2", "root": "Qwen/weights", "max_model_len": 8192, "block_size": "16"}
    assert manifest_of(out).backend == {**about, "revision": None, "settings": settings, "told": told}
    assert (only(out) / "logs" / "backend.log").read_text() == "log of vllm\n"
    said = msgspec.json.decode((only(out) / "backend.json").read_bytes(), type=Backend)
    assert said.server == {"version": "0.18.2", "root": "Qwen/weights", "max_model_len": 8192}
    assert said.counters is not None
    # Of the 100 requests of the load, and none of those before it.
    assert (said.counters.requests, said.counters.prompt_tokens, said.counters.queue_s) == (400, 90_000, 50.0)
    # None of its secrets is in the run folder.
    files = [file for file in only(out).rglob("*") if file.is_file()]
    assert files
    assert [file for file in files if b"hush" in file.read_bytes()] == []
    before = {name: pod["metadata"]["uid"] for name, pod in cluster.pods.items()}
    cluster.on_list = lambda c: c.values["load"]["enabled"] and c.replaced("backend")
    assert bench(words(tmp_path / "again"), PLACE) is ExitCode.INVALID_RUN
    assert "pod_evicted" in reasons(tmp_path / "again")
    assert any(name in before for name in cluster.pods)  # vLLM was not rolled


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--api-key=k", "--enable-x", "word"], "--enable-x word"),
        (["--api_key", "k1", "k2", "k3", "--x", "1"], "--x 1"),
        (["--x", "1", "--hf-token", "k"], "--x 1"),
        (["--hf_tok", "k", "-O3", "--hf-overrides", "{}"], "--hf-overrides {}"),
        (["--api-server-count", "2", "--api-keys-of-another-kind"], "--api-server-count 2 --api-keys-of-another-kind"),
    ],
)
def test_what_of_vllms_extra_words_is_shown(given: list[str], shown: str) -> None:
    values = {"maxModelLen": 8192, "toolCallParser": "hermes", "extraArgs": given}
    assert vllm_settings(values) == f"--max-model-len=8192 --tool-call-parser=hermes {shown}"


def test_a_run_with_a_language_model_never_has_the_hash_of_one_with_the_mock(
    plain: Plain, cluster: FakeCluster, tmp_path: Path
) -> None:
    with_vllm(cluster)
    bench(words(tmp_path / "vllm"), PLACE)
    assert summary_of(plain.out).workload_hash != summary_of(tmp_path / "vllm").workload_hash


def test_settings_are_stated_of_a_server_of_the_users_own_and_of_no_other(cluster: FakeCluster, tmp_path: Path) -> None:
    for backend in ({}, {"kind": "vllm", "model": "qwen"}):
        cluster.set({"backend": backend})
        with pytest.raises(OptionError, match=r"^SETTINGS states how a server of yours .* one that the chart starts"):
            bench(words(tmp_path / "runs", settings="--quantization gptq"), PLACE)
    cluster.set({"backend": {"kind": "url", "model": "m", "url": {"address": "http://llm/v1"}}})
    bench(words(tmp_path / "runs", settings=" --quantization  gptq"), PLACE)
    manifest = manifest_of(tmp_path / "runs")
    assert (manifest.backend["url"], manifest.backend["stated"]) == ("http://llm/v1", "--quantization gptq")
    assert manifest.workload.served_by == "openai m, stated: --quantization gptq"
    assert manifest.workload_hash == manifest.workload.hash()


def test_a_server_that_is_no_vllm_is_said_before_the_load(cluster: FakeCluster, tmp_path: Path) -> None:
    with_vllm(cluster)
    cluster.vllm_known = False
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.INVALID_RUN
    assert "that is not vLLM" in summary_of(tmp_path / "runs").verdict.reasons[0].message
    assert cluster.t0_ns == 0


def test_the_manifest_says_where_it_ran_and_names_no_machine(plain: Plain) -> None:
    text = (only(plain.out) / "manifest.json").read_text()
    facts = json.loads(text)["cluster"]
    assert [(pod["component"], pod["node"]) for pod in facts["pods"]] == [
        *(("sut", 1), ("backend", 2), ("recorder", 3)),
        *(("load-master", 2), ("load-worker", 2), ("load-worker", 3)),
    ]
    assert set(facts["nodes"]) == {"1", "2", "3"}
    assert facts["pods"][0]["containers"]["host"]["image_id"] == "i/host@sha256:1"
    assert facts["nodes"]["1"]["kubeletVersion"] == "v1.34.1"
    assert "node-1" not in text
    assert "must not be kept" not in text


def test_images_of_another_lock_make_the_run_invalid(cluster: FakeCluster, tmp_path: Path) -> None:
    """Each is found, and said of its own container; the sampler's image is the recorder's and the load's."""
    cluster.locks = dict.fromkeys(("host", "rig", "mock"), "0" * 64)
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.INVALID_RUN
    reasons = summary_of(tmp_path / "runs").verdict.reasons
    assert {reason.code for reason in reasons} == {Reason.ENVIRONMENT_DIFFERS}
    assert [reason.message.partition(" here (")[0] for reason in reasons] == [
        f"In {container} {image} was built from another lock (000000000000...) than {lock}"
        for container, image, lock in (
            ("host", "the host's image (bare)", "adapters/bare/requirements.lock"),
            ("sampler", "the rig's image", "requirements.lock"),
            ("mock", "the mock LLM's image", "adapters/bare/requirements.lock"),
        )
    ]


def changed_copy(folder: Path, into: Path, *files: str) -> Path:
    shutil.copytree(folder, into)
    for file in files:
        (into / file).write_text("another\n")
    return into


def test_images_of_other_sources_make_the_run_invalid(cluster: FakeCluster, tmp_path: Path) -> None:
    """Each with the files that are others in it: the program's, an adapter's code and its words, a load's."""
    changed = {
        "host": ("src/agentdyno", ("host/app.py",)),
        "rig": ("src/agentdyno", ("load/user.py",)),
        "mock": ("src/agentdyno", ("backends/mock_llm/script.py",)),
        "adapters": ("adapters", ("bare/adapter.py", "bare/adapter.toml")),
        "locustfiles": ("locustfiles", ("constant.py",)),
    }
    cluster.sources = {
        part: changed_copy(ROOT / folder, tmp_path / part, *files) for part, (folder, files) in changed.items()
    }
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.INVALID_RUN
    reasons = summary_of(tmp_path / "runs").verdict.reasons
    assert {reason.code for reason in reasons} == {Reason.ENVIRONMENT_DIFFERS}
    host = "src/agentdyno/host/app.py, adapters/bare/adapter.py, adapters/bare/adapter.toml"
    assert [reason.message for reason in reasons] == [
        f"In {where} was built from other sources than those here ({files}). Build it again: make images"
        for where, files in (
            ("host the host's image (bare)", host),
            ("sampler the rig's image", "src/agentdyno/load/user.py, locustfiles/constant.py"),
            ("mock the mock LLM's image", "src/agentdyno/backends/mock_llm/script.py"),
        )
    ]


def test_a_load_pod_with_another_image_is_looked_at_by_itself(cluster: FakeCluster, tmp_path: Path) -> None:
    """Under one tag two nodes may hold two images: the sampler's is that of today, the load's is not."""
    cluster.images = {"locust": "i/rig@sha256:2"}
    assert bench(words(tmp_path / "same"), PLACE) is ExitCode.VALID
    cluster.sources = {"records": changed_copy(ROOT / "src" / "agentdyno", tmp_path / "sources", "load/user.py")}
    assert bench(words(tmp_path / "other"), PLACE) is ExitCode.INVALID_RUN
    (reason,) = summary_of(tmp_path / "other").verdict.reasons
    assert reason.message.startswith("In records the rig's image was built from other sources")


def test_a_release_without_a_sampler_is_measured_without_resources(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.given["sut"] = {"sampler": {"enabled": False}}
    cluster.set(cluster.given)
    cluster.locks = {"rig": "0" * 64}
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.INVALID_RUN
    (reason,) = summary_of(tmp_path / "runs").verdict.reasons
    assert reason.message.startswith("In recorder the rig's image was built from another lock")
    assert summary_of(tmp_path / "runs").cpu_ms_per_request is None


def test_the_machines_speed_is_told_before_and_after(plain: Plain) -> None:
    found = manifest_of(plain.out).calibration
    assert set(found) == {"before", "after"}
    assert all(0 < one.min_ms <= one.median_ms <= one.max_ms for one in found.values())


def test_a_host_is_left_alone_when_that_is_asked_for(cluster: FakeCluster, tmp_path: Path) -> None:
    bench(words(tmp_path / "runs", idle_wait="300ms"), PLACE)
    moments = manifest_of(tmp_path / "runs").moments_monotonic_ns
    assert moments["rested"] - moments["drained"] >= 300_000_000
    assert moments["drained"] > cluster.t0_ns + cluster.clocks.host


def test_a_host_at_its_cpu_limit_is_noted(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.cgroup = msgspec.structs.replace(cluster.cgroup, throttled_periods=300)
    assert bench(words(tmp_path / "runs"), PLACE) is ExitCode.VALID
    assert "throttled" in notes(tmp_path / "runs")


def test_such_a_run_is_audited_and_reported_as_any_other(
    plain: Plain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(plain.out, tmp_path / "runs")
    code = audit(only(tmp_path / "runs"))
    assert code is ExitCode.VALID, capsys.readouterr().out
    assert rebuild(str(only(tmp_path / "runs")), runs=tmp_path) is ExitCode.VALID
    assert (only(tmp_path / "runs") / "report.html").stat().st_size > 10_000
