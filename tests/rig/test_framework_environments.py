"""The real environments: each just its lock, with nothing of the rig or of another framework in it."""

import subprocess
from pathlib import Path

import pytest

from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import adapter_environment, check, native_environment
from agentdyno.rig.environments.frameworks import all_folders

OF_THE_RIG = ["locust", "gevent", "duckdb", "pyarrow", "kubernetes", "typer", "pytest", "pip", "uv"]
OF_FRAMEWORKS = {
    "langchain": ["langchain", "langchain_core", "langgraph", "langchain_openai"],
    "llamaindex": ["llama_index.core", "llama_index.llms.openai_like"],
    "autogen": ["autogen_agentchat", "autogen_core", "autogen_ext"],
}
NATIVE = [folder for folder in all_folders() if (folder / "native.in").exists()]
CODE = """
import importlib.util, sys
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
print(*(name for name in sys.argv[1:] if found(name)))
"""


@pytest.mark.frameworks
@pytest.mark.parametrize("folder", NATIVE, ids=lambda folder: folder.name)
def test_an_instrumentation_is_in_an_environment_of_its_own_alone(folder: Path) -> None:
    native = native_environment(folder)
    ensure(adapter_environment(folder))
    ensure(native)
    assert check(native) == []
    sdk = ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "openinference.instrumentation"]
    timed = [adapter_environment(folder).python, "-c", CODE, *sdk]
    assert subprocess.run(timed, capture_output=True, text=True, check=True).stdout.split() == []


@pytest.mark.frameworks
@pytest.mark.parametrize("folder", all_folders(), ids=lambda folder: folder.name)
def test_an_environment_is_its_lock_and_no_more(folder: Path) -> None:
    environment = adapter_environment(folder)
    ensure(environment)
    assert check(environment) == []
    everything = OF_THE_RIG + [name for names in OF_FRAMEWORKS.values() for name in names]
    host = ["agentdyno.host", "aiohttp", "orjson", "uvicorn", "uvloop", "httptools", "msgspec", "prometheus_client"]
    command = [environment.python, "-c", CODE, *everything, *host]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(found) == sorted([*OF_FRAMEWORKS.get(folder.name, []), *host])
