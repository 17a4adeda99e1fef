"""From a parameter's annotation to its JSON schema and to the check that an argument must pass.

Both are made once, when a tool is defined; a call only runs the checks.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from lightagent.errors import ArgumentError, ToolDefinitionError

Check = Callable[[object, str], object]
"""Takes an argument and the words for where it stands; returns what the function gets, or raises ArgumentError."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One annotation, compiled."""

    schema: dict[str, Any]
    check: Check


def compile_annotation(annotation: object, where: str) -> Kind:
    """Compile str, int, float, bool, None, Literal, an Enum class, list, a union, or any of these in Annotated.

    A text in Annotated is the description. Raises ToolDefinitionError, naming `where`, for anything else.
    """
    simple = _SIMPLE.get(annotation) if isinstance(annotation, type) or annotation is None else None
    if simple is not None:
        return simple
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = compile_annotation(args[0], where)
        texts = [text for text in args[1:] if isinstance(text, str)]
        return Kind({**inner.schema, "description": texts[0]}, inner.check) if texts else inner
    if origin is Literal:
        return _choice({value: value for value in args}, where)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _choice({member.value: member for member in annotation}, where)
    if annotation is list or origin is list:
        return _list(compile_annotation(args[0], where) if args else None)
    if origin is Union or origin is types.UnionType:
        return _union([compile_annotation(arg, where) for arg in args])
    raise ToolDefinitionError(
        f"{where} is annotated {annotation!r}, for which there is no JSON schema here; "
        "use str, int, float, bool, Literal, an Enum, list, or a union of these."
    )


def _mismatch(where: str, wanted: str, value: object) -> ArgumentError:
    return ArgumentError(f"{where} must be {wanted}, not {repr(value)[:80]}")


def _check_str(value: object, where: str) -> object:
    if type(value) is str:
        return value
    raise _mismatch(where, "a string", value)


def _check_bool(value: object, where: str) -> object:
    if type(value) is bool:
        return value
    raise _mismatch(where, "true or false", value)


def _check_int(value: object, where: str) -> object:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():  # JSON knows one kind of number; models write 3.0 for 3
        return int(value)
    raise _mismatch(where, "an integer", value)


def _check_float(value: object, where: str) -> object:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise _mismatch(where, "a number", value)


def _check_none(value: object, where: str) -> object:
    if value is None:
        return None
    raise _mismatch(where, "null", value)


_SIMPLE: dict[Any, Kind] = {
    str: Kind({"type": "string"}, _check_str),
    bool: Kind({"type": "boolean"}, _check_bool),
    int: Kind({"type": "integer"}, _check_int),
    float: Kind({"type": "number"}, _check_float),
    type(None): Kind({"type": "null"}, _check_none),
    None: Kind({"type": "null"}, _check_none),
}
_JSON_TYPE = {str: "string", bool: "boolean", int: "integer"}


def _choice(members: dict[Any, Any], where: str) -> Kind:
    """One of the values (the keys); the function gets what stands for it."""
    kinds = {type(value) for value in members}
    if not kinds or not kinds <= _JSON_TYPE.keys():
        raise ToolDefinitionError(f"{where} has choices other than strings, integers and booleans, or none at all.")
    schema: dict[str, Any] = {"enum": list(members)}
    if len(kinds) == 1:
        schema["type"] = _JSON_TYPE[kinds.pop()]
    # The type is part of the key because True == 1 in Python and not in JSON.
    by_value = {(type(value), value): member for value, member in members.items()}
    wanted = "one of " + ", ".join(repr(value) for value in members)

    def check(value: object, where: str) -> object:
        key = (type(value), value) if isinstance(value, (str, int)) else None
        if key in by_value:
            return by_value[key]
        raise _mismatch(where, wanted, value)

    return Kind(schema, check)


def _list(item: Kind | None) -> Kind:
    def check(value: object, where: str) -> object:
        if type(value) is not list:
            raise _mismatch(where, "a list", value)
        if item is None:
            return value
        return [item.check(each, f"{where}[{position}]") for position, each in enumerate(value)]

    return Kind({"type": "array", "items": item.schema if item else {}}, check)


def _union(kinds: list[Kind]) -> Kind:
    """The first kind that fits."""

    def check(value: object, where: str) -> object:
        reasons = []
        for kind in kinds:
            try:
                return kind.check(value, where)
            except ArgumentError as error:
                reasons.append(str(error))
        raise ArgumentError("; or ".join(reasons))

    return Kind({"anyOf": [kind.schema for kind in kinds]}, check)
