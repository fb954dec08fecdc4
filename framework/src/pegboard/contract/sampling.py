"""How a trained model is sampled: what `pegboard sample` asks for, and who answers. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """What `pegboard sample` was asked for; what is None or empty was not given."""

    prompts: Sequence[str] = ()
    count: int | None = None  # samples, or of each prompt so many
    kind: str | None = None  # of models that generate samples: what is made by their codes
    split: str = "test"  # of the data, where samples of it are needed
    seed: int = 0  # of all that is drawn
    output: str | None = None  # the file to write to
    decoding: Mapping[str, Any] = field(default_factory=dict)  # fields of `Decoding` that were given


@dataclass(frozen=True)
class SampleMethod:
    """Samples models whose module has a method `name`; `pegboard sample` prints the lines that it yields.

    `sample(trained, request)` gets a `pegboard.inference.trained.Trained`: its `model` in eval mode on its
    `device`, its `plan`, and its `codec`, which knows how the data set reads and writes samples.
    """

    kind: ClassVar[str] = "sample_method"

    name: str
    sample: Callable[[Any, SampleRequest], Iterable[str]]
