"""Tools from plain async functions, and the immutable set of them that a request works with."""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from lightagent.errors import ArgumentError, ToolDefinitionError, UnknownToolError
from lightagent.retry import Retry
from lightagent.schema import Check, compile_annotation

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_CACHED_SUBSETS = 64


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    parameters: JSON schema of the arguments. timeout_s: for one attempt. retry: how often a failed attempt is
    repeated; None for a tool that must not run twice.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Awaitable[Any]]
    timeout_s: float
    retry: Retry | None
    checks: Mapping[str, Check]
    required: frozenset[str]

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Awaitable[Any]],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
    ) -> Tool:
        """Make a tool of an async function: its docstring describes it, its annotations are the schema.

        Raises ToolDefinitionError when the function does not say enough.
        """
        name = name or str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(name):
            raise ToolDefinitionError(f"{name!r} cannot name a tool; use up to 64 letters, digits, '_' and '-'.")
        if not inspect.iscoroutinefunction(function):
            raise ToolDefinitionError(f"Tool {name} is no async function; declare it with `async def`.")
        description = description or inspect.getdoc(function) or ""
        if not description:
            raise ToolDefinitionError(f"Tool {name} has no docstring to tell the LLM what it is for; write one.")
        properties: dict[str, Any] = {}
        checks: dict[str, Check] = {}
        required: list[str] = []
        for parameter, annotation in _parameters(function, name):
            kind = compile_annotation(annotation, f"Parameter {parameter.name!r} of tool {name}")
            schema = kind.schema
            if parameter.default is parameter.empty:
                required.append(parameter.name)
            else:
                schema = {**schema, "default": _as_json(parameter.default)}
            properties[parameter.name], checks[parameter.name] = schema, kind.check
        parameters = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        try:
            orjson.dumps(parameters)
        except orjson.JSONEncodeError as error:
            raise ToolDefinitionError(f"A default of tool {name} cannot be written as JSON: {error}.") from error
        return cls(name, description, parameters, function, timeout_s, retry, checks, frozenset(required))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises ArgumentError that says what does not fit."""
        checks = self.checks
        if not arguments.keys() <= checks.keys():
            unknown = sorted(arguments.keys() - checks.keys())
            has = ", ".join(checks) or "none"
            raise ArgumentError(f"{self.name} has no parameter {unknown[0][:80]!r}; it has {has}")
        if not self.required <= arguments.keys():
            missing = sorted(self.required - arguments.keys())
            raise ArgumentError(f"{self.name} needs the parameter {missing[0]!r}")
        return {name: checks[name](value, name) for name, value in arguments.items()}

    def openai_schema(self) -> dict[str, Any]:
        """The tool as an entry of a chat completion request's `tools`."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.parameters},
        }


def as_tool(tool: Tool | Callable[..., Awaitable[Any]]) -> Tool:
    """A tool as it is, or a plain async function made one with the default timeout and no retry."""
    return tool if isinstance(tool, Tool) else Tool.from_function(tool)


class ToolSet:
    """Some tools by name. It never changes: adding and removing make another set, so a request keeps its own."""

    __slots__ = ("_by_name", "_subsets", "encoded")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._by_name = {tool.name: tool for tool in tools}
        self._subsets: dict[tuple[str, ...], ToolSet] = {}
        # Encoded once, not in each LLM call; None because servers refuse an empty list.
        schemas = orjson.dumps([tool.openai_schema() for tool in self._by_name.values()])
        self.encoded = orjson.Fragment(schemas) if self._by_name else None

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Tool | None:
        """The tool of that name, or None."""
        return self._by_name.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, in the order in which they are offered."""
        return tuple(self._by_name)

    def adding(self, tool: Tool) -> ToolSet:
        """This set and `tool`, in place of one with the same name."""
        return ToolSet({**self._by_name, tool.name: tool}.values())

    def removing(self, name: str) -> ToolSet:
        """This set without that tool. Raises UnknownToolError when there is none."""
        self._require(name)
        return ToolSet(tool for tool in self if tool.name != name)

    def only(self, names: Sequence[str]) -> ToolSet:
        """The named tools; all when no name is given. Raises UnknownToolError for one that is not here."""
        key = tuple(names)
        if not key or key == self.names:
            return self
        found = self._subsets.get(key)
        if found is None:
            found = ToolSet([self._require(name) for name in key])
            if len(self._subsets) >= _MAX_CACHED_SUBSETS:  # the names come from requests: keep it bounded
                self._subsets.clear()
            self._subsets[key] = found
        return found

    def _require(self, name: str) -> Tool:
        tool = self._by_name.get(name)
        if tool is None:
            raise UnknownToolError(f"There is no tool {name[:80]!r}; there are: {', '.join(self.names) or 'none'}.")
        return tool


def _parameters(function: Callable[..., Any], name: str) -> list[tuple[inspect.Parameter, Any]]:
    """Each parameter with its annotation, strings resolved."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ToolDefinitionError(f"An annotation of tool {name} cannot be resolved: {error}.") from error
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolDefinitionError(f"Parameter {parameter.name!r} of tool {name} cannot be given by keyword.")
        if parameter.name not in hints:
            raise ToolDefinitionError(f"Parameter {parameter.name!r} of tool {name} has no type annotation.")
        found.append((parameter, hints[parameter.name]))
    return found


def _as_json(default: object) -> object:
    if isinstance(default, enum.Enum):
        return default.value
    if isinstance(default, (list, tuple)):
        return [_as_json(each) for each in default]
    return default
