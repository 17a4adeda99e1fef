"""The images' recipes, as far as they can be read: pinned, small, unprivileged, and from the repository's own locks."""

import importlib.util
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

from agentdyno import __version__
from agentdyno.rig.environments.environment import ROOT

IMAGES = ROOT / "k8s" / "images"
FILES = sorted(IMAGES.glob("Containerfile.*"))
every = pytest.mark.parametrize("file", FILES, ids=lambda file: file.suffix[1:])


def stages(file: Path) -> list[list[str]]:
    """Instructions by stage, with continued lines joined and comments left out; the first holds what precedes them."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("FROM "):
            found.append([])
        found[-1].append(re.sub(r"\s+", " ", line))
    return found


def test_there_is_one_for_each_part() -> None:
    assert {file.suffix[1:] for file in FILES} == {"host", "rig", "mock", "profiler"}


@every
def test_the_base_is_pinned_and_can_be_given(file: Path) -> None:
    before, build, final = stages(file)
    assert build[0] == "FROM ${BASE} AS build"
    assert final[0] == "FROM ${RUNTIME_BASE}"
    assert before[1] == "ARG RUNTIME_BASE=${BASE}"
    assert re.fullmatch(r"ARG BASE=python:3\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", before[0])


@every
def test_the_final_stage_has_no_privileges_and_no_build(file: Path) -> None:
    _, _, final = stages(file)
    assert "USER 10001:10001" in final
    assert final.index("USER 10001:10001") > max(i for i, line in enumerate(final) if line.startswith(("RUN", "COPY")))
    assert any(line.startswith("HEALTHCHECK ") for line in final)
    assert any(line.startswith("ENTRYPOINT [") for line in final)
    runs = [line for line in final if line.startswith("RUN ")]
    assert runs == ["RUN python3 k8s/images/environment.py strip && rm -r k8s"]
    assert not any(line.startswith("ADD ") for stage in stages(file) for line in stage)


@every
def test_labels_say_what_is_inside(file: Path) -> None:
    _, build, final = stages(file)
    (labels,) = (line for line in final if line.startswith("LABEL "))
    for label in (
        'org.opencontainers.image.version="${VERSION}"',
        'org.opencontainers.image.revision="${REVISION}"',
        'agentdyno.lock.sha256="${LOCK_SHA256}"',
    ):
        assert label in labels
    # The label is no claim: the build compares it with the lock that it installs.
    assert any('--lock-sha256 "${LOCK_SHA256}"' in line for line in build if line.startswith("RUN "))


@every
def test_what_is_copied_is_there_and_let_through(file: Path) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for line in [line for stage in stages(file) for line in stage if line.startswith("COPY ")]:
        words = line.split()[1:]
        if words[0].startswith("--from="):
            continue
        for source in words[:-1]:
            assert (ROOT / source).exists(), line
            assert any(source == name or source.startswith(f"{name}/") for name in allowed), source


@every
def test_settings_of_pip_are_there_for_the_build_alone(file: Path) -> None:
    _, build, final = stages(file)
    (installs,) = (line for line in build if line.startswith("RUN "))
    assert "--mount=type=secret,id=pip.conf,target=/etc/pip.conf " in installs
    assert not any("pip.conf" in line for line in [*build, *final] if line != installs)


@every
def test_an_environment_is_copied_once_and_named_where_it_is(file: Path) -> None:
    """A link that is copied from another stage becomes a copy of what it points to."""
    _, _, final = stages(file)
    copied = [line.split()[-1] for line in final if line.startswith("COPY --from=build")]
    assert [name for name in copied if "venv" in name] in ([".venv"], [".venvs"])
    (strip,) = (number for number, line in enumerate(final) if line.startswith("RUN "))
    assert strip > max(number for number, line in enumerate(final) if line.startswith("COPY "))


def test_the_one_environment_is_named(environment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "VENV", tmp_path / "venv")
    (tmp_path / ".venvs" / "bare").mkdir(parents=True)
    environment.name_environment()
    assert (tmp_path / "venv").readlink() == Path(".venvs/bare")
    (tmp_path / ".venv").mkdir()
    with pytest.raises(ValueError, match="too many"):
        environment.name_environment()


def test_the_chart_runs_what_the_images_hold() -> None:
    """The same user, the same folder, and ports that the health checks know."""
    chart = "".join(file.read_text() for file in (ROOT / "k8s" / "chart" / "templates").glob("*"))
    assert "10001" in chart
    assert "/opt/agentdyno/adapters/" in chart
    for file in FILES:
        assert "WORKDIR /opt/agentdyno" in stages(file)[2]


def test_the_mock_needs_no_more_than_the_controls_lock_and_has_it_as_the_rig_does() -> None:
    def pins(file: Path) -> dict[str, str]:
        return dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", file.read_text()))

    mock, rig = pins(ROOT / "adapters" / "bare" / "requirements.lock"), pins(ROOT / "requirements.lock")
    assert {name: rig.get(name) for name in mock} == mock


@pytest.fixture
def environment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("image_environment", IMAGES / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def test_a_label_that_is_not_the_locks_ends_the_build(
    environment: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["environment.py", "adapter", "bare", "--lock-sha256", "abc"])
    assert environment.main() == 2
    right = sha256((ROOT / "adapters" / "bare" / "requirements.lock").read_bytes()).hexdigest()
    assert f"Give --build-arg LOCK_SHA256={right}." in capsys.readouterr().err


def test_an_adapter_that_is_not_there_ends_the_build(
    environment: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["environment.py", "adapter", "nix"])
    assert environment.main() == 2
    assert "There is no adapter folder 'nix'" in capsys.readouterr().err


def test_tools_for_tests_and_packages_do_not_come_along(environment: ModuleType, tmp_path: Path) -> None:
    assert {"pytest", "ruff", "mypy", "uv", "hatchling"} <= set(environment.development_tools())
    assert "editables" not in environment.development_tools()
    for name in ("pip", "pip-25.1.dist-info", "setuptools", "uvloop", "uvloop-0.23.0.dist-info", "pipeline"):
        (tmp_path / name).mkdir()
    (tmp_path / "distutils-precedence.pth").touch()
    environment.remove_package_tools(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"uvloop", "uvloop-0.23.0.dist-info", "pipeline"}


def built(tmp_path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The build script with a tool that only says what it was asked for."""
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\necho "$@"\n')
    tool.chmod(0o755)
    asked = {**os.environ, "TOOL": f"{tool} bud", **variables}
    return subprocess.run([IMAGES / "build", *words], env=asked, capture_output=True, text=True, check=False)


def test_the_script_builds_one_image_for_each_adapter(tmp_path: Path) -> None:
    lines = built(tmp_path, "all", PREFIX="registry.example/").stdout.splitlines()
    folders = sorted(file.parent.name for file in (ROOT / "adapters").glob("*/adapter.toml"))
    assert len(lines) == 3 + len(folders)
    images = [re.search(r"-t (\S+)", line)[1] for line in lines]
    names = ["rig", "mock", "profiler", *(f"host-{folder}" for folder in folders)]
    assert sorted(images) == sorted(f"registry.example/agentdyno/{name}:{__version__}" for name in names)
    bare = next(line for line in lines if "host-bare:" in line)
    lock = sha256((ROOT / "adapters" / "bare" / "requirements.lock").read_bytes()).hexdigest()
    assert f"--build-arg LOCK_SHA256={lock} --build-arg ADAPTER=bare" in bare
    assert f"--build-arg VERSION={__version__}" in bare
    assert "--format docker" in bare


def test_the_script_says_what_it_does_not_know(tmp_path: Path) -> None:
    done = built(tmp_path, "host", "nix")
    assert (done.returncode, done.stderr) == (2, "There is no adapter folder adapters/nix.\n")
    assert built(tmp_path).stderr.startswith("usage: ")
