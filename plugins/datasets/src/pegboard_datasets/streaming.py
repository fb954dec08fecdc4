"""Samples that are read when they are needed, from Arrow files mapped into memory."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from pegboard import Batch, DataSpec, Splits, Stream
from torch import Tensor

from .assembly import join_splits
from .encoders import Encoder, TextEncoder
from .hub_options import Input, Memory
from .images import read_pixels
from .mapped import trim
from .mistakes import mistake
from .rows import Rows
from .series_reading import series_size
from .targets import TargetEncoder

ALWAYS_HELD = 2**30  # bytes that are held in memory on any machine
FREE_SHARE = 4  # of the memory that is free, one part in so many may be taken
LOOKED_AT = 1000  # texts whose length is looked at for an estimate
SAMPLED = 1000  # samples of each split that the fingerprint is made of


class Reader:
    """Reads batches of rows: the same tensors as when all of them are encoded at once."""

    def __init__(
        self, rows: Rows, encoders: Sequence[Encoder], target: TargetEncoder | None, columns: Iterable[str]
    ) -> None:
        self.rows, self.encoders, self.target = rows, tuple(encoders), target
        self._columns = tuple(dict.fromkeys(columns))
        self._files = {path: os.stat(path).st_size for path in rows.files}

    def __call__(self, rows: list[int]) -> Batch:
        self._check_files()
        taken = self.rows.take(torch.tensor(rows, dtype=torch.int64)).read(self._columns)
        inputs = tuple([e.batch(taken) for e in self.encoders])
        return Batch(inputs, None if self.target is None else self.target.rows(taken))

    def targets(self) -> Tensor | None:
        """The target of all rows: its column alone is read."""
        return None if self.target is None else self.target.rows(self.rows)

    def lengths(self) -> Tensor | None:
        """How many symbols the text of each row has, or each of several, (rows, texts): all are read."""
        found = [e.lengths(self.rows) for e in self.encoders if isinstance(e, TextEncoder)]
        if len(found) < 2:
            return found[0] if found else None
        return torch.stack(found, 1)

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
            mean = math.ceil(sum(map(len, map(str, looked))) / len(looked))  # characters, more than symbols
            total += 8 * min(mean, options.length or mean)
        elif kind == "series":
            total += 4 * series_size(train, name, options)
        elif kind == "category":
            total += 4 * len(train.class_names(name) or ("one",))
        else:
            total += 4 * first.numbers(name).shape[1]
    return total


def fits(memory: Memory, size: int) -> bool:
    """Whether samples of so many bytes are to be held in memory."""
    return size <= most_held() if memory == "auto" else memory == "always"


def most_held() -> int:
    """Bytes up to which samples are held."""
    return max(ALWAYS_HELD, free_memory() // FREE_SHARE)


def memory_note(memory: Memory, size: int) -> str:
    """Where samples of so many bytes are, for people."""
    if fits(memory, size):
        return f"held in memory, about {shown_bytes(size)}"
    why = f", more than the {shown_bytes(most_held())} that are held" if memory == "auto" else ""
    return f"read batch by batch, about {shown_bytes(size)} in all{why}"


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that programs can still have, 0 where the system does not say; a container may have less."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    free = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    group = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError, KeyError):  # "max" where there is no limit
        most, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free.append(max(most - used + int(counts["inactive_file"]), 0))  # files are read again if need be
    return min(free, default=0)


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
    notes: Mapping[str, Any],
    **read: Any,
) -> Splits:
    """Splits whose batches are read when they are needed; `read`: more of `Splits`."""
    train = readers["train"]
    splits = join_splits(
        spec,
        {name: Stream(r, len(r.rows), lengths=r.lengths()) for name, r in readers.items()},
        target=lambda: train.target.rows(train.rows) if train.target else torch.empty(0),
        notes={**notes, "fingerprint": sample_fingerprint(readers)},
        **read,
    )
    trim()  # cutting splits took several numbers for each row
    return splits


def sample_fingerprint(readers: Mapping[str, Reader]) -> str:
    """The sha256 of the sizes of all splits and of samples that are evenly spaced in them, marked as such."""
    digest = hashlib.sha256()
    for name, reader in readers.items():
        size = len(reader.rows)
        count = min(size, SAMPLED)
        batch = reader([i * (size - 1) // max(count - 1, 1) for i in range(count)])
        for tensor in (*batch.inputs, *([] if batch.target is None else [batch.target])):
            digest.update(f"{name} {size} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().numpy().data)
    return f"spaced-{digest.hexdigest()}"
