"""Configs that do not fit are refused before anything is built, all mistakes at once."""

from __future__ import annotations

from typing import Any

import pytest
from pegboard import Classes, DataSpec, Facts, Image, Problem, Tokens, Vector
from pegboard_transformer import pegboard_models

TEXT = Tokens(9, 6, 0)
PARTS = {part.name: part for part in pegboard_models()}


def problems(name: str, spec: DataSpec | None, **fields: Any) -> list[Problem]:
    part = PARTS[name]
    assert part.check is not None
    return list(part.check(part.config(**fields), Facts(spec=spec)))


@pytest.mark.parametrize("name", ["encoder", "decoder", "translation", "vit"])
def test_heads_and_pairs_must_fit_the_width(name: str) -> None:
    assert not problems(name, None)
    [found] = problems(name, None, width=10, heads=4)
    assert found.field == "heads" and "4 heads do not divide the width 10" in found.message
    [found] = problems(name, None, width=12, heads=4, positions="rotary")
    assert found.field == "positions" and "each head has 3" in found.message
    assert [p.field for p in problems(name, None, width=15, heads=4, positions="sinusoidal")] == [
        "heads",
        "width",
    ]


MISFITS = [
    ("encoder", DataSpec((TEXT, TEXT), Classes(3)), {}, "one input, and the data gives 2"),
    ("encoder", DataSpec((TEXT,), Tokens(3, 6)), {"pool": "token"}, "an answer at every step"),
    ("decoder", DataSpec((TEXT,), Tokens(3, 6)), {}, "9 to read and 3 to predict"),
    ("decoder", DataSpec((TEXT, TEXT), TEXT), {}, "the data gives"),
    ("translation", DataSpec((TEXT,), TEXT), {}, "the data gives"),
    ("translation", DataSpec((TEXT, TEXT), TEXT), {}, "which symbol a target begins with"),
    (
        "translation",
        DataSpec((TEXT, Tokens(5, 6, 0, 1, 2)), Tokens(5, 6, 0, 1, 2)),
        {"shared": True},
        "vocabularies of 9 and 5",
    ),
    ("vit", DataSpec((Image(1, 28, 28),), Classes(3)), {"patch": 16}, "side 16 do not divide"),
    ("vit", DataSpec((Vector(3),), Classes(3)), {}, "the data gives"),
]


@pytest.mark.parametrize(("name", "spec", "fields", "message"), MISFITS)
def test_data_that_does_not_fit_is_named(
    name: str, spec: DataSpec, fields: dict[str, Any], message: str
) -> None:
    [found] = problems(name, spec, **fields)
    assert message in found.message and (found.expected or found.hint)
