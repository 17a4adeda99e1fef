"""What an adapter is: a small class that hosts one framework, and the metadata beside it."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from agentdyno.contract.errors import UserError
from agentdyno.contract.invoke import InvokeRequest


@dataclass(frozen=True, slots=True)
class LlmEndpoint:
    """The OpenAI-compatible backend. base_url ends in `/v1`; api_key is never logged or stored."""

    base_url: str
    model: str
    api_key: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool, the same object for every framework.

    function: an async function with typed parameters and a docstring, fit for a framework to introspect.
    parameters: its JSON schema, for frameworks that want that instead.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Awaitable[str]]

    def openai_schema(self) -> dict[str, Any]:
        """The tool as an entry of an OpenAI chat completion request's `tools`."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.parameters},
        }


class Adapter(Protocol):
    """Hosts one framework. All methods run on the host's one event loop."""

    async def start(self, llm: LlmEndpoint, tools: Sequence[Tool], system_prompt: str) -> None:
        """Build the framework's client and agent once, as its documentation tells a user to."""

    async def invoke(self, request: InvokeRequest) -> str:
        """Run the agent to its final answer and return that text."""

    async def close(self) -> None:
        """Release what `start` built."""


@runtime_checkable
class Streams(Protocol):
    """An adapter that can also stream its answer."""

    def stream(self, request: InvokeRequest) -> AsyncIterator[str]:
        """Yield the final answer's text piece by piece."""


@runtime_checkable
class ChangesTools(Protocol):
    """An adapter whose tools can be added and removed while it runs."""

    async def add_tool(self, tool: Tool) -> None:
        """Offer `tool` from the next request on, in place of one with the same name."""

    async def remove_tool(self, name: str) -> None:
        """Stop offering the tool from the next request on."""


@runtime_checkable
class KeepsSessions(Protocol):
    """An adapter that keeps state per session id."""

    async def end_session(self, session_id: str) -> None:
        """Forget what is kept for that session; unknown ids are no error."""


class Native(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The framework's own instrumentation: what makes its spans, where a run asks for them.

    title: whose it is, for people. instrumentors: classes as `module:Class` with OpenTelemetry's `instrument` method;
    none for a framework that makes spans by itself once the process has a tracer provider. env: set in that host only.
    """

    title: str
    instrumentors: tuple[str, ...] = ()
    env: dict[str, str] = {}


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of an adapter folder: a name that FRAMEWORK= accepts.

    entry: `module:Class`, the module a file in the folder. approach: "default" (as the framework's own
    documentation builds it) or "tuned". llm_calls: how many calls the variant makes for one request of the
    scenario (None: not fixed). distribution: whose version names the framework's version (None: our own).
    command: instead of an entry, a program that listens on $PORT (for other languages). native: the framework's own
    instrumentation (None: it has none); the folder's native.in names its distributions.
    """

    name: str
    title: str
    description: str = ""
    entry: str | None = None
    command: tuple[str, ...] | None = None
    approach: str = "default"
    plans_with: str = "llm"
    llm_calls: int | None = 4
    distribution: str | None = None
    capabilities: tuple[str, ...] = ()
    env: dict[str, str] = {}
    native: Native | None = None


class _AdapterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """environment: a folder of the checkout's adapters/ whose lock and environment this one shares."""

    variant: tuple[Variant, ...]
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """A folder under adapters/: its path and the variants that its adapter.toml declares."""

    path: Path
    variants: tuple[Variant, ...]


class AdapterError(UserError):
    """An adapter folder or class that breaks the rules; the text says which rule, where, and what to do."""


def read_folder(path: Path) -> AdapterFolder:
    """Read and check `path`/adapter.toml. Raises AdapterError with a sentence."""
    file = path / "adapter.toml"
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
        found = msgspec.convert(raw, _AdapterFile)
    except OSError as error:
        raise AdapterError(f"{file} cannot be read: {error.strerror}.") from error
    except tomllib.TOMLDecodeError as error:
        raise AdapterError(f"{file} is not valid TOML: {error}.") from error
    except msgspec.ValidationError as error:
        raise AdapterError(f"{file} is not a valid adapter description: {error}.") from error
    for variant in found.variant:
        if (variant.entry is None) == (variant.command is None):
            raise AdapterError(f"{file}: variant {variant.name!r} needs either an entry or a command, and not both.")
    return AdapterFolder(path, found.variant)


def find_variants(root: Path) -> dict[str, tuple[AdapterFolder, Variant]]:
    """Every variant under `root` (the adapters/ folder) by name. Raises AdapterError on a double name."""
    found: dict[str, tuple[AdapterFolder, Variant]] = {}
    for file in sorted(root.glob("*/adapter.toml")):
        folder = read_folder(file.parent)
        for variant in folder.variants:
            if variant.name in found:
                other = found[variant.name][0].path
                raise AdapterError(f"The name {variant.name!r} is declared by both {other} and {folder.path}.")
            found[variant.name] = (folder, variant)
    return found


def check_class(made: object, where: str) -> None:
    """Raises AdapterError unless `made` has the three coroutine methods that every adapter has."""
    for method in ("start", "invoke", "close"):
        if not inspect.iscoroutinefunction(getattr(made, method, None)):
            raise AdapterError(f"{where} has no `async def {method}`; see adapters/README.md for the three methods.")
