"""What can go wrong in a run: a sentence, the right exit code, the data so far kept, and nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from agentdyno.contract.proof import KEY_VARIABLE
from agentdyno.rig.environments.environment import ROOT, adapter_environment
from tests.backends.mock_process import MODEL, MockServer
from tests.e2e.benches import (
    ADAPTERS,
    LONG,
    PROGRAM,
    SHORT,
    Benches,
    Ended,
    environment,
    processes_of,
    strict_json,
    wait_for,
)

pytestmark = pytest.mark.e2e
FAULTS = {"AGENTDYNO_ADAPTERS": str(ADAPTERS)}
# Ends by itself after a backend that stalls has been noticed.
MIDDLING = ("--rate", "20", "--warmup", "500ms", "--duration", "9s", "--cooldown", "0s", "--timeout", "1s")


# What each says: the reason code, and part of the sentence.
CANNOT_SERVE = {
    "dies-at-its-start": ("host_failed", "RuntimeError: the model card is missing"),
    "dies-at-its-first-request": ("host_failed", "was killed by SIGKILL before it had answered its first request."),
    "never-ready": ("host_failed", "was not ready within 3 s. Last lines of"),
    "always-fails": ("no_success", "RuntimeError: the parser gave up"),
    "wrong-token": ("no_success", "(wrong_answer): status 200"),
    "hangs": ("no_success", "(http_504)"),
    "program-missing": ("host_failed", "cannot be started: no-such-agent: No such file or directory."),
    "program-unready": ("host_failed", "was not ready within 3 s"),
    "program-noise": ("no_success", "got no answer: what came back is not a whole HTTP answer"),
    "program-html": ("no_success", "(not_contract): status 200, body '<!doctype html>"),
}


@pytest.fixture(scope="module")
def cannot_serve(module_benches: Benches) -> Iterator[dict[str, Future[Ended]]]:
    """They put no load on anything, so a few can run at a time."""
    with ThreadPoolExecutor(3) as pool:
        yield {
            name: pool.submit(module_benches.run, name, *SHORT, "--ready-timeout", "3s", **FAULTS)
            for name in CANNOT_SERVE
        }


@pytest.mark.parametrize("framework", CANNOT_SERVE)
def test_a_host_that_cannot_serve(cannot_serve: dict[str, Future[Ended]], framework: str) -> None:
    ended = cannot_serve[framework].result()
    reason, sentence = CANNOT_SERVE[framework]
    assert ended.code == 3
    assert list(ended.reasons) == [reason]
    assert sentence in ended.reasons[reason]
    assert f"{reason}: {ended.reasons[reason]}" in ended.out
    assert ended.summary["load"] is None
    assert ended.manifest["status"] == "failed"
    ended.check_clean()


def test_a_host_that_fails_after_its_first_answer(benches: Benches) -> None:
    """It has also started a process and forgotten it, which is ended with it."""
    ended = benches.run("fails-after-the-first", *SHORT, **FAULTS)
    assert ended.code == 3
    assert "Most often: http_500 (40 times)" in ended.reasons["no_success"]
    assert ended.summary["load"]["failed"] == 40
    ended.check_conserved()
    ended.check_clean()


def test_a_recorder_that_is_killed_in_the_middle(benches: Benches) -> None:
    """The load goes on; no phase is claimed without its spans, and a note says why."""
    bench = benches.start("bare", *SHORT)
    bench.stage("warmup")
    os.kill(bench.child("recorder"), signal.SIGKILL)
    ended = bench.end()
    ended.check_valid()
    assert "spans_missing" in ended.notes
    assert "The recorder died in the run." in ended.out
    assert set(ended.summary["phases_ms"].values()) == {None}
    assert ended.summary["load"]["ok"] == 40
    ended.check_clean()


@pytest.mark.parametrize(("child", "reason"), [("host", "host_failed"), ("backend", "backend_failed")])
def test_a_server_that_is_killed_in_the_middle(benches: Benches, child: str, reason: str) -> None:
    bench = benches.start("bare", *LONG)
    bench.stage("measure")
    os.kill(bench.child(child), signal.SIGKILL)
    ended = bench.end()
    assert ended.code == 3
    assert f"The {child} was killed by SIGKILL in the middle of the run." in ended.reasons[reason]
    assert ended.manifest["status"] == "failed"
    # What was measured until then is kept, in full.
    assert ended.summary["load"]["ok"] > 0
    assert ended.summary["load"]["excluded"]["warmup"]["ok"] == 30
    ended.check_conserved()
    ended.check_clean()


def test_a_server_that_is_no_vllm_is_said_before_the_load(benches: Benches) -> None:
    server = MockServer()
    try:
        mine = ("--backend", "vllm", "--url", f"http://127.0.0.1:{server.port}/v1", "--model", MODEL)
        ended = benches.run("bare", *SHORT, *mine)
    finally:
        server.process.kill()
    assert ended.code == 3
    assert list(ended.reasons) == ["backend_failed"]
    assert "that is not vLLM" in ended.reasons["backend_failed"]
    assert ended.summary["load"] is None
    ended.check_clean()


def test_a_load_generator_that_is_killed_in_the_middle(benches: Benches) -> None:
    bench = benches.start("bare", *LONG)
    bench.stage("measure")
    os.kill(bench.child("generator"), signal.SIGKILL)
    ended = bench.end()
    assert ended.code == 3
    assert "The load generator was killed by SIGKILL." in ended.reasons["generator_died"]
    assert ended.summary["load"]["ok"] > 0
    ended.check_clean()


def test_a_backend_that_stalls(benches: Benches) -> None:
    bench = benches.start("bare", *MIDDLING)
    bench.stage("measure")
    os.kill(bench.child("backend"), signal.SIGSTOP)
    ended = bench.end(90)
    assert ended.code == 3
    assert ended.reasons["backend_failed"] == "The backend stalled: it missed three health checks in a row."
    load = ended.summary["load"]
    assert load["arrivals"] == 180
    assert load["timeout"] > 0
    ended.check_conserved()
    ended.check_clean()
    assert ended.summary["verdict"]["valid"] is False


def test_a_backend_that_was_never_there(benches: Benches) -> None:
    dead = ("--backend", "http://127.0.0.1:9/v1", "--model", "m")
    ended = benches.run("bare", *SHORT, *dead, AGENTDYNO_LLM_API_KEY="sk-of-the-test")
    assert ended.code == 3
    assert "http_500" in ended.reasons["no_success"]
    assert "Cannot connect to host 127.0.0.1:9" in ended.reasons["no_success"]
    ended.check_clean()
    for file in ended.folder.rglob("*"):
        assert not file.is_file() or b"sk-of-the-test" not in file.read_bytes(), file


def test_an_environment_that_differs_from_its_lock(benches: Benches, tmp_path: Path) -> None:
    """A copy of the control's environment, to which somebody has added a distribution and taken another away."""
    control = adapter_environment(ROOT / "adapters" / "bare")
    name = f"tampered-{os.getpid()}"
    copy = control.path.with_name(name)
    folder = tmp_path / "adapters" / name
    shutil.copytree(ROOT / "adapters" / "bare", folder)
    toml = (folder / "adapter.toml").read_text(encoding="utf-8").replace('name = "bare"', f'name = "{name}"')
    (folder / "adapter.toml").write_text(toml, encoding="utf-8")
    try:
        shutil.copytree(control.path, copy, symlinks=True)
        stamp = json.loads((copy / control.stamp.name).read_text(encoding="utf-8"))
        (copy / control.stamp.name).write_text(json.dumps({**stamp, "place": str(copy)}), encoding="utf-8")
        packages = next(copy.glob("lib/python*/site-packages"))
        (packages / "intruder-6.6.dist-info").mkdir()
        shutil.rmtree(next(packages.glob("orjson-*.dist-info")))
        ended = benches.run(name, *SHORT, AGENTDYNO_ADAPTERS=str(folder.parent))
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    assert ended.code == 3
    text = ended.reasons["environment_differs"]
    assert f"intruder 6.6 is installed for {name} but not in its lock." in text
    assert f"is in the lock of {name} but no longer installed." in text
    assert "orjson" in text
    assert f"rm -r .venvs/{name}" in text
    ended.check_clean()


def test_an_unknown_framework_makes_no_folder(benches: Benches) -> None:
    ended = benches.run("langchian", *SHORT)
    assert ended.code == 2
    assert ended.err.startswith("agentdyno: There is no framework 'langchian'. Did you mean langchain?")
    assert ended.folders == []
    assert ended.out == ""


def test_a_folder_that_cannot_be_made(benches: Benches, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    bench = benches.start("bare", *SHORT, out=tmp_path / "file" / "runs")
    out, err = bench.process.communicate(timeout=60)
    assert (bench.process.returncode, out) == (2, "")
    assert "agentdyno: The run folder" in err
    assert "Not a directory. Name another parent folder with OUT=." in err
    assert "Traceback" not in err


def _can_mount() -> bool:
    try:
        command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not _can_mount(), reason="a full disk is made by mounting a small one, which needs root on Linux")
@pytest.mark.parametrize("disk_options", ["size=800k", "size=8k", "nr_inodes=2"])
def test_a_full_disk(tmp_path: Path, disk_options: str) -> None:
    """Full in the middle of the load; when there is only a folder; and before there is one."""
    disk, kept, temporary = (tmp_path / name for name in ("disk", "kept", "tmp"))
    for folder in (disk, kept, temporary):
        folder.mkdir()
    script = (
        'mount -t tmpfs -o "$0" none "$1" && disk="$1" kept="$2" && shift 2; '
        '"$@"; code=$?; cp -r "$disk"/. "$kept"; exit $code'
    )
    load = ("--rate", "200", "--warmup", "0s", "--duration", "60s")
    bench = [str(PROGRAM), "bench", "bare", *load, "--out", str(disk)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, disk_options, str(disk), str(kept), *bench],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(TMPDIR=str(temporary)),
        cwd=ROOT,
        check=False,
    )
    assert processes_of(disk) == {}
    assert list(temporary.iterdir()) == []
    assert "Traceback" not in done.stderr
    if disk_options == "nr_inodes=2":
        assert (done.returncode, done.stdout) == (2, "")
        assert "No space left on device" in done.stderr
        return
    assert done.returncode == 3, done.stderr
    assert "  disk_full: " in done.stdout
    assert "Make room on the disk and run it again." in done.stdout
    assert done.stdout.splitlines()[-1].startswith(str(disk))
    (folder,) = kept.iterdir()
    assert list(folder.glob("**/*.partial")) == []
    if disk_options != "size=8k":  # there, not even the verdict finds room
        summary = strict_json((folder / "summary.json").read_text(encoding="utf-8"))
        assert "disk_full" in {reason["code"] for reason in summary["verdict"]["reasons"]}
        assert strict_json((folder / "manifest.json").read_text(encoding="utf-8"))["status"] == "failed"
    if disk_options == "size=800k":
        rows = (folder / "raw" / "requests-0.jsonl").read_text(encoding="utf-8").splitlines()
        assert Counter(json.loads(row)["outcome"] for row in rows)["ok"] > 100


def test_a_killed_rig_takes_its_children_with_it_and_they_had_nothing_of_the_user(benches: Benches) -> None:
    bench = benches.start("bare", *LONG, LANGSMITH_API_KEY="mine", PYTHONPATH="/nowhere", http_proxy="http://x:1")
    bench.stage("measure")
    children = processes_of(bench.out)
    assert sorted(children.values()) == ["backend", "generator", "host", "recorder"]
    for pid, name in children.items():
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        names = {variable.partition(b"=")[0].decode() for variable in variables}
        assert not names & {"LANGSMITH_API_KEY", "PYTHONPATH", "http_proxy"}
        assert (KEY_VARIABLE in names) == (name in ("host", "generator"))
    bench.process.kill()
    wait_for(lambda: not processes_of(bench.out), "the children's end", timeout_s=3)
    ended = bench.end()
    assert ended.code == -signal.SIGKILL
    assert ended.manifest["status"] == "running"
    rows = (ended.folder / "raw" / "requests-0.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) >= 30
    assert ended.temporary == []
