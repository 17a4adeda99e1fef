"""The Makefile passes on just the options that are set, whatever is in them, and adds nothing to stdout."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from agentdyno.cli import app
from agentdyno.rig.environments.environment import ROOT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The Makefile beside a program that stands in for the command line: it shows what it was called with."""
    shutil.copyfile(ROOT / "Makefile", tmp_path / "Makefile")
    program = tmp_path / "program"
    program.write_text(
        "#!/usr/bin/env python3\nimport json, os, sys\nprint(json.dumps(sys.argv[1:]))\n"
        "print('the last line')\nsys.exit(int(os.environ.get('CODE', '0')))\n"
    )
    program.chmod(0o755)
    return tmp_path


def make(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "FRAMEWORK")
    clean = {name: value for name, value in os.environ.items() if name not in outer and not name.startswith("MAKE_")}
    command = ["make", "AGENTDYNO=./program", "PYTHON=true", *arguments]
    return subprocess.run(command, cwd=project, env=clean | variables, capture_output=True, text=True, check=False)


def passed(done: subprocess.CompletedProcess[str]) -> list[str]:
    lines = done.stdout.splitlines()
    assert lines[1:] == ["the last line"], done.stdout + done.stderr
    arguments: list[str] = json.loads(lines[0])
    return arguments


def test_compare_passes_the_names_last_and_only_when_there_are_any(project: Path) -> None:
    command = typer.main.get_command(app).commands["compare"]
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")} - {"--help"}
    names = [flag[2:].replace("-", "_").upper() for flag in flags]
    arguments = passed(make(project, "compare", "FRAMEWORKS=bare bare#2", *(f"{name}=x" for name in names)))
    assert {argument.partition("=")[0] for argument in arguments[1:-2]} == flags
    assert arguments[-2:] == ["--", "bare bare#2"]
    assert passed(make(project, "compare")) == ["compare"]


def test_bench_passes_only_what_is_set(project: Path) -> None:
    assert passed(make(project, "bench", "FRAMEWORK=bare")) == ["bench", "bare"]
    done = make(project, "bench", "FRAMEWORK=bare", "RATE=50", "DURATION=10s", "MAX_IN_FLIGHT=8", "OUT=")
    assert passed(done) == ["bench", "bare", "--rate=50", "--duration=10s", "--max-in-flight=8"]


@pytest.mark.parametrize("target", ["bench", "profile", "soak", "cold", "capacity", "sweep"])
def test_every_option_of_the_command_can_be_given_to_make(project: Path, target: str) -> None:
    command = typer.main.get_command(app).commands[target]
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")} - {"--help"}
    names = [flag[2:].replace("-", "_").upper() for flag in flags]
    arguments = passed(make(project, target, "FRAMEWORK=bare", *(f"{name}=x{name}" for name in names)))
    assert arguments[:2] == [target, "bare"]
    assert {argument.partition("=")[0] for argument in arguments[2:]} == flags
    assert all(re.fullmatch(r"--([a-z-]+)=x([A-Z_]+)", argument) for argument in arguments[2:])


@pytest.mark.parametrize("target", ["bench", "profile", "compare"])
def test_with_a_target_the_commands_of_the_cluster_are_called(project: Path, target: str) -> None:
    command = typer.main.get_command(app).commands["cluster"].commands[target]
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")} - {"--help"}
    names = [flag[2:].replace("-", "_").upper() for flag in flags]
    given = ("FRAMEWORK=bare", "FRAMEWORKS=bare", "TARGET=k8s", *(f"{name}=x" for name in names))
    arguments = passed(make(project, target, *given))
    assert arguments[:2] == ["cluster", target]
    assert {argument.partition("=")[0] for argument in arguments[2:] if "=" in argument} == flags
    assert passed(make(project, target, "FRAMEWORK=bare", "TARGET=local", "RELEASE=r"))[0] == target
    wrong = make(project, target, "FRAMEWORK=bare", "TARGET=k8")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "TARGET is local" in wrong.stderr


@pytest.mark.parametrize("target", ["soak", "cold", "capacity", "sweep"])
def test_what_a_cluster_does_not_do_is_said(project: Path, target: str) -> None:
    done = make(project, target, "FRAMEWORK=bare", "TARGET=k8s")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"make {target} is for one machine" in done.stderr
    assert passed(make(project, target, "FRAMEWORK=bare", "TARGET=local")) == [target, "bare"]


def test_the_cluster_is_installed_and_removed(project: Path) -> None:
    place = ("RELEASE=r", "NAMESPACE=n", "CONTEXT=c")
    words = ["--release=r", "--namespace=n", "--context=c"]
    assert passed(make(project, "cluster-install", *place, "VALUES=k8s/x y.yaml")) == [
        *("cluster", "install", *words, "--values=k8s/x y.yaml")
    ]
    assert passed(make(project, "cluster-uninstall", *place)) == ["cluster", "uninstall", *words]
    assert passed(make(project, "cluster-install")) == ["cluster", "install"]


@pytest.mark.parametrize(
    "value", ["two words", "a;touch pwned", "$(touch pwned)", "`touch pwned`", "$HOME", "it's", 'a"b', "*", "-5", "a#b"]
)
def test_a_value_arrives_unharmed(project: Path, value: str) -> None:
    assert passed(make(project, "-s", "bench", f"FRAMEWORK={value}", f"OUT={value}")) == [
        "bench",
        value,
        f"--out={value}",
    ]
    assert not (project / "pwned").exists()


def test_no_framework_is_a_sentence(project: Path) -> None:
    for target in ("bench", "profile", "soak", "cold", "capacity", "sweep", "verify"):
        done = make(project, target)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"make {target} needs a framework" in done.stderr
    assert "make new needs a name" in make(project, "new").stderr


@pytest.mark.parametrize("code", ["1", "3", "130"])
def test_make_names_the_programs_exit_code(project: Path, code: str) -> None:
    """make can only exit with 2 itself."""
    done = make(project, "-s", "bench", "FRAMEWORK=bare", CODE=code)
    assert done.returncode == 2
    assert f"Error {code}" in done.stderr
    assert done.stdout.splitlines()[-1] == "the last line"


def test_from_another_folder_the_last_line_is_still_the_programs(project: Path) -> None:
    done = make(project, "-s", "-C", str(project), "bench", "FRAMEWORK=bare")
    assert done.stdout.splitlines()[-1] == "the last line"


def test_the_other_targets(project: Path) -> None:
    assert passed(make(project, "env")) == ["env", "--all"]
    assert passed(make(project, "env", "FRAMEWORK=a b")) == ["env", "a b"]
    assert passed(make(project, "lock")) == ["lock"]
    assert passed(make(project, "lock", "FRAMEWORK=bare", "UPGRADE=1")) == ["lock", "--upgrade", "bare"]
    assert passed(make(project, "new", "NAME=mine")) == ["new", "mine"]
    assert passed(make(project, "verify", "FRAMEWORK=bare")) == ["verify", "bare"]
    assert passed(make(project, "list")) == ["list"]


def test_help_is_the_default_and_names_every_target_and_option(project: Path) -> None:
    text = make(project).stdout
    assert text == make(project, "help").stdout
    makefile = (ROOT / "Makefile").read_text()
    targets = makefile.partition(".PHONY: ")[2].partition("\n")[0].split()
    lists = re.findall(r"(?m)^\w+_OPTIONS := ((?:.*\\\n)*.*)$", makefile)
    options = {word for words in lists for word in words.replace("\\", "").split() if not word.startswith("$")}
    assert [name for name in [*targets, *options] if name not in text and name != "help"] == []


def test_a_python_that_is_not_there_is_a_sentence(project: Path) -> None:
    done = make(project, "list", "PYTHON=no-such-python")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("There is no no-such-python here. AgentDyno needs Python 3.11 or newer")


def test_without_a_choice_the_environments_keep_their_python(project: Path) -> None:
    """Or a `make list` after `make PYTHON=other env` would build everything anew."""
    python = project / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "the one that is there: $1"\n')
    python.chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "PYTHON")}
    done = subprocess.run(["make", "setup"], cwd=project, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "the one that is there: src/agentdyno/rig/environments/bootstrap.py\n"
    python.unlink()
    python.symlink_to(project / "removed")
    done = subprocess.run(
        ["make", "-n", "setup"], cwd=project, env=variables, capture_output=True, text=True, check=True
    )
    assert '"python3" src/agentdyno/rig/environments/bootstrap.py' in done.stdout
