"""A vLLM of one's own: what it tells and what its user states of it are on record, apart, in every kind of folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentdyno.cli import run
from agentdyno.report.rebuild import rebuild
from tests.e2e.benches import PROGRAM, SHORT, Benches
from tests.e2e.fake_vllm import fake_vllm

HERMES, PYTHONIC = "--tool-call-parser hermes", "--tool-call-parser pythonic"
TOLD = {
    "version": "0.31.0",
    "root": "Qwen/weights",
    "max_model_len": 8192,
    "block_size": "16",
    "num_gpu_blocks": "9000",
}


@pytest.fixture(scope="module")
def mine() -> Iterator[tuple[str, ...]]:
    with fake_vllm() as options:
        yield options


def test_a_bench_keeps_what_is_told_apart_from_what_is_stated(benches: Benches, mine: tuple[str, ...]) -> None:
    ended = benches.start("bare", *mine, "--settings", f" {HERMES} ", *SHORT, "--rate", "5").end()
    ended.check_valid()
    backend = ended.manifest["backend"]
    assert (backend["told"], backend["stated"], backend.get("settings")) == (TOLD, HERMES, None)
    assert ended.summary["backend"] == backend
    assert f"The backend's settings, as its user states them: {HERMES}\n" in ended.out
    rebuild(str(ended.folder), runs=ended.folder.parent)
    page = (ended.folder / "report.html").read_text(encoding="utf-8")
    assert f'<th scope="row">Backend, as its user states</th><td>{HERMES}</td>' in page
    assert "block_size 16" in page.partition("as it tells of itself")[2][:300]
    assert f"--settings &#39; {HERMES} &#39;" in page.partition("Run it again")[2]


def test_runs_with_other_stated_settings_are_not_compared(
    benches: Benches, mine: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    folders: list[Path] = []
    for settings in (HERMES, PYTHONIC):
        ended = benches.start("bare", *mine, "--settings", settings, *SHORT, "--rate", "5").end()
        ended.check_valid()
        folders.append(ended.folder)
    assert run(["check", str(folders[0]), str(folders[1])]) == 2
    assert f"backend's stated {HERMES} and {PYTHONIC}" in capsys.readouterr().err


def test_a_series_of_loads_keeps_both_too(benches: Benches, mine: tuple[str, ...]) -> None:
    """As `make capacity` does, which starts its host in the same way and copies the manifest into each step."""
    load = ("--concurrency", "1", "--requests", "5")
    ended = benches.start("bare", *mine, "--settings", HERMES, *load, program=(str(PROGRAM), "sweep")).end(180)
    backend = ended.manifest["backend"]
    assert (backend["told"], backend["stated"]) == (TOLD, HERMES), ended.err
