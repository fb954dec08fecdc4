"""What a model answers, in the words of people: names of classes, texts, no steps after a sample's end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ..contract.specs import DataSpec, Spec

Decode = Callable[[Tensor], list[str]]
Read = Callable[[int, Tensor], list[str]]  # the number of an input, and symbols of it


def worded(
    columns: Mapping[str, Tensor],
    inputs: Sequence[Tensor],
    spec: DataSpec,
    decode: Decode | None = None,
    read: Read | None = None,
    asked: Tensor | None = None,
) -> dict[str, list[Any]]:
    """Columns of numbers, (batch, ...) each, as lists of cells for samples, as the target describes them.

    Numbers under `class` and `target` are classes or symbols, of which `decode` makes a text; `read` does so
    with symbols of an input. Steps that are not `asked` (batch, length) are left out.
    """
    ends, width = _ends(inputs, spec)
    cut = {}
    for key, column in columns.items():
        cells = list(column.cpu())
        if ends is not None and column.dim() > 1 and column.shape[1] == width:
            cells = [row[:end] for row, end in zip(cells, ends, strict=True)]
        if asked is not None and column.shape[:2] == asked.shape:
            cells = [row[of[: len(row)]] for row, of in zip(cells, asked.cpu(), strict=True)]
        cut[key] = cells
    target = spec.target or Spec()
    return target.describe(cut, inputs=inputs, decode=decode, decode_input=read)


def _ends(inputs: Sequence[Tensor], spec: DataSpec) -> tuple[list[int] | None, int]:
    """After how many steps each sample ends that is answered step by step, and how many a batch has."""
    if spec.target is not None and spec.target.stepwise:
        for of, x in reversed(list(zip(spec.inputs, inputs, strict=False))):  # of two, the second is answered
            if (found := of.lengths_of(x)) is not None:
                return found.clamp(min=1).tolist(), x.shape[1]
    return None, 0
