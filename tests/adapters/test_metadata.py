"""What every adapter folder must hold to, read from its files: no framework is imported here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from agentdyno.contract.adapter import AdapterFolder, Variant, find_variants, read_folder
from agentdyno.rig.environments.environment import adapter_environment

ADAPTERS = Path(__file__).parents[2] / "adapters"
FOLDERS = sorted(file.parent for file in ADAPTERS.glob("*/adapter.toml"))
VARIANTS = find_variants(ADAPTERS)
METHODS = {"start", "invoke", "close"}
METHODS_OF_CAPABILITY = {"stream": {"stream"}, "dynamic_tools": {"add_tool", "remove_tool"}}
PACKAGES_OF_FRAMEWORK = {
    "langchain": {"langchain", "langchain_core", "langchain_openai", "langgraph", "langsmith"},
    "llamaindex": {"llama_index", "workflows"},
    "autogen": {"autogen_agentchat", "autogen_core", "autogen_ext"},
    "lightagent": {"lightagent"},
}
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

each_folder = pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.name)
each_variant = pytest.mark.parametrize(("folder", "variant"), VARIANTS.values(), ids=VARIANTS)


def methods_of(folder: AdapterFolder, variant: Variant) -> dict[str, ast.AST]:
    """The methods in the body of the variant's class and of those bases that stand in the same file."""
    assert variant.entry is not None
    module, _, name = variant.entry.partition(":")
    classes = {
        node.name: node
        for node in ast.parse((folder.path / f"{module}.py").read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    assert name in classes, f"{module}.py has no class {name}; it has {sorted(classes)}"
    found: dict[str, ast.AST] = {}
    todo = [classes[name]]
    while todo:
        node = todo.pop(0)
        for part in node.body:
            if isinstance(part, ast.AsyncFunctionDef | ast.FunctionDef):
                found.setdefault(part.name, part)
        todo += [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    return found


def imported_modules(folder: Path) -> set[str]:
    """The modules imported anywhere in the folder's Python files, by their full names."""
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module)
    return found


def test_the_frameworks_of_the_first_release_are_there() -> None:
    assert {"bare", "bare-openai", "lightagent", "lightagent-llm", "langchain", "llamaindex", "autogen"} <= set(
        VARIANTS
    )


@each_folder
def test_adapter_toml_is_valid_and_complete(path: Path) -> None:
    variants = read_folder(path).variants
    assert variants
    for variant in variants:
        assert NAME.fullmatch(variant.name)
        assert variant.title
        assert variant.description
        assert variant.approach in {"default", "tuned"}
        assert set(variant.capabilities) <= set(METHODS_OF_CAPABILITY)


@each_folder
def test_a_folder_without_a_default_variant_is_not_comparable(path: Path) -> None:
    assert any(variant.approach == "default" for variant in read_folder(path).variants)


@each_variant
def test_the_class_has_the_three_methods(folder: AdapterFolder, variant: Variant) -> None:
    methods = methods_of(folder, variant)
    assert set(methods) >= METHODS
    for name in METHODS:
        assert isinstance(methods[name], ast.AsyncFunctionDef), f"{name} must be an `async def`"


@each_variant
def test_a_capability_is_declared_just_when_its_methods_are_there(folder: AdapterFolder, variant: Variant) -> None:
    methods = set(methods_of(folder, variant))
    for capability, needed in METHODS_OF_CAPABILITY.items():
        assert (capability in variant.capabilities) == (needed <= methods), capability


@each_folder
def test_requirements_are_named_and_locked(path: Path) -> None:
    names = [line for line in (path / "requirements.in").read_text().splitlines() if line and not line.startswith("#")]
    lock = (path / "requirements.lock").read_text().lower().replace("_", "-")
    for line in names:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        assert name, line
        assert re.search(rf"^{re.escape(name[0].lower().replace('_', '-'))}(\[[^]]*\])?==", lock, re.MULTILINE), line


@each_variant
def test_the_framework_whose_version_is_shown_is_in_the_lock(folder: AdapterFolder, variant: Variant) -> None:
    if variant.distribution is not None:
        lock = adapter_environment(folder.path).lock.read_text()
        assert re.search(rf"^{re.escape(variant.distribution)}(\[[^]]*\])?==", lock, re.MULTILINE)


@each_folder
def test_an_adapter_imports_no_other_framework(path: Path) -> None:
    packages = {module.partition(".")[0] for module in imported_modules(path)}
    for framework, its_packages in PACKAGES_OF_FRAMEWORK.items():
        if framework == path.name:
            assert packages & its_packages, f"{path.name} imports nothing of its framework"
        else:
            assert not packages & its_packages


@each_folder
def test_an_adapter_knows_the_contract_and_nothing_else_of_us(path: Path) -> None:
    ours = {module for module in imported_modules(path) if module.partition(".")[0] == "agentdyno"}
    if any(variant.plans_with != "llm" for variant in read_folder(path).variants):
        ours.discard("agentdyno.host.border")  # planning without an LLM is marked there; nobody else could see it
    assert all(module.startswith("agentdyno.contract.") for module in ours), ours
