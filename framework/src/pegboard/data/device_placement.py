"""Where the samples of a run are held, and what is done where they do not fit."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..contract.results import Batch, Source, Splits
from .padding import widths_of
from .stream import Stream

SHARE = 2  # of the memory that a device has free, one part in so many may hold samples


@dataclass(frozen=True)
class Held:
    """Reads batches of samples that are in the memory of the machine."""

    source: Source

    def __call__(self, rows: list[int]) -> Batch:
        return self.source.gather(torch.tensor(rows, dtype=torch.int64))


def free_on(device: str) -> int | None:
    """Bytes that are free on a device with a memory of its own, None on others."""
    here = device.startswith("cuda") and torch.cuda.is_available()  # a plan may name what is elsewhere
    return torch.cuda.mem_get_info(device)[0] if here else None


def fits_on(size: int, free: int | None) -> bool:
    """Whether samples of so many bytes leave enough for the rest of a run."""
    return free is None or size <= free // SHARE


def place(splits: Splits, device: str) -> str:
    """Bring all splits to a device; returns what `say_where` says.

    Samples that a device has no room for stay in the memory of the machine, from which batches are copied.
    """
    said, fits = say_where(splits, device), fits_on(_held(splits), free_on(device))
    for name, source in _sources(splits).items():
        stays = source.nbytes is not None and not fits
        setattr(splits, name, _copied(source, device) if stays else source.to(device))
    return said


def say_where(splits: Splits, device: str) -> str:
    """One line on samples that are not held on the device, "" where all are."""
    size, free = _held(splits), free_on(device)
    if free is not None and not fits_on(size, free):
        return (
            f"{shown_bytes(size)} of samples stay in the memory of the machine, and batches are copied: "
            f"{device} has {shown_bytes(free)} free, of which 1/{SHARE} may hold samples"
        )
    if isinstance(splits.train, Stream):
        return str(splits.notes.get("memory", "read batch by batch"))
    return ""


def shown_bytes(size: float) -> str:
    """A size for people."""
    for unit in ("B", "KiB", "MiB"):
        if size < 999.5:  # as far as three digits go
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"


def _copied(source: Source, device: str) -> Stream:
    """The samples of a source in memory, as batches that are copied to a device."""
    held = Held(source)
    return Stream(held, len(source), device=device, lengths=widths_of(source), varied=source.varied)


def _held(splits: Splits) -> int:
    """Bytes of all samples that are held as tensors."""
    return sum(s.nbytes or 0 for s in _sources(splits).values())


def _sources(splits: Splits) -> dict[str, Source]:
    found = {name: getattr(splits, name) for name in ("train", "val", "test")}
    return {name: source for name, source in found.items() if source is not None}
