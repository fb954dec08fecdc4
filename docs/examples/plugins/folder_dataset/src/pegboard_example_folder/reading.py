"""Pictures to tensors: all of them once, or a batch at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pegboard import Batch, DataSpec, PegboardError, Resident, Source, Splits, Stream
from PIL import Image
from torch import Tensor

from . import PictureFolder
from .listing import find_classes, pictures, split_of

HELD = 2**30  # bytes of samples that are held in memory where nothing else is said
SHOWN = 5  # unreadable files that an error names


def read_pictures(files: Sequence[str], size: tuple[int, int], channels: int) -> Tensor:
    """The pictures in some files: (files, channels, height, width), from -1 to 1."""
    height, width = size
    pixels, wrong = bytearray(), []
    for file in files:
        try:
            with Image.open(file) as picture:
                plain = picture.convert("L" if channels == 1 else "RGB")
            pixels += plain.resize((width, height), Image.Resampling.BILINEAR).tobytes()
        except Exception as error:  # noqa: BLE001  a damaged file makes a decoder raise anything
            why = error.strerror if isinstance(error, OSError) else None
            wrong.append(f"  {file}: {why or error or type(error).__name__}")
    if wrong:
        more = [f"  and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        raise PegboardError("\n".join(("these are no pictures that can be read:", *wrong[:SHOWN], *more)))
    x = torch.frombuffer(pixels, dtype=torch.uint8).view(len(files), height, width, channels)
    return (x.permute(0, 3, 1, 2).float() / 127.5 - 1).contiguous()


@dataclass(frozen=True)
class Reader:
    """Reads the pictures with these numbers. A class, so that it can be sent to another process."""

    pictures: list[tuple[str, int]]  # the path of each, and the number of its class
    size: tuple[int, int]
    channels: int

    def __call__(self, rows: list[int]) -> Batch:
        files, classes = zip(*(self.pictures[row] for row in rows), strict=True)
        return Batch((read_pictures(files, self.size, self.channels),), torch.tensor(classes))

    def targets(self) -> torch.Tensor:
        """The classes of all pictures, by which a run tells those that training never shows."""
        return torch.tensor([number for _, number in self.pictures])

    def source(self, held: bool) -> Source:
        """All of them in memory, or a stream of batches: the same numbers either way."""
        if not held:
            return Stream(self, len(self.pictures))
        batch = self(list(range(len(self.pictures))))
        return Resident(batch.inputs, batch.target)


def read_splits(config: PictureFolder, spec: DataSpec) -> Splits:
    """The pictures of a folder, each in the split that its name says."""
    root = os.path.expanduser(config.folder)
    found: dict[str, list[tuple[str, int]]] = {"train": [], "val": [], "test": []}
    for number, name in enumerate(find_classes(root)):
        for file in pictures(root, name):
            place = found[split_of(f"{name}/{file}", config.val, config.test)]
            place.append((os.path.join(root, name, file), number))
    readers = {split: Reader(rows, config.size, config.channels) for split, rows in found.items() if rows}
    if "train" not in readers:
        sizes = ", ".join(f"{len(rows)} {split}" for split, rows in found.items())
        raise PegboardError(
            f"no picture of {config.folder!r} falls to training: {sizes}\n"
            "  fix: smaller shares for val and test, or more pictures"
        )
    count = sum(map(len, found.values()))
    size = 4 * count * config.channels * config.size[0] * config.size[1]
    held = size <= HELD if config.memory == "auto" else config.memory == "always"

    def encode(table: Mapping[str, Sequence[Any]]) -> tuple[Tensor, ...]:
        return (read_pictures([str(file) for file in table["file"]], config.size, config.channels),)

    sources = {split: reader.source(held) for split, reader in readers.items()}
    return Splits(
        spec=spec,
        train=sources["train"],
        val=sources.get("val"),
        test=sources.get("test"),
        encode=encode,
        columns=("file",),
        notes={
            "source": config.folder,
            "sizes": {split: len(reader.pictures) for split, reader in readers.items()},
            "memory": "held in memory" if held else "read batch by batch",
            "fingerprint": fingerprint(root, readers),
        },
    )


def fingerprint(root: str, readers: Mapping[str, Reader]) -> str:
    """The sha256 of the names and lengths of all files: it tells one folder from another unread."""
    digest = hashlib.sha256()
    for split, reader in readers.items():
        for file, _ in reader.pictures:
            digest.update(f"{split} {os.path.relpath(file, root)} {os.path.getsize(file)}\n".encode())
    return f"names-{digest.hexdigest()}"
