"""NATIVE_SPANS=1: who may have it, and what is said to the others. No environment is built here."""

import re
from pathlib import Path

import pytest

from agentdyno.cli import run
from agentdyno.rig.environments.environment import ROOT, adapter_environment, native_environment
from agentdyno.rig.environments.frameworks import UnknownFramework, all_folders, environment_of, resolve
from agentdyno.rig.native_spans import native_spans
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import Words, read
from tests.adapters.test_metadata import VARIANTS


def test_nothing_is_asked_for_by_default() -> None:
    options = read(Words(framework="langchain"))
    assert not options.native_spans
    assert native_spans(options, *resolve("langchain")) is None


@pytest.mark.parametrize("name", [name for name, (_, variant) in VARIANTS.items() if variant.native is None])
def test_a_framework_without_instrumentation_says_so_and_who_has_it(name: str) -> None:
    options = read(Words(framework=name, native_spans="1"))
    with pytest.raises(OptionError, match=re.escape(name)) as said:
        native_spans(options, *resolve(name))
    assert {"autogen", "langchain", "llamaindex"} <= set(re.findall(r"[\w-]+", str(said.value)))


def test_without_traces_there_is_nothing_to_hang_them_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "langchain", "--native-spans", "1", "--traces", "off"]) == 2
    assert "TRACES may not be off" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["profile", "soak", "compare"])
def test_a_command_that_would_measure_them_refuses(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "langchain", "--native-spans", "1", "--out", str(tmp_path / "runs")]) == 2
    assert f"a {command} would measure the instrumentation" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("folder", all_folders(), ids=lambda folder: folder.name)
def test_who_declares_an_instrumentation_has_a_lock_for_it_and_the_reverse(folder: Path) -> None:
    declared = any(variant.native is not None for owner, variant in VARIANTS.values() if owner.path == folder)
    assert declared == (folder / "native.in").exists() == native_environment(folder).lock.exists()


def test_its_environment_is_none_of_those_that_are_timed() -> None:
    timed = {adapter_environment(folder).path for folder in all_folders()}
    assert not timed & {native_environment(folder).path for folder in all_folders()}
    assert native_environment(ROOT / "adapters" / "langchain").path.name == "langchain-native"


def test_the_instrumentations_environment_has_a_name_of_its_own() -> None:
    assert environment_of("langchain-native") == native_environment(ROOT / "adapters" / "langchain")
    assert environment_of("lightagent-llm") == adapter_environment(ROOT / "adapters" / "lightagent")
    with pytest.raises(UnknownFramework, match="langchian"):
        environment_of("langchian-native")
