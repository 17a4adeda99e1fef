"""A vLLM of one's own: what it tells and what its user states of it are on record, apart, in every kind of folder."""

from collections.abc import Iterator

import pytest

from agentdyno.cli import run
from agentdyno.report.rebuild import rebuild
from tests.e2e.benches import PROGRAM, SHORT, Benches, Ended
from tests.e2e.fake_vllm import fake_vllm

pytestmark = pytest.mark.e2e
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


@pytest.fixture(scope="module")
def ended(mine: tuple[str, ...], module_benches: Benches) -> Ended:
    """A run whose settings were stated with spaces around them."""
    return module_benches.run("bare", *mine, "--settings", f" {HERMES} ", *SHORT, "--rate", "5")


def test_a_bench_keeps_what_is_told_apart_from_what_is_stated(ended: Ended) -> None:
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
    benches: Benches, mine: tuple[str, ...], ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    other = benches.run("bare", *mine, "--settings", PYTHONIC, *SHORT, "--rate", "5")
    for each in (ended, other):
        each.check_valid()
    assert run(["check", str(ended.folder), str(other.folder)]) == 2
    assert f"backend's stated {HERMES} and {PYTHONIC}" in capsys.readouterr().err


def test_a_series_of_loads_keeps_both_too(benches: Benches, mine: tuple[str, ...]) -> None:
    """As `make capacity` does, which starts its host in the same way and copies the manifest into each step."""
    load = ("--concurrency", "1", "--requests", "5")
    ended = benches.start("bare", *mine, "--settings", HERMES, *load, program=(str(PROGRAM), "sweep")).end(180)
    backend = ended.manifest["backend"]
    assert (backend["told"], backend["stated"]) == (TOLD, HERMES), ended.err
    assert ended.code == 0, ended.out
