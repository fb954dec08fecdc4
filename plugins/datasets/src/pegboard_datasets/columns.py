"""Rows of a table by their columns, each an input or a part of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from .encoders import Encoder, ImageEncoder, TextEncoder
from .reading import Columns
from .saved import Find, Form, Keep
from .series_encoder import SeriesEncoder
from .vectors import VectorEncoder

KINDS: Mapping[str, type[ImageEncoder | TextEncoder | VectorEncoder | SeriesEncoder]] = {
    "image": ImageEncoder,
    "text": TextEncoder,
    "vector": VectorEncoder,
    "series": SeriesEncoder,
}


class ColumnForm(Form):
    """Pictures, texts and vectors, an encoder for each."""

    name = "columns"

    def __init__(self, encoders: Sequence[Encoder], columns: Sequence[str]) -> None:
        self.encoders, self.columns = tuple(encoders), tuple(columns)
        self.texts = {n: e.vocabulary for n, e in enumerate(self.encoders) if isinstance(e, TextEncoder)}

    def encode(self, table: Columns) -> tuple[Tensor, ...]:
        return tuple(encoder.table(table) for encoder in self.encoders)

    @property
    def invert(self) -> Callable[[Tensor], Tensor] | None:
        first = self.encoders[0]
        return None if isinstance(first, TextEncoder) else getattr(first, "invert", None)

    def state(self, keep: Keep) -> dict[str, Any]:
        return {"columns": list(self.columns), "inputs": [e.state(keep) for e in self.encoders]}

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> ColumnForm:
        """One that `state` described."""
        return cls([KINDS[entry["kind"]].load(entry, find) for entry in state["inputs"]], state["columns"])
