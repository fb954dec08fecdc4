"""What a model answers, in the words of people: names of classes, texts, no steps after a sample's end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ..contract.specs import DataSpec, Masked, Series, Span, Spec, Tokens, Values

Decode = Callable[[Tensor], list[str]]
Read = Callable[[int, Tensor], list[str]]  # the number of an input, and symbols of it


def readable(value: Tensor, names: Sequence[str] = ()) -> Any:
    """One cell: a number, the name of a class, or a list."""
    plain = value.tolist()
    if isinstance(plain, list):
        return plain[0] if len(plain) == 1 else plain
    return names[plain] if names and isinstance(plain, int) and 0 <= plain < len(names) else plain


def worded(
    columns: Mapping[str, Tensor],
    inputs: Sequence[Tensor],
    spec: DataSpec,
    decode: Decode | None = None,
    read: Read | None = None,
    asked: Tensor | None = None,
) -> dict[str, list[Any]]:
    """Columns of numbers, (batch, ...) each, as lists with a cell for each sample.

    Numbers under `class` and `target` are classes or symbols, of which `decode` makes a text; `read` does so
    with symbols of an input. Steps that are not `asked` (batch, length) are left out.
    """
    names = getattr(spec.target, "names", ())
    ends, width = _ends(inputs, spec)
    found = {}
    if read is not None and isinstance(spec.target, Span) and {"start", "end"} <= columns.keys():
        places = zip(columns["start"].tolist(), columns["end"].tolist(), strict=True)
        rows = zip(inputs[0], places, strict=True)
        found["answer"] = [read(0, row[None, first : last + 1])[0].strip() for row, (first, last) in rows]
    for key, column in columns.items():
        cells = list(column.cpu())
        if ends is not None and column.dim() > 1 and column.shape[1] == width:
            cells = [row[:end] for row, end in zip(cells, ends, strict=True)]
        if asked is not None and column.shape[:2] == asked.shape:
            cells = [row[of[: len(row)]] for row, of in zip(cells, asked.cpu(), strict=True)]
        if key == "target" and isinstance(spec.target, Values):
            cells = list(spec.target.invert(column.cpu()))
        if read is not None and isinstance(spec.target, Masked) and key == "symbols":
            found[key] = [read(0, cell.unsqueeze(0))[0] for cell in cells]
        elif key not in ("class", "target"):
            found[key] = [readable(cell) for cell in cells]
        elif decode is not None and isinstance(spec.target, Tokens) and column.dim() == 2:
            found[key] = [decode(cell[cell >= 0].unsqueeze(0))[0] for cell in cells]
        else:
            found[key] = [readable(cell, names) for cell in cells]
    return found


def _ends(inputs: Sequence[Tensor], spec: DataSpec) -> tuple[list[int] | None, int]:
    """After how many steps each sample ends that is answered step by step, and how many a batch has."""
    if isinstance(spec.target, Tokens | Series | Masked):
        for of, x in reversed(list(zip(spec.inputs, inputs, strict=False))):  # of two, the second is answered
            if (found := _lengths(of, x)) is not None:
                return found.clamp(min=1).tolist(), x.shape[1]
    return None, 0


def _lengths(spec: Spec, x: Tensor) -> Tensor | None:
    """How many steps each sample of an input has, (batch,); None where all have the same."""
    if isinstance(spec, Tokens) and spec.padding >= 0:
        return (x != spec.padding).sum(1)
    if isinstance(spec, Series) and spec.padded:
        return (~x.isnan().all(-1)).sum(1)
    return None
