"""The command: which checks it runs, what it keeps, and how it ends; and one pass through each real check."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentdyno.cli import run
from agentdyno.contract.run import ExitCode
from agentdyno.selfcheck import selfcheck as module
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.checks import CHECKS
from agentdyno.selfcheck.result import at_most, figure
from tests.e2e.benches import PROGRAM, environment

NEED_FRAMEWORKS = ("lightagent", "overhead", "instruments", "scrapes", "recorder")
WITHOUT_FRAMEWORKS = [check.name for check in CHECKS if check.name not in NEED_FRAMEWORKS]


def good(setting: Setting) -> Findings:
    assert setting.folder.is_dir()
    return Findings([figure("small", "ms", [1.0, 2.0, 3.0], at_most(2.0))], ["A note."])


def missed(_: Setting) -> Findings:
    return Findings([figure("large", "ms", [3.0], at_most(2.0))])


def broken(_: Setting) -> Findings:
    raise CheckFailed("The server left no log.")


def interrupted(_: Setting) -> Findings:
    raise KeyboardInterrupt


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Check(it.__name__, f"one that is {it.__name__}", it) for it in (good, missed, broken, interrupted)]
    monkeypatch.setattr(module, "CHECKS", tuple(made))


def kept(folder: Path) -> dict:
    return json.loads((folder / "selfcheck.json").read_text(encoding="utf-8"))


def test_all_goals_met(checks, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(["selfcheck", "--only", "good", "--out", str(tmp_path / "it")]) == ExitCode.VALID
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == str(tmp_path / "it" / "selfcheck.json")
    assert "all goals are met" in said
    report = kept(tmp_path / "it")
    assert (report["met"], report["interrupted"], report["quick"]) == (True, False, False)
    assert report["machine"]["cores_usable"] >= 1
    assert report["calibration"].keys() == {"before", "after"}
    (check,) = report["checks"]
    assert check["figures"] == [
        {
            "name": "small",
            "unit": "ms",
            "median": 2.0,
            "min": 1.0,
            "max": 3.0,
            "values": [1.0, 2.0, 3.0],
            "goal": {"relation": "<=", "bound": 2.0},
            "met": True,
        }
    ]
    assert check["notes"] == ["A note."]


def test_a_goal_missed_is_one_and_a_sentence(checks, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(["selfcheck", "--only", "missed,good", "--out", str(tmp_path)]) == ExitCode.GATE_FAILED
    assert "missed: large is 3 ms, and should be <= 2." in capsys.readouterr().out
    assert [check["name"] for check in kept(tmp_path)["checks"]] == ["good", "missed"]


def test_a_check_that_cannot_be_measured_does_not_keep_the_next_from_running(
    checks, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKS", tuple(reversed(module.CHECKS[:3])))
    assert run(["selfcheck", "--out", str(tmp_path)]) == ExitCode.GATE_FAILED
    assert "broken could not be measured. The server left no log." in capsys.readouterr().out
    report = kept(tmp_path)
    assert [(check["name"], check["failed"]) for check in report["checks"]] == [
        ("broken", "The server left no log."),
        ("missed", None),
        ("good", None),
    ]


def test_an_interruption_keeps_what_was_measured(checks, tmp_path: Path) -> None:
    assert run(["selfcheck", "--only", "good,interrupted", "--out", str(tmp_path)]) == ExitCode.INTERRUPTED
    report = kept(tmp_path)
    assert (report["met"], report["interrupted"]) == (False, True)
    assert [check["name"] for check in report["checks"]] == ["good"]


def test_an_unknown_check_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(["selfcheck", "--only", "load,speed", "--out", str(tmp_path)]) == ExitCode.USAGE
    assert "there is no check 'speed'; there are: load, stall, truth" in capsys.readouterr().err
    assert not (tmp_path / "selfcheck.json").exists()


def test_a_folder_that_cannot_be_made_is_a_usage_error(checks, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert run(["selfcheck", "--only", "good", "--out", str(tmp_path / "file" / "it")]) == ExitCode.USAGE
    assert "OUT=" in capsys.readouterr().err


def test_names_are_distinct() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def measured(folder: Path, names: list[str], code: int) -> dict[str, dict]:
    """What real checks found, by check. How quick the machine is decides nothing here."""
    assert code in (ExitCode.VALID, ExitCode.GATE_FAILED)
    found = {check["name"]: check for check in kept(folder)["checks"]}
    assert list(found) == names
    assert {name: check["failed"] for name, check in found.items()} == dict.fromkeys(names)
    assert all(check["figures"] for check in found.values())
    return found


def quick(names: list[str], folder: Path) -> list[str]:
    """The words that ask for real checks."""
    return ["selfcheck", "--quick", "--only", ",".join(names), "--out", str(folder)]


def value(check: dict, name: str) -> float:
    (found,) = [figure["median"] for figure in check["figures"] if figure["name"] == name]
    return found


@pytest.fixture(scope="module")
def without_frameworks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.Popen]]:
    """The checks that need none, under way: they mostly wait, and so do the others, which are run meanwhile."""
    folder = tmp_path_factory.mktemp("without")
    with (folder / "log").open("wb") as log:
        command = [str(PROGRAM), *quick(WITHOUT_FRAMEWORKS, folder)]
        process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log)
    try:
        yield folder, process
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.e2e
@pytest.mark.frameworks
@pytest.mark.usefixtures("without_frameworks")
def test_the_checks_with_frameworks_measure(tmp_path: Path) -> None:
    found = measured(tmp_path, list(NEED_FRAMEWORKS), run(quick(list(NEED_FRAMEWORKS), tmp_path)))
    for name in ("lightagent", "overhead", "instruments"):
        assert all(figure["median"] is not None for figure in found[name]["figures"]), name


@pytest.mark.e2e
def test_the_checks_without_frameworks_measure(without_frameworks: tuple[Path, subprocess.Popen]) -> None:
    folder, process = without_frameworks
    found = measured(folder, WITHOUT_FRAMEWORKS, process.wait(240))
    assert value(found["load"], "arrivals answered and verified") == 600
    assert value(found["stall"], "ours: requests sent") == 800
    # Whatever the machine does besides, the stock users can have at most one request each in the stall.
    assert value(found["stall"], "stock Locust: requests sent") < 800
    assert all(figure["median"] is not None for figure in found["truth"]["figures"])
    assert all(figure["median"] > 0 for figure in found["encode"]["figures"])
