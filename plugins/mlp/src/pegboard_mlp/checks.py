"""Rules of the models' configs that types cannot express. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from math import comb
from typing import Any

from pegboard import Facts, Points, Problem, Series, Tokens

from .configs import MONOMIALS, POSITIVE_ALPHA, WITH_ALPHA, Mlp, Polynomial, Prototypes, Threshold
from .reference_configs import DISTANCES


def check_input(config: Any, facts: Facts) -> Iterable[Problem]:
    """A model of this plugin reads one tensor."""
    if facts.spec is not None and len(facts.spec.inputs) > 1:
        yield Problem(
            f"it reads one input, and the data gives {len(facts.spec.inputs)}: {facts.spec}",
            expected="data with one input",
        )
    elif facts.spec is not None and any(isinstance(s, Series) and s.padded for s in facts.spec.inputs):
        yield Problem(
            f"it reads every step of a series, and samples of {facts.spec} may end early",
            expected="series of one length",
            hint="models of sequences read those: rnn, encoder, cnn",
        )
    if (
        facts.objective is not None
        and facts.objective.name in DISTANCES
        and not isinstance(config, Prototypes | Mlp)  # of hidden layers the objective says so
    ):
        yield Problem(
            f"{facts.objective.name} reads minus the squared distances to centres, and it has none",
            "name",
            expected="the model prototypes",
        )


def check_mlp(config: Mlp, facts: Facts) -> Iterable[Problem]:
    yield from check_input(config, facts)
    if facts.spec is not None and any(isinstance(s, Points) and s.padded for s in facts.spec.inputs):
        yield Problem(
            f"it reads all points side by side, and sets of {facts.spec} may have fewer",
            expected="sets of one size",
            hint="models of sets read those: deepsets, equivariant, pointnet",
        )
    elif facts.spec is not None and isinstance(facts.spec.target, Tokens):
        yield Problem(
            f"it gives one answer for a sample, and {facts.spec} asks for one at every place",
            expected="data with one class or value for a sample",
        )
    if config.alpha is not None and config.activation not in WITH_ALPHA:
        yield Problem(
            f"the activation {config.activation} has no alpha",
            "alpha",
            expected=f"one of {', '.join(WITH_ALPHA)} as activation",
            hint="leave alpha out",
        )
    elif config.alpha is not None and config.alpha <= 0 and config.activation in POSITIVE_ALPHA:
        yield Problem(
            f"the alpha of {config.activation} is {config.alpha}", "alpha", expected="a number above 0"
        )
    default = next(f.default for f in fields(Mlp) if f.name == "polynomial")
    if config.polynomial != default and config.activation != "polynomial":
        yield Problem(
            f"coefficients are given, but the activation is {config.activation}",
            "polynomial",
            expected="activation: polynomial",
            hint="leave polynomial out, or name that activation",
        )


def inputs_of(facts: Facts) -> int | None:
    """How many numbers a sample has, where that is known."""
    return facts.spec.inputs[0].size if facts.spec is not None and facts.spec.inputs else None


def check_polynomial(config: Polynomial, facts: Facts) -> Iterable[Problem]:
    yield from check_input(config, facts)
    low, high = config.domain
    if not low < high:
        yield Problem(f"it goes from {low:g} to {high:g}", "domain", expected="the lower end first")
    inputs = inputs_of(facts)
    if inputs is not None and comb(inputs + config.degree, config.degree) > MONOMIALS:
        count = comb(inputs + config.degree, config.degree)
        yield Problem(
            f"a polynomial of degree {config.degree} in {inputs} inputs has {count:,} monomials",
            "degree",
            expected=f"at most {MONOMIALS:,} monomials",
            hint="lower the degree, or choose data with fewer inputs",
        )


def check_threshold(config: Threshold, facts: Facts) -> Iterable[Problem]:
    yield from check_input(config, facts)
    if config.signs and len(config.signs) != len(config.thresholds):
        yield Problem(
            f"{len(config.signs)} rows for {len(config.thresholds)} thresholds",
            "signs",
            expected="a row for each threshold, or none",
        )
    lengths = {len(row) for row in config.signs}
    inputs = inputs_of(facts)
    if len(lengths) > 1 or (lengths and inputs is not None and lengths != {inputs}):
        of = "the same number of signs in every row" if inputs is None else f"{inputs} signs in every row"
        yield Problem(f"rows of {', '.join(map(str, sorted(lengths)))} signs", "signs", expected=of)
