"""Plain data to dataclasses, what is said of types, and the comments of fields."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pegboard.config.errors import Mistake
from pegboard.config.fields import comments, describe, words
from pegboard.config.match_fields import BAD, build, convert
from pegboard.contract.records import Ge, Gt, Le, Length, Lt, Matches


class Side(enum.Enum):
    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class Inner:
    """Inside."""

    x: int
    y: float = 1.0


@dataclass(frozen=True)
class Base:
    """Below."""

    first: int = 1  # of the base


# fmt: off
@dataclass(frozen=True)
class Commented(Base):
    """Above."""

    plain: float = 0.5  # share kept
    long: tuple[
        int,
        ...,
    ] = (
        1,
        2,
    )  # over many lines
    inside: str = (
        "auto"  # within brackets
    )
    # said on the line above
    # and the next
    above: int = 3

    # not of the next field, as a line is between

    bare: int = 4
    pragma: int = 5  # type: ignore
    two: int = 6  # starts here
    #               and is no continuation
    three: int = 7  # starts here
                    # and goes on
    text: str = "a # b"  # not in the text

    def method(self) -> None:
        inner: int = 3  # not a field
        del inner
# fmt: on


Positive = Annotated[int, Ge(1)]
ACCEPTED: list[tuple[Any, Any, Any]] = [
    (str, "a", "a"),
    (int, 3, 3),
    (int, 3.0, 3),
    (int, 1e3, 1000),
    (float, 3, 3.0),
    (float, float("inf"), float("inf")),
    (bool, True, True),
    (bool, "yes", True),
    (bool, "Off", False),
    (type(None), None, None),
    (Path, "a/b", Path("a/b")),
    (Literal["a", 1], 1, 1),
    (Side, "left", Side.LEFT),
    (Side, "RIGHT", Side.RIGHT),
    (int | None, None, None),
    (Optional[int], 3, 3),  # noqa: UP045
    (int | str, "a", "a"),
    (float | int, 3, 3),
    (str | int, 3, 3),
    (bool | str, "yes", "yes"),
    (float | Literal["auto"], "auto", "auto"),
    (Annotated[float, Ge(0), Lt(1)], 0, 0.0),
    (Annotated[int | None, Ge(1)], None, None),
    (Annotated[str, Matches("a+", "a's")], "aaa", "aaa"),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[int, str], [1, "a"], (1, "a")),
    (list[float], (1, 2), [1.0, 2.0]),
    (Sequence[int], [1], (1,)),
    (frozenset[str], ["a", "a"], frozenset({"a"})),
    (tuple, [1, "x"], (1, "x")),
    (dict[str, int], {"a": 1.0}, {"a": 1}),
    (Mapping[str, Any], {"a": [1]}, {"a": [1]}),
    (dict, {"a": 1}, {"a": 1}),
    (Annotated[tuple[Positive, ...], Length(1, 2)], [1], (1,)),
    (Inner, {"x": 1}, Inner(1)),
    (Inner | None, {"x": 1, "y": 2}, Inner(1, 2.0)),
    (tuple[Inner, ...], [{"x": 1}], (Inner(1),)),
    (Any, {"a": [1]}, {"a": [1]}),
]


@pytest.mark.parametrize(("hint", "value", "expected"), ACCEPTED)
def test_a_value_that_fits_its_type_is_taken(hint: Any, value: Any, expected: Any) -> None:
    found: list[Mistake] = []
    made = convert(hint, value, "x", found)
    assert not found
    assert made == expected and type(made) is type(expected)


REFUSED: list[tuple[Any, Any, str, str]] = [
    (str, 3, "x", "a text"),
    (str, True, "x", "a text"),
    (str, None, "x", "a text"),
    (int, "3", "x", "a whole number"),
    (int, 3.5, "x", "a whole number"),
    (int, True, "x", "a whole number"),
    (int, float("nan"), "x", "a whole number"),
    (int, float("inf"), "x", "a whole number"),
    (float, True, "x", "a number"),
    (float, "a", "x", "a number"),
    (float, 10**400, "x", "a number"),
    (bool, 1, "x", "true or false"),
    (bool, "maybe", "x", "true or false"),
    (Literal["a", 1], True, "x", "one of a, 1"),
    (Side, "up", "x", "one of left, right"),
    (int | None, "a", "x", "a whole number or null"),
    (None | int, "a", "x", "a whole number or null"),
    (int | str, [1], "x", "a whole number or a text"),
    (Annotated[float, Gt(0)] | Literal["auto"], -1, "x", "a number (more than 0) or auto"),
    (Annotated[float, Gt(0)] | Literal["auto"], "atuo", "x", "a number (more than 0) or auto"),
    (Annotated[float, Ge(0), Le(1)], float("nan"), "x", "a number (at least 0 and at most 1)"),
    (Annotated[int, Ge(1)] | None, 0, "x", "a whole number (at least 1) or null"),
    (Annotated[int, Lt(5)], 10**400, "x", "a whole number (less than 5)"),
    (Annotated[str, Matches("a+", "some a's")], "b", "x", "some a's"),
    (tuple[int, ...], 1, "x", "a list of whole numbers"),
    (tuple[int, ...], [1, "a"], "x.1", "a whole number"),
    (tuple[int, int], [1], "x", "a list of 2 whole numbers"),
    (tuple[int, str], [1], "x", "a list of 2 values: a whole number, a text"),
    (set[tuple[int, ...]], 3, "x", "a list of lists of whole numbers"),
    (set[list[int]], [[1]], "x", "a list of lists of whole numbers"),
    (dict[str, int], {"a": "b"}, "x.a", "a whole number"),
    (dict[str, int], [1], "x", "a mapping of names to whole numbers"),
    (dict, 1, "x", "a mapping"),
    (Annotated[tuple[int, ...], Length(1)], [], "x", "a list of whole numbers (not empty)"),
    (Annotated[tuple[int, ...], Length(2, 2)], [], "x", "a list of whole numbers (of length 2)"),
    (Annotated[tuple[int, ...], Length(1, 2)], [1, 2, 3], "x", "a list of whole numbers (1 to 2 long)"),
    (tuple[Positive, ...], [0], "x.0", "a whole number (at least 1)"),
    (tuple[Positive, ...], "a", "x", "a list of whole numbers (each at least 1)"),
    (Inner, 3, "x", "a mapping with the keys x, y"),
    (Inner, {"y": 1}, "x.x", "a whole number"),
    (Inner, {"x": 1, "z": 1}, "x.z", "one of x, y"),
    (Inner | None, {"x": "a"}, "x.x", "a whole number"),
    (dict[str, Inner], {"a": {"x": None}}, "x.a.x", "a whole number"),
    (type(None), 3, "x", "null"),
    (str | None, 3, "x", "a text or null"),
]


@pytest.mark.parametrize(("hint", "value", "path", "expected"), REFUSED)
def test_a_value_that_does_not_fit_is_one_mistake_in_its_place(
    hint: Any, value: Any, path: str, expected: str
) -> None:
    found: list[Mistake] = []
    assert convert(hint, value, "x", found) is BAD
    assert [(m.path, m.expected) for m in found] == [(path, expected)]


def test_all_mistakes_of_a_dataclass_are_found() -> None:
    found: list[Mistake] = []
    assert build(Inner, {"z": "q", "y": "a"}, "part", found) is None
    assert [m.path for m in found] == ["part.z", "part.x", "part.y"]


def test_a_misspelt_required_key_is_one_mistake() -> None:
    @dataclass(frozen=True)
    class Needs:
        teacher: str

    found: list[Mistake] = []
    build(Needs, {"techer": "a"}, "part", found)
    assert [(m.path, m.nearest) for m in found] == [("part.techer", ("teacher",))]


def test_the_rule_of_a_dataclass_and_its_crash_are_told_apart() -> None:
    @dataclass(frozen=True)
    class Rule:
        a: int = 0

        def __post_init__(self) -> None:
            if self.a == 1:
                raise ValueError("a is 1")
            if self.a == 2:
                raise KeyError("oops")

    found: list[Mistake] = []
    build(Rule, {"a": 1}, "part", found)
    build(Rule, {"a": 2}, "part", found)
    assert [m.message for m in found] == ["a is 1", "Rule failed: KeyError('oops')"]


def test_comments_of_fields() -> None:
    assert comments(Commented) == {
        "first": "of the base",
        "plain": "share kept",
        "long": "over many lines",
        "inside": "within brackets",
        "above": "said on the line above and the next",
        "two": "starts here",
        "three": "starts here and goes on",
        "text": "not in the text",
    }


def test_comments_are_empty_without_a_source() -> None:
    space: dict[str, Any] = {}
    exec("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1  # lost\n", space)
    assert comments(space["A"]) == {}
    assert [f.comment for f in describe(space["A"])] == [""]


def test_fields_say_their_defaults() -> None:
    @dataclass(frozen=True)
    class Some:
        need: int
        side: Side = Side.LEFT
        many: tuple[int, ...] = (1, 2)
        made: dict[str, int] = field(default_factory=dict)
        none: int | None = None
        hidden: int = field(default=1, init=False)

    assert [(f.name, f.shown_default) for f in describe(Some)] == [
        ("need", "required"),
        ("side", "left"),
        ("many", "[1, 2]"),
        ("made", "{}"),
        ("none", "null"),
    ]


def test_words_of_odd_types() -> None:
    assert words(Any) == "any value"
    assert words(tuple) == "a list"
    assert words(bytes) == "bytes"
    assert words(tuple[Annotated[str, Matches("a", "only a")], ...]) == "a list of texts (only a)"
    assert words(Literal[tuple(f"c{i}" for i in range(50))]).endswith("c39 and 10 more")  # type: ignore[misc]
