"""The workflow example is one that would run: its commands, options, targets and files are those that there are."""

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from agentdyno.analysis.limits import read_limits
from agentdyno.cli import app

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / ".github" / "workflows" / "agentdyno-gate.yml.example"
TEXT = FILE.read_text(encoding="utf-8")
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["gate"]["steps"]
PROGRAM = "agentdyno/.venv/bin/agentdyno"


def words_after(program: str) -> list[list[str]]:
    """The arguments of each call of `program` in the scripts, up to what the shell does next."""
    found = []
    for step in STEPS:
        script = step.get("run", "").replace("\\\n", " ")
        for line in script.splitlines():
            if f"{program} " in line:
                call = re.split(r"\|\||&&|;", line.split(f"{program} ", 1)[1])[0]
                found.append(shlex.split(call, comments=True))
    return found


@pytest.mark.parametrize("arguments", words_after(PROGRAM), ids=" ".join)
def test_each_command_and_its_options_are_there(arguments: list[str]) -> None:
    name, *rest = arguments
    command = typer.main.get_group(app).commands[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= options


def test_the_commands_are_those_of_a_gate() -> None:
    assert [call[0] for call in words_after(PROGRAM)] == ["lock", "env", "bench", "check"]
    check = words_after(PROGRAM)[-1]
    limits = [value for option, value in pairwise(check) if option == "--max"]
    assert [limit.metric.name for limit in read_limits(limits, [])] == ["p99", "rss_peak", "cpu_per_request"]
    assert check[check.index("--markdown") + 1] == "$GITHUB_STEP_SUMMARY"


def test_the_targets_of_make_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for words in words_after("make"):
        assert words[:2] == ["-C", "agentdyno"]
        assert re.search(rf"^{words[2]}:|^[a-z ]*\b{words[2]}\b[a-z ]*:", makefile, re.MULTILINE), words


def test_there_are_rounds_enough_for_an_interval() -> None:
    assert int(WORKFLOW["jobs"]["gate"]["env"]["ROUNDS"]) >= 4


def test_actions_are_pinned_by_their_full_version() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", one)] == []


def test_it_needs_no_secret_and_may_only_read() -> None:
    assert "secrets" not in TEXT.replace("It needs no secret", "")
    assert "token" not in TEXT.lower()
    assert WORKFLOW["permissions"] == {"contents": "read"}
    checkouts = [step for step in STEPS if step.get("uses", "").startswith("actions/checkout")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    # Nothing that a pull request's author writes reaches a shell.
    assert not [step for step in STEPS if "${{" in step.get("run", "")]


def test_it_is_no_workflow_of_this_repository() -> None:
    assert FILE.suffix == ".example"
    # YAML reads a bare `on` as true.
    assert "pull_request" in WORKFLOW.get("on", WORKFLOW.get(True))
