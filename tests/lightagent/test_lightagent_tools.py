"""Tools from functions: the derived schema, the check of arguments, sets that never change."""

from __future__ import annotations

import enum
from typing import Annotated, Literal, Optional

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightagent import ArgumentError, Tool, ToolDefinitionError, ToolSet, UnknownToolError


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


async def everything(
    name: Annotated[str, "who asks"],
    count: int,
    price: float,
    express: bool,
    colour: Literal["red", "blue"],
    size: Size,
    tags: list[str],
    note: Optional[str] = None,  # noqa: UP045 - the old spelling must work too
    limit: int | None = None,
    default_size: Size = Size.SMALL,
    words: list[str] = ["a"],  # noqa: B006 - only its schema matters
) -> str:
    """Takes one of each."""
    return "ok"


FITTING = {
    "name": "n",
    "count": 1,
    "price": 2.5,
    "express": True,
    "colour": "red",
    "size": "l",
    "tags": ["x", "y"],
}


def test_the_schema_follows_from_annotations_and_defaults():
    tool = Tool.from_function(everything)
    assert tool.openai_schema() == {
        "type": "function",
        "function": {
            "name": "everything",
            "description": "Takes one of each.",
            "parameters": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "who asks"},
                    "count": {"type": "integer"},
                    "price": {"type": "number"},
                    "express": {"type": "boolean"},
                    "colour": {"type": "string", "enum": ["red", "blue"]},
                    "size": {"type": "string", "enum": ["s", "l"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                    "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                    "default_size": {"type": "string", "enum": ["s", "l"], "default": "s"},
                    "words": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
                },
                "required": ["name", "count", "price", "express", "colour", "size", "tags"],
                "additionalProperties": False,
            },
        },
    }


def test_fitting_arguments_come_through_as_the_function_wants_them():
    checked = Tool.from_function(everything).check({**FITTING, "price": 3, "count": 4.0, "limit": None})
    assert checked == {**FITTING, "price": 3.0, "count": 4, "size": Size.LARGE, "limit": None}
    assert type(checked["price"]) is float
    assert type(checked["count"]) is int


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 5}, "name must be a string, not 5"),
        ({"count": 1.5}, "count must be an integer"),
        ({"count": True}, "count must be an integer"),
        ({"price": "1"}, "price must be a number"),
        ({"price": False}, "price must be a number"),
        ({"express": 1}, "express must be true or false"),
        ({"colour": "green"}, "colour must be one of 'red', 'blue'"),
        ({"colour": ["red"]}, "colour must be one of"),
        ({"size": "SMALL"}, "size must be one of 's', 'l'"),
        ({"tags": "x"}, "tags must be a list"),
        ({"tags": ["x", 2]}, r"tags\[1\] must be a string"),
        ({"note": 1}, "note must be a string, not 1; or note must be null"),
        ({"colours": "red"}, "has no parameter 'colours'"),
    ],
)
def test_what_does_not_fit_is_said(change, said):
    with pytest.raises(ArgumentError, match=said):
        Tool.from_function(everything).check({**FITTING, **change})


def test_a_missing_argument_is_said():
    with pytest.raises(ArgumentError, match="needs the parameter 'count'"):
        Tool.from_function(everything).check({key: value for key, value in FITTING.items() if key != "count"})


def test_literals_of_true_and_one_are_not_mixed_up():
    async def choose(which: Literal[1, "one"]) -> str:
        """Choose."""
        return "ok"

    tool = Tool.from_function(choose)
    assert tool.parameters["properties"]["which"] == {"enum": [1, "one"]}
    assert tool.check({"which": 1}) == {"which": 1}
    with pytest.raises(ArgumentError):
        tool.check({"which": True})


letters = st.text("aé \n1", max_size=5)  # few: hypothesis takes seconds to load all of Unicode
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | letters,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(letters, inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*FITTING, "note", "limit", "other"]), json_values, max_size=2))
def test_any_json_is_either_refused_or_of_the_annotated_types(changes):
    try:
        checked = Tool.from_function(everything).check(FITTING | changes)
    except ArgumentError:
        return
    assert FITTING.keys() <= checked.keys()
    types = {"name": str, "count": int, "price": float, "express": bool, "colour": str, "size": Size, "tags": list}
    for name, wanted in types.items():
        assert type(checked[name]) is wanted


@given(st.lists(st.integers()), st.one_of(st.none(), letters))
def test_arguments_that_fit_are_never_refused(numbers, note):
    async def take(numbers: list[int], note: str | None) -> str:
        """Take."""
        return "ok"

    assert Tool.from_function(take).check({"numbers": numbers, "note": note}) == {"numbers": numbers, "note": note}


def test_functions_that_cannot_be_tools_are_refused():
    async def untyped(a) -> str:
        """Doc."""

    async def odd(a: dict[str, int]) -> str:
        """Doc."""

    async def many(*a: str) -> str:
        """Doc."""

    async def silent(a: str) -> str: ...

    async def unknown(a: "Nowhere") -> str:  # noqa: F821, UP037 - that is the point
        """Doc."""

    def blocking(a: str) -> str:
        """Doc."""

    async def floats(a: Literal[b"x"]) -> str:
        """Doc."""

    for function, said in [
        (untyped, "has no type annotation"),
        (odd, "no JSON schema"),
        (many, "cannot be given by keyword"),
        (silent, "no docstring"),
        (unknown, "cannot be resolved"),
        (blocking, "async def"),
        (floats, "choices other than"),
    ]:
        with pytest.raises(ToolDefinitionError, match=said):
            Tool.from_function(function)
    with pytest.raises(ToolDefinitionError, match="cannot name a tool"):
        Tool.from_function(everything, name="no spaces")


def test_sets_do_not_change_and_keep_their_order():
    async def a() -> str:
        """A."""
        return "a"

    one = Tool.from_function(a)
    two = Tool.from_function(a, name="b")
    small = ToolSet([one])
    large = small.adding(two)
    assert (small.names, large.names, large.removing("a").names) == (("a",), ("a", "b"), ("b",))
    assert large.only(()) is large
    assert large.only(["b", "a"]).names == ("b", "a")
    assert large.only(["b"]) is large.only(["b"])  # encoded once
    assert ToolSet().encoded is None
    assert orjson.loads(orjson.dumps(large.encoded)) == [one.openai_schema(), two.openai_schema()]
    with pytest.raises(UnknownToolError, match="There is no tool 'c'; there are: a, b"):
        large.only(["a", "c"])
    with pytest.raises(UnknownToolError):
        small.removing("b")


def test_the_cache_of_subsets_is_bounded():
    async def a() -> str:
        """A."""
        return "a"

    tools = ToolSet([Tool.from_function(a, name=f"t{number}") for number in range(200)])
    for number in range(200):
        tools.only([f"t{number}"])
    assert len(tools._subsets) <= 64
