"""Rules of the config that types cannot express. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Any

from pegboard import DataSpec, Facts, Image, Problem, Series, Spec, Tokens

from .configs import OWN_FIELDS, Rnn


def check_rnn(config: Rnn, facts: Facts) -> Iterable[Problem]:
    """All that is wrong with a config, and with what it is to read and predict."""
    yield from _check_cell(config)
    if facts.spec is not None and facts.spec.inputs:
        yield from _check_data(config, facts.spec)


def _given(config: Any) -> set[str]:
    """Names of the fields that are not as they are by default."""
    return {
        f.name for f in fields(config) if f.default is not MISSING and getattr(config, f.name) != f.default
    }


def _check_cell(config: Rnn) -> Iterator[Problem]:
    given = _given(config)
    for name, cells in OWN_FIELDS.items():
        if name in given and config.cell not in cells:
            yield Problem(
                f"the cell {config.cell} has no {name}",
                name,
                expected=f"cell: {' or '.join(cells)}",
                hint=f"leave {name} out, or name such a cell",
            )
    if config.gate_bias is not None and not config.bias:
        yield Problem("gates have a constant only with bias: true", "gate_bias", hint="leave one of them out")
    low, high = config.radius
    if low > high:
        yield Problem(f"it goes from {low:g} to {high:g}", "radius", expected="the smaller one first")


def _check_data(config: Rnn, spec: DataSpec) -> Iterator[Problem]:
    read, target, given = spec.inputs[0], spec.target, _given(config)
    if len(spec.inputs) > 1:
        yield Problem(
            f"it reads one sequence, and the data gives {len(spec.inputs)} inputs: {spec}",
            expected="data with one input",
            hint="seq2seq reads a text and writes another",
        )
    if "image" in given and not isinstance(read, Image):
        yield Problem(f"the data has no pictures but {read}", "image", hint="leave image out")
    if "embedding" in given and not isinstance(read, Tokens):
        yield Problem(f"the data has no symbols but {read}", "embedding", hint="leave embedding out")
    if not each_step(target):
        return
    if "pool" in given:
        yield Problem(f"{target} is predicted at every step, from its own state", "pool", hint="leave it out")
    if config.bidirectional and foretells(read, target):
        yield Problem(
            f"{spec} may be the next step of what is read, which the direction from the end has seen",
            "bidirectional",
            expected="false, or a target that is something else than the input",
        )
    steps, asked = step_count(config, read), getattr(target, "length", None)
    if None not in (steps, asked) and steps != asked:
        yield Problem(
            f"it reads {steps} steps, and the target has {asked}: {spec}",
            "image" if isinstance(read, Image) else "",
            expected="a target for every step",
        )


def each_step(target: Spec | None) -> bool:
    """Whether something is to be predicted at every step."""
    return isinstance(target, Tokens | Series)


def foretells(read: Spec, target: Spec | None) -> bool:
    """Whether the target is made of the same things as the input, so that it may be its next step."""
    if isinstance(read, Tokens) and isinstance(target, Tokens):
        return read.vocab == target.vocab
    return isinstance(read, Series) and isinstance(target, Series) and read.features == target.features


def step_count(config: Rnn, read: Spec) -> int | None:
    """How many steps a sample has at most."""
    if not isinstance(read, Image):
        return getattr(read, "length", None)
    if config.image == "rows":
        return read.height
    if config.image == "columns":
        return read.width
    return None if read.height is None or read.width is None else read.height * read.width
