"""Metrics of torchmetrics that a config names, as `torchmetrics.CohenKappa`. No torch."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pegboard import Classes, Labels, Matches, Problem, Spec, Tokens

PREFIX = "torchmetrics."
Named = Annotated[
    str, Matches(r"torchmetrics\.[A-Z]\w*", "a metric of torchmetrics, as torchmetrics.CohenKappa")
]


def home_of(target: Spec | None) -> tuple[str, str]:
    """The module of torchmetrics that measures a target, and how the names of its classes begin."""
    if isinstance(target, Labels):
        return "classification", "Multilabel"
    return ("classification", "Multiclass") if isinstance(target, Classes | Tokens) else ("regression", "")


@functools.cache
def available(module: str, begin: str) -> tuple[str, ...] | None:
    """The metrics in a module, read from its list of names; None where torchmetrics is not installed.

    To import it takes longer than a small run.
    """
    spec = importlib.util.find_spec("torchmetrics")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / module / "__init__.py").read_text("utf-8")
    listed = text.partition("__all__")[2]
    return tuple(sorted(set(re.findall(rf'"{begin}([A-Z]\w*)"', listed))))


def check_named(names: tuple[str, ...], target: Spec | None) -> Iterator[Problem]:
    """Metrics of torchmetrics that there are not, or not for the target."""
    module, begin = home_of(target)
    for name in (n for n in names if n.startswith(PREFIX)):
        known = available(module, begin)
        if known is None:
            hint = "pip install torchmetrics"
            yield Problem(f"{name} is of torchmetrics, which is not installed", "metrics", hint=hint)
        elif name.removeprefix(PREFIX) not in known:
            listed = ", ".join(PREFIX + n for n in known)
            yield Problem(
                f"torchmetrics.{module} has no metric {name!r} for {target}", "metrics", f"one of {listed}"
            )
