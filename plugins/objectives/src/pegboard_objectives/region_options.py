"""Config and rules of the probe of errors by region. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Classes, Context, Facts, Ge, Probe, ProbePart, Problem, Values, Vector


@dataclass(frozen=True)
class ErrorByRegion:
    """Error by region: errors of samples in bins of an input, of the target or of the target's curvature."""

    by: Literal["input", "target", "curvature"] = "input"  # what bins are cut by
    column: Annotated[int, Ge(0)] = 0  # which number of the input, or of a target of several values
    bins: Annotated[int, Ge(2)] = 4  # with as many samples each, where there are no edges
    edges: tuple[float, ...] = ()  # bounds between the bins, in rising order
    split: Literal["val", "test"] = "test"  # held-out samples, beside those of training


def check_regions(config: ErrorByRegion, facts: Facts) -> Iterator[Problem]:
    """Edges that do not rise, and data without such a number."""
    if list(config.edges) != sorted(set(config.edges)):
        yield Problem("the bounds between bins do not rise", "edges", "as [0.0, 1.0]")
    if facts.spec is None:
        return
    inputs, target = facts.spec.inputs, facts.spec.target
    if not isinstance(target, (Classes, Values)):
        yield Problem(f"error_by_region reads classes or values, and the data gives {facts.spec}")
    elif len(inputs) != 1 or not isinstance(inputs[0], Vector):
        yield Problem(f"error_by_region reads one vector a sample, and the data gives {facts.spec}")
    else:
        curved = config.by == "curvature"
        if curved and (inputs[0].size not in (1, None) or not isinstance(target, Values)):
            yield Problem(f"there is no curvature of {facts.spec}", "by", "values of one number, or input")
        numbers = inputs[0].size if config.by == "input" else getattr(target, "features", 1)
        if numbers is not None and config.column >= numbers:
            yield Problem(f"there is no number {config.column}", "column", f"0 to {numbers - 1}")


def build(config: ErrorByRegion, context: Context) -> Probe:
    from .regions import RegionProbe

    return RegionProbe(config)


def region_part() -> ProbePart[ErrorByRegion]:
    """The record."""
    return ProbePart("error_by_region", ErrorByRegion, build, check=check_regions)
