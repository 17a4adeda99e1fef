"""The house rules that a reader cannot see at a glance: imports point one way, nobody carries what is not theirs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "agentdyno"

# Each package may import from itself and from what stands before it: the order of the data's flow.
FLOW = (
    "contract",
    "emit",
    "host",
    "backends",
    "load",
    "record",
    "analysis",
    "report",
    "rig",
    "audit",
    "selfcheck",
    "cluster",
)
# What a measured process, or the mock beside it, runs may import: nothing of the rig's dependencies.
LIGHT = ("contract", "emit", "host", "backends")
LIGHT_DEPENDENCIES = {
    *("aiohttp", "httptools", "httpx", "httpx2", "msgspec", "multidict", "orjson", "prometheus_client", "uvicorn"),
    *("uvloop", "yarl"),
}


def _imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


def _files(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


def test_every_package_has_its_place_in_the_flow() -> None:
    there = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert there <= set(FLOW)


@pytest.mark.parametrize("package", FLOW)
def test_imports_point_one_way(package: str) -> None:
    later = FLOW[FLOW.index(package) + 1 :]
    wrong = [
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in _files(package)
        for name in _imports(file)
        if name.startswith("agentdyno.") and name.split(".")[1] in later
    ]
    assert not wrong


# The same within the rig, whose own modules ("") are what makes one run.
RIG_FLOW = {
    "environments": set[str](),
    "": {"environments"},
    "series": {"environments", ""},
    "conformance": {"environments", ""},
    "campaign": {"environments", "", "series"},
}


@pytest.mark.parametrize("folder", RIG_FLOW)
def test_imports_within_the_rig_point_one_way(folder: str) -> None:
    def place(module: str) -> str:
        name = module.removeprefix("agentdyno.rig.").partition(".")[0]
        return name if name in RIG_FLOW else ""

    wrong = [
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in (SOURCE / "rig" / folder).glob("*.py")
        for name in _imports(file)
        if name.startswith("agentdyno.rig.") and place(name) not in RIG_FLOW[folder] | {folder}
    ]
    assert not wrong
    assert {path.parent.name for path in (SOURCE / "rig").glob("*/__init__.py")} == set(RIG_FLOW) - {""}


# Imported by name, where OpenTelemetry's SDK is on the import path: in no timed process.
NATIVE_LEDGER = "host/native_ledger.py"


@pytest.mark.parametrize("package", LIGHT)
def test_what_a_measured_process_runs_needs_only_the_base_dependencies(package: str) -> None:
    allowed = LIGHT_DEPENDENCIES | set(sys.stdlib_module_names) | {"agentdyno"}
    wrong = [
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in _files(package)
        if "template" not in file.parts and file.relative_to(SOURCE).as_posix() != NATIVE_LEDGER
        for name in _imports(file)
        if name.split(".")[0] not in allowed
    ]
    assert not wrong


def test_only_a_host_with_the_frameworks_own_spans_loads_what_counts_them() -> None:
    name = "agentdyno." + NATIVE_LEDGER.removesuffix(".py").replace("/", ".")
    assert not [str(file) for file in SOURCE.rglob("*.py") if name in _imports(file)]
    named = [file.name for file in SOURCE.rglob("*.py") if f'"{name}"' in file.read_text(encoding="utf-8")]
    assert named == ["native.py"]


def test_only_the_command_line_is_imported_by_nobody() -> None:
    wrong = [str(file) for file in SOURCE.rglob("*.py") if "agentdyno.cli" in _imports(file)]
    assert not wrong


def test_modules_are_one_idea() -> None:
    long = {str(f.relative_to(ROOT)): n for f in SOURCE.rglob("*.py") if (n := len(f.read_text().splitlines())) > 400}
    assert not long


def test_the_host_carries_no_profiler_and_no_rig() -> None:
    code = (
        "import sys, agentdyno.host.serve, agentdyno.host.app, agentdyno.host.tools, agentdyno.host.metrics;"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & {
        "ddtrace",
        "tracemalloc",
        "memray",
        "locust",
        "gevent",
        "pyarrow",
        "numpy",
        "rich",
        "typer",
    }
