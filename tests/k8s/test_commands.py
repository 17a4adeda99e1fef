"""What the pods run is what a local run runs: the programs read the rendered words, and understand the same by them."""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentdyno.backends.mock_llm.cli import make_parser
from agentdyno.cluster.preparation import PROFILER_STAMP
from agentdyno.cluster.sources import STAMP
from agentdyno.contract.adapter import find_variants
from agentdyno.contract.run import LoadPlan
from agentdyno.contract.scenario import BackendTiming, Workload
from agentdyno.emit.sender import parse_address
from agentdyno.host.serve import _parser as host_parser
from agentdyno.load.options import add_arguments, metrics_port, plan_of
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.load import _arguments
from agentdyno.rig.processes import clean_environment
from tests.k8s.conftest import KEY, Objects
from tests.k8s.pods import pods, quantity
from tests.k8s.programs import Programs

TIMING = {"ttft_ms": "lognormal:120:0.4", "tokens_per_s": "80", "max_num_seqs": 64, "answer_tokens": "const:32"}
SETTINGS = (
    *("--set", f"load.enabled=true,run.id=first,proof.key={KEY},framework=lightagent-llm,load.workers=3"),
    *("--set", "load.rate=0.5,load.duration=1m30s,load.warmup=0s,run.seed=123456789,run.admission=off"),
    *("--set", "run.scenario=parallel,load.requestTimeout=500ms,load.maxInFlight=1234567"),
    *("--set-json", f"run.timing={json.dumps(TIMING)}"),
    *("--set-json", 'run.timing.tool_latency_ms={"order_status": "uniform:1:2"}'),
)


@pytest.fixture(scope="module")
def containers(tools: Programs) -> dict[str, dict[str, Any]]:
    """By component and container."""
    found = pods(tools.objects(*SETTINGS))
    return {f"{pod.component}/{container['name']}": container for pod in found for container in pod.containers}


def test_the_host_is_the_local_one(containers: dict[str, dict[str, Any]]) -> None:
    host = containers["sut/host"]
    assert host["command"] == ["python", "-m", "agentdyno.host"]
    options = host_parser().parse_args(host["args"])
    assert (options.host, options.port) == ("0.0.0.0", host["ports"][0]["containerPort"])
    folder, variant = find_variants(ROOT / "adapters")[options.variant]
    assert options.adapter == Path("/opt/agentdyno/adapters") / folder.path.name
    assert variant.name == "lightagent-llm"
    assert options.llm == "http://dyno-backend:8001/v1"
    assert options.admission is None
    assert parse_address(options.spans) == ("dyno-recorder", 4319)
    timing = BackendTiming(**TIMING, tool_latency_ms={"order_status": "uniform:1:2"})
    wanted = Workload(scenario="parallel", seed=123456789, timing=timing)
    assert msgspec.json.decode(options.workload, type=Workload).hash() == wanted.hash()


def test_the_profiler_is_mounted_for_the_host_of_a_profile_run_alone(rendered: Callable[[str], Objects]) -> None:
    (timed,) = (pod for pod in pods(rendered("default")) if pod.component == "sut")
    (sut,) = (pod for pod in pods(rendered("profile")) if pod.component == "sut")
    profiler, host, sampler = sut.containers
    assert (profiler["name"], profiler["image"]) == ("profiler", "agentdyno/profiler:0.1.0")
    # Else it is the pod of a timed run: the same image, the same words, and two more.
    assert "initContainers" not in timed.spec
    assert [host["image"], sampler] == [timed.containers[0]["image"], timed.containers[1]]
    options = host_parser().parse_args(host["args"])
    assert (options.heap_profile, options.run_id) == (Path("/profiler/site-packages"), "first")
    words = [*timed.containers[0]["args"], "--heap-profile", "/profiler/site-packages", "--run-id", "first"]
    assert host["args"] == words
    assert host_parser().parse_args(timed.containers[0]["args"]).heap_profile is None
    assert {"name": "profiler", "mountPath": "/profiler", "readOnly": True} in host["volumeMounts"]
    # What the client reads of it, and what the host is told, is where the init container puts it.
    assert PROFILER_STAMP.startswith("/profiler/")
    assert STAMP in profiler["command"][-1]
    assert options.heap_profile.parent == Path(PROFILER_STAMP).parent


def test_the_init_container_puts_the_profiler_where_the_host_looks(
    rendered: Callable[[str], Objects], tmp_path: Path
) -> None:
    """Its words, run here, on a folder that looks like the image's."""
    (sut,) = (pod for pod in pods(rendered("profile")) if pod.component == "sut")
    site = tmp_path / "venv" / "lib" / "python3.12" / "site-packages"
    (site / "ddtrace").mkdir(parents=True)
    (site / "ddtrace" / "__init__.py").write_text("")
    (tmp_path / "venv" / "agentdyno-stamp.json").write_text("{}")
    (tmp_path / "profiler").mkdir()
    code = sut.containers[0]["command"][-1].replace("/opt/agentdyno", str(tmp_path))
    code = code.replace("'/profiler", f"'{tmp_path}/profiler")
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    assert (tmp_path / "profiler" / "site-packages" / "ddtrace" / "__init__.py").is_file()
    assert (tmp_path / PROFILER_STAMP.removeprefix("/")).is_file()


def test_the_mock_is_the_local_one(containers: dict[str, dict[str, Any]]) -> None:
    mock = containers["backend/mock"]
    assert mock["command"] == ["python", "-m", "agentdyno.backends.mock_llm"]
    options = make_parser().parse_args(mock["args"])
    assert (options.scenario, options.seed, options.host) == ("parallel", 123456789, "0.0.0.0")
    assert options.port == mock["ports"][0]["containerPort"]
    assert msgspec.json.decode(options.timing, type=BackendTiming).ttft_ms == "lognormal:120:0.4"
    assert options.model == host_parser().parse_args(containers["sut/host"]["args"]).model


def test_the_load_is_the_local_one(containers: dict[str, dict[str, Any]]) -> None:
    plan = LoadPlan(
        rate=0.5,
        warmup_s=0.0,
        duration_s=90.0,
        cooldown_s=1.0,
        timeout_s=0.5,
        max_in_flight=1234567,
        seed=123456789,
        scenario="parallel",
        workers=3,
    )
    parser = argparse.ArgumentParser()
    for option in ("--host", "--expect-workers", "--master-host", "--master-port", "--master-bind-port", "-f"):
        parser.add_argument(option)
    for flag in ("--headless", "--master", "--worker"):
        parser.add_argument(flag, action="store_true")
    add_arguments(parser)
    for component in ("load-master", "load-worker"):
        locust = containers[f"{component}/locust"]
        assert locust["command"] == ["python", "-m", "locust"]
        options = parser.parse_args(locust["args"])
        assert plan_of(options) == plan
        local = parser.parse_args(_arguments(plan, Path("/records")))
        assert plan_of(local) == plan
        words = {word for word in locust["args"] if word.startswith("--")}
        assert {word for word in _arguments(plan, Path("/records")) if word.startswith("--")} <= words
        assert options.host == "http://dyno-sut:8000"
        assert options.f.endswith("locustfiles/constant.py")
        assert (ROOT / options.f.removeprefix("/opt/agentdyno/")).exists()
    master = parser.parse_args(containers["load-master/locust"]["args"])
    worker = parser.parse_args(containers["load-worker/locust"]["args"])
    assert (master.master, master.worker, master.expect_workers) == (True, False, "3")
    assert (worker.worker, worker.master_host) == (True, "dyno-load-master")
    assert worker.master_port == master.master_bind_port == "5557"
    ports = {port["name"]: port["containerPort"] for port in containers["load-master/locust"]["ports"]}
    assert (master.metrics_host, int(master.metrics_port)) == ("0.0.0.0", ports["metrics"])
    assert metrics_port(worker) is None


def test_locust_has_the_options(containers: dict[str, dict[str, Any]]) -> None:
    """Those that are Locust's own, by its own parser."""
    from locust.argument_parser import setup_parser_arguments

    parser = argparse.ArgumentParser(conflict_handler="resolve")
    parser.add_argument("-f")
    setup_parser_arguments(parser)
    known = {option for action in parser._actions for option in action.option_strings}
    add_arguments(parser)
    known |= {option for action in parser._actions for option in action.option_strings}
    for component in ("load-master", "load-worker"):
        words = {word for word in containers[f"{component}/locust"]["args"] if word.startswith("-")}
        assert words <= known


def test_the_environment_is_that_of_a_local_child(containers: dict[str, dict[str, Any]], monkeypatch: Any) -> None:
    for variable in ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE"):
        monkeypatch.delenv(variable, raising=False)
    fixed = clean_environment()
    for name in ("sut/host", "backend/mock", "load-worker/locust", "recorder/recorder", "sut/sampler"):
        variables = {v["name"]: v.get("value") for v in containers[name]["env"]}
        assert variables.items() >= fixed.items(), name
    for name in ("sut/host", "load-worker/locust", "check/check"):
        (key,) = (v for v in containers[name]["env"] if v["name"] == "AGENTDYNO_PROOF_KEY")
        assert key["valueFrom"]["secretKeyRef"] == {"name": "dyno-proof", "key": "proof-key"}


def test_the_recorder_knows_the_run(containers: dict[str, dict[str, Any]]) -> None:
    variables = {v["name"]: v["value"] for v in containers["recorder/recorder"]["env"]}
    assert json.loads(variables["AGENTDYNO_RESOURCE"]) == {
        "agentdyno.framework": "lightagent-llm",
        "agentdyno.run.id": "first",
        "agentdyno.scenario": "parallel",
    }
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://dyno-collector:4318"


@pytest.mark.parametrize("off", ["run.traces=false", "recorder.enabled=false"])
def test_without_traces_nobody_sends_any(tools: Programs, off: str) -> None:
    found = pods(tools.objects("--set", f"load.enabled=true,run.id=a,{off}"))
    by_name = {f"{pod.component}/{c['name']}": c for pod in found for c in pod.containers}
    assert "--spans" not in by_name["sut/host"]["args"]
    assert "--spans" not in by_name["backend/mock"]["args"]
    assert ("recorder/recorder" in by_name) == ("recorder" not in off)


def test_vllm_is_started_for_tool_calls_and_given_time(rendered: Callable[[str], Objects]) -> None:
    (pod,) = (pod for pod in pods(rendered("gpu")) if pod.component == "backend")
    (vllm,) = pod.containers
    assert vllm["command"] == ["vllm", "serve", "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"]
    assert {"--enable-auto-tool-choice", "--tool-call-parser=hermes", "--port=8001"} <= set(vllm["args"])
    assert vllm["resources"]["limits"]["nvidia.com/gpu"] == 1
    probe = vllm["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 20 * 60
    assert {"name": "models", "mountPath": "/models"} in vllm["volumeMounts"]
    assert {"name": "HF_HOME", "value": "/models"} in vllm["env"]
    host = next(c for p in pods(rendered("gpu")) if p.component == "sut" for c in p.containers if c["name"] == "host")
    # Prometheus and the monitors find it as they find the mock: by the port `http`, and may get there.
    assert vllm["ports"] == [{"name": "http", "containerPort": 8001, "protocol": "TCP"}]
    served = next(word for word in vllm["args"] if word.startswith("--served-model-name="))
    assert host["args"][host["args"].index("--model") + 1] == served.partition("=")[2]


def test_a_new_run_restarts_what_is_measured_and_not_the_model(tools: Programs) -> None:
    def templates(run: str) -> dict[str, Any]:
        settings = ("--set", f"run.id={run},backend.kind=vllm,proof.key={KEY},grafana.enabled=false")
        return {pod.component: pod.workload for pod in pods(tools.objects(*settings))}

    before, after = templates("one"), templates("two")
    assert {name for name in before if before[name] != after[name]} == {"sut", "recorder"}


def test_the_collector_is_told_what_its_configuration_asks_for(rendered: Callable[[str], Objects]) -> None:
    (pod,) = (pod for pod in pods(rendered("default")) if pod.component == "collector")
    (container,) = pod.containers
    said = {v["name"]: v["value"] for v in container["env"]}
    text = (ROOT / "k8s" / "chart" / "files" / "collector.yaml").read_text()
    asked = dict(re.findall(r"\$\{env:([A-Z_]+):-([^}]*)\}", text))
    assert set(said) <= set(asked)
    assert {name for name in asked if name.endswith("_LISTEN")} <= set(said)
    listening = {name: int(value.rpartition(":")[2]) for name, value in said.items() if name.endswith("_LISTEN")}
    assert sorted(listening.values()) == sorted(port["containerPort"] for port in container["ports"])
    assert all(said[name].startswith("0.0.0.0:") for name in listening)
    assert said["TEMPO_ENDPOINT"] == "dyno-tempo:4317"
    limit_mib = quantity(container["resources"]["limits"]["memory"]) / 2**20
    assert int(said["MEMORY_LIMIT_MIB"]) < limit_mib
