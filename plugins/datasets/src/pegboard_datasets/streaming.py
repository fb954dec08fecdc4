"""Samples that are read when they are needed, from Arrow files mapped into memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pegboard import Batch, DataSpec, Splits, Stream
from torch import Tensor

from .assembly import join_splits
from .encoders import Encoder
from .hub_options import Input, Memory
from .images import read_pixels
from .mistakes import mistake
from .reading import Columns
from .rows import Rows
from .targets import TargetEncoder

ALWAYS_HELD = 2**30  # bytes that are held in memory on any machine
FREE_SHARE = 4  # of the memory that is free, one part in so many may be taken
LOOKED_AT = 1000  # texts whose length is looked at for an estimate
SAMPLED = 1000  # samples of each split that the fingerprint is made of


class Reader:
    """Reads batches of rows: the same tensors as when all of them are encoded at once."""

    def __init__(self, rows: Rows, encoders: Sequence[Encoder], target: TargetEncoder) -> None:
        self.rows, self.encoders, self.target = rows, tuple(encoders), target
        self._files = {path: os.stat(path).st_size for path in rows.files}

    def __call__(self, rows: list[int]) -> Batch:
        self._check_files()
        taken = self.rows.take(torch.tensor(rows, dtype=torch.int64))
        return Batch(tuple([e.rows(taken) for e in self.encoders]), self.target.rows(taken))

    def _check_files(self) -> None:
        """A mapped file that was cut short would end the process without a word."""
        for path, size in self._files.items():
            try:
                found = os.stat(path).st_size
            except FileNotFoundError:
                continue  # what is mapped stays readable without its name
            if found < size:
                raise mistake(
                    f"{path} was cut short: {found} bytes",
                    f"{size}, as when it was opened",
                    "remove it, and it is made again from its source",
                )


def decoded_size(train: Rows, kinds: Mapping[str, str], columns: Mapping[str, Input], folder: Path) -> int:
    """About how many bytes a sample takes as tensors."""
    first, total = train.take(torch.arange(1)), 8
    for name, kind in kinds.items():
        options = columns[name]
        if kind == "image":
            values = first.values(name)
            pixels = read_pixels(values, name, options.channels, options.size, folder, where=first.where)
            total += 4 * pixels.numel()
        elif kind == "text":
            looked = train.take(torch.arange(min(len(train), LOOKED_AT))).values(name)
            total += 8 * (options.length or max(map(len, map(str, looked))))
        elif kind == "category":
            total += 4 * len(train.class_names(name) or ("one",))
        else:
            total += 4 * first.numbers(name).shape[1]
    return total


def fits(memory: Memory, size: int) -> bool:
    """Whether samples of so many bytes are to be held in memory."""
    if memory == "auto":
        return size <= max(ALWAYS_HELD, free_memory() // FREE_SHARE)
    return memory == "always"


def free_memory() -> int:
    """Bytes that programs can still have, 0 where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    free = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(free[0]) if free else 0


def shown_bytes(size: float) -> str:
    """A size for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def stream_splits(
    spec: DataSpec,
    readers: Mapping[str, Reader],
    *,
    encode: Callable[[Columns], tuple[Tensor, ...]],
    columns: Sequence[str],
    notes: Mapping[str, Any],
) -> Splits:
    """Splits whose batches are read when they are needed."""
    train = readers["train"]
    return join_splits(
        spec,
        {name: Stream(reader, len(reader.rows)) for name, reader in readers.items()},
        target=lambda: train.target.rows(train.rows),
        encode=encode,
        columns=columns,
        notes={**notes, "fingerprint": sample_fingerprint(readers)},
    )


def sample_fingerprint(readers: Mapping[str, Reader]) -> str:
    """The sha256 of the sizes of all splits and the tensors of their first samples, marked as such."""
    digest = hashlib.sha256()
    for name, reader in readers.items():
        size = len(reader.rows)
        batch = reader(list(range(min(size, SAMPLED))))
        assert batch.target is not None
        for tensor in (*batch.inputs, batch.target):
            digest.update(f"{name} {size} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().numpy().data)
    return f"sample-{digest.hexdigest()}"
