"""A plugin with a data set that is read from a file of its own, for tests of streamed data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pegboard import Batch, Classes, Context, Dataset, DataSpec, Splits, Vector, hookimpl

WIDTH = 3  # numbers of a row: two inputs and the class


@dataclass(frozen=True)
class Filed:
    """Points in the plane, in a file of float32 numbers."""

    path: str  # of the file
    held: bool = False  # whether all are held in memory


class ReadFile:
    """Reads rows of the file, one batch at a time."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, rows: list[int]) -> Batch:
        import torch

        with Path(self.path).open("rb") as file:
            found = bytearray()
            for row in rows:
                file.seek(4 * WIDTH * row)
                found += file.read(4 * WIDTH)
        if len(found) != 4 * WIDTH * len(rows):
            raise EOFError(f"{self.path} ends too early")
        table = torch.frombuffer(found, dtype=torch.float32).view(-1, WIDTH)
        return Batch((table[:, :2].clone(),), table[:, 2].long())


def build(config: Filed, context: Context) -> Splits:
    from pegboard import Resident, Stream

    read = ReadFile(config.path)
    size = Path(config.path).stat().st_size // (4 * WIDTH)
    whole = read(list(range(size)))
    held = Resident(whole.inputs, whole.target)
    train, val = (held, held) if config.held else (Stream(read, size), Stream(read, size))
    return Splits(
        spec=DataSpec((Vector(2),), Classes(2, ("left", "right"))),
        train=train,
        val=val,
        notes={"source": "file"},
    )


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("filed", Filed, build)]
