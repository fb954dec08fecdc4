"""A data set of points that a text file holds, `x y class` in each line, in memory or read from disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pegboard import Batch, Classes, Context, Dataset, DataSpec, Splits, Vector, hookimpl


@dataclass(frozen=True)
class RowsOf:
    """Points of a file."""

    path: str = ""  # of the file
    stream: bool = False  # read them batch by batch


class Read:
    """Rows of a file, read when they are asked for."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, rows: list[int]) -> Batch:
        import torch

        lines = Path(self.path).read_text().splitlines()
        found = torch.tensor([[float(word) for word in lines[i].split()] for i in rows])
        return Batch((found[:, :2],), found[:, 2].long())


def build(config: RowsOf, context: Context) -> Splits:
    from pegboard import Resident, Stream

    read, size = Read(config.path), len(Path(config.path).read_text().splitlines())
    whole: Any = Stream(read, size)
    if not config.stream:
        batch = read(list(range(size)))
        whole = Resident(batch.inputs, batch.target)
    notes: Mapping[str, Any] = {"source": "a file"}
    return Splits(spec=DataSpec((Vector(2),), Classes(2)), train=whole, val=whole, notes=notes)


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("rows", RowsOf, build, spec=lambda config: DataSpec((Vector(2),), Classes(2)))]
