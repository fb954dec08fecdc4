"""Configs that do not fit are refused before anything is built, all mistakes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pegboard import Classes, DataSpec, Facts, Image, Problem, Series, Tokens, Values, Vector
from pegboard.cli import main
from pegboard_rnn import pegboard_models, pegboard_probes
from pegboard_rnn.configs import OWN_FIELDS, Rnn

TEXT, SERIES = Tokens(9, 6, 0), Series(6, 3)
PAIR = Tokens(5, 6, 0, 1, 2)
PARTS: dict[str, Any] = {part.name: part for part in (*pegboard_models(), *pegboard_probes())}


def problems(name: str, spec: DataSpec | None, model: Any = None, **fields: Any) -> list[Problem]:
    part = PARTS[name]
    return list(part.check(part.config(**fields), Facts(spec=spec, model=model)))


OTHER: dict[str, Any] = {
    "gate_bias": 3.0, "activation": "relu", "transition": 2, "output_matrix": True, "reset": "before",
    "state": 4, "radius": (0.5, 0.9), "phase": 0.3,
}  # fmt: skip


@pytest.mark.parametrize("field", OWN_FIELDS)
@pytest.mark.parametrize("cell", ["elman", "lstm", "gru", "mingru", "lru"])
def test_a_field_of_another_cell_is_a_mistake(cell: str, field: str) -> None:
    found = problems("rnn", None, cell=cell, **{field: OTHER[field]})
    if cell in OWN_FIELDS[field]:
        assert not found
    else:
        [problem] = found
        assert problem.field == field and problem.message == f"the cell {cell} has no {field}"
        assert all(name in str(problem.expected) for name in OWN_FIELDS[field]) and problem.hint


def test_every_field_that_one_cell_has_says_so() -> None:
    assert set(OTHER) == set(OWN_FIELDS) and set(OWN_FIELDS) <= set(Rnn.__dataclass_fields__)


def test_constants_of_gates_need_a_bias_and_a_range_its_smaller_end_first() -> None:
    [found] = problems("rnn", None, gate_bias=3.0, bias=False)
    assert found.field == "gate_bias" and "bias: true" in found.message
    [found] = problems("rnn", None, cell="lru", radius=(0.99, 0.9))
    assert found.field == "radius" and "from 0.99 to 0.9" in found.message
    assert not problems("rnn", None, cell="lru", radius=(0.0, 1.0))


MISFITS = [
    ("rnn", DataSpec((TEXT, TEXT), Classes(3)), {}, "", "the data gives 2 inputs"),
    ("rnn", DataSpec((TEXT,), Classes(3)), {"image": "pixels"}, "image", "no pictures but Tokens"),
    ("rnn", DataSpec((SERIES,), Classes(3)), {"embedding": 4}, "embedding", "no symbols but Series"),
    ("rnn", DataSpec((TEXT,), Tokens(4, 6)), {"pool": "mean"}, "pool", "predicted at every step"),
    ("rnn", DataSpec((TEXT,), TEXT), {"bidirectional": True}, "bidirectional", "may be the next step"),
    ("rnn", DataSpec((SERIES,), SERIES), {"bidirectional": True}, "bidirectional", "may be the next step"),
    ("rnn", DataSpec((TEXT,), Tokens(4, 5)), {}, "", "6 steps, and the target has 5"),
    ("rnn", DataSpec((Image(1, 4, 6),), Tokens(3, 6)), {}, "image", "4 steps, and the target has 6"),
    ("seq2seq", DataSpec((TEXT,), TEXT), {}, "", "the data gives"),
    ("seq2seq", DataSpec((TEXT, PAIR), Classes(3)), {}, "", "the data gives"),
    ("seq2seq", DataSpec((TEXT, TEXT), TEXT), {}, "", "no symbol that begins it"),
    ("seq2seq", DataSpec((TEXT, PAIR), PAIR), {"hidden": 7}, "hidden", "hidden 7 is odd"),
    ("alignment", DataSpec((SERIES,), Values(1)), {}, "", "the data gives"),
]


@pytest.mark.parametrize(("name", "spec", "fields", "field", "message"), MISFITS)
def test_data_that_does_not_fit_is_named(
    name: str, spec: DataSpec, fields: dict[str, Any], field: str, message: str
) -> None:
    [found] = problems(name, spec, **fields)
    assert found.field == field and message in found.message and (found.expected or found.hint)


FITS = [
    ("rnn", DataSpec((TEXT,), Tokens(4, 6)), {"bidirectional": True, "embedding": 3}),
    ("rnn", DataSpec((SERIES,), Series(6, 2)), {"bidirectional": True}),
    ("rnn", DataSpec((Image(1, 4, 6),), Tokens(3, 24)), {"image": "pixels"}),
    ("rnn", DataSpec((Image(1, None, None),), Tokens(3, 24)), {"image": "pixels"}),
    ("rnn", DataSpec((Series(None, 3),), Series(6, 3)), {}),
    ("seq2seq", DataSpec((TEXT, PAIR), PAIR), {"hidden": 7, "bidirectional": False}),
    ("seq2seq", DataSpec((Tokens(), Tokens()), Tokens()), {}),  # before the texts are read
    ("alignment", DataSpec((TEXT, PAIR), PAIR), {}),
]


@pytest.mark.parametrize(("name", "spec", "fields"), FITS)
def test_what_fits_is_accepted(name: str, spec: DataSpec, fields: dict[str, Any]) -> None:
    assert not problems(name, spec, **fields) and not problems(name, None, **fields)


def test_alignment_is_of_a_model_that_writes() -> None:
    from pegboard import Model

    silent = Model("silent", Rnn, lambda config, context: None, inputs=(Vector,))  # type: ignore[arg-type,return-value]
    [found] = problems("alignment", DataSpec((TEXT, PAIR), PAIR), silent)
    assert "'silent' writes no texts" in found.message
    assert not problems("alignment", DataSpec((TEXT, PAIR), PAIR), PARTS["seq2seq"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("cell: lstn", ["model.cell", "did you mean 'lstm'"]),
        ("hidden: 0", ["model.hidden", "at least 1"]),
        ("cell: lru, radius: [0.9]", ["model.radius", "2"]),
        ("cell: gru, transition: 2, state: 3", ["has no transition", "has no state"]),
        ("celll: gru", ["celll", "did you mean 'cell'"]),
    ],
)
def test_a_mistake_is_told_with_its_place_and_without_a_traceback(
    given: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.yaml"
    rest = "optimizer: {name: adam}\ntrainer: {epochs: 1}\n"
    path.write_text(f"data: {{name: recall}}\nmodel: {{name: rnn, {given}}}\n{rest}")
    assert main(["check", str(path)]) == 2
    told = "".join(capsys.readouterr())
    assert "wrong.yaml:2" in told and "Traceback" not in told
    assert all(word in told for word in words), told
