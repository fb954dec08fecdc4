"""The samples of data sets: their splits, their spec, and where they can be read."""

from __future__ import annotations

import copy
import functools
import io
import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from ...contract.specs import Classes, Tokens
from ..kit import Failed, Skipped, check
from ..subjects import Subject
from .building import _rows

if TYPE_CHECKING:
    from torch import Tensor

    from ...contract.results import Batch, Source, Splits
    from ...contract.specs import DataSpec, Spec

MOST_SHARED = 0.2  # of the samples of a split that may also be in another, as twins of real data are


@check("dataset")
def splits_are_sound(subject: Subject) -> None:
    """Its splits hold what its spec says, and the samples that a batch is asked for, in that order."""
    from ..runs import unequal

    splits: Splits = subject.splits()
    said = subject.part.spec(subject.built_config()) if subject.part.spec else None  # type: ignore[attr-defined]
    if said is not None and said.known and said != splits.spec:
        raise Failed(f"{subject.what}: its record says {said}, its splits hold {splits.spec}")
    if not splits.spec.known:
        raise Failed(f"{subject.what}: the spec of its splits has sizes that are not known: {splits.spec}")
    for name in ("train", "val", "test"):
        source = getattr(splits, name)
        if source is None:
            continue
        if len(source) < 1:
            raise Failed(f"{subject.what}: its split {name!r} has no samples")
        last = len(source) - 1
        some = _rows(source, [0, last, last // 2])
        turned = _rows(source, [last // 2, 0])
        for batch, asked in ((some, [0, last, last // 2]), (turned, [last // 2, 0])):
            if batch.rows is not None and batch.rows.tolist() != asked:
                raise Failed(
                    f"{subject.what}: `rows` of a batch of {name!r} is {batch.rows.tolist()}, asked for were "
                    f"{asked}: give back the numbers that `gather` got"
                )
        pieces = [_picked(some, [2, 0], splits.spec), _picked(turned, [0, 1], splits.spec)]
        if source.lengths is None and list(unequal(*pieces)):
            raise Failed(f"{subject.what}: a sample of {name!r} depends on which others it is asked for with")
        _like_spec(subject, name, some, splits)


def _picked(batch: Batch, rows: list[int], spec: DataSpec) -> list[Any]:
    """Some samples of a batch; where it is no stack of them, what their specs tell of each."""
    if all(s.counted for s in spec.inputs):
        return [None if t is None else t[rows] for t in (*batch.inputs, batch.target, batch.weight)]
    pieces = [found for s in spec.inputs if (found := s.pieces(batch.inputs, rows)) is not None]
    return [*pieces, *(None if t is None else t[rows] for t in (batch.target, batch.weight))]


def _like_spec(subject: Subject, name: str, batch: Batch, splits: Splits) -> None:
    entries = [*zip(splits.spec.inputs, batch.inputs, strict=True), (splits.spec.target, batch.target)]
    for spec, tensor in entries:
        if spec is None or tensor is None:
            if (spec is None) != (tensor is None):
                raise Failed(f"{subject.what}: the target of {name!r} does not fit its spec {splits.spec}")
            continue
        if isinstance(spec, Classes) and tensor.shape == (3, spec.count) and tensor.is_floating_point():
            continue  # a distribution over classes
        example = spec.example(3, "cpu")
        wide = tensor.dim() == example.dim() and (tensor.shape[0] == len(example) or not spec.counted)
        if not wide or tensor.dtype != example.dtype or not _fits_axes(spec, tensor, example):
            raise Failed(
                f"{subject.what}: {spec} of {name!r} is a tensor {tuple(tensor.shape)} of {tensor.dtype}, "
                f"expected one like {tuple(example.shape)} of {example.dtype}"
            )
        if wrong := _out_of_range(spec, tensor):
            raise Failed(f"{subject.what}: {spec} of {name!r} holds {wrong}")


def _fits_axes(spec: Spec, tensor: Tensor, example: Tensor) -> bool:
    """Whether a tensor has the sizes of an example; what may be shorter is no longer than it."""
    if not spec.counted:
        return tensor.dim() < 2 or tensor.shape[0] == 2 or tensor.shape[1:] == example.shape[1:]
    shorter = hasattr(spec, "padding") or getattr(spec, "padded", False) or hasattr(spec, "length")
    sizes = [*zip(tensor.shape[1:], example.shape[1:], strict=True)]
    return all(a == b or (shorter and not axis and a <= b) for axis, (a, b) in enumerate(sizes))


def _out_of_range(spec: Spec, tensor: Tensor) -> str:
    """Values that the spec does not allow, in words."""
    import torch

    if tensor.is_floating_point():
        if not getattr(spec, "padded", False) and not bool(torch.isfinite(tensor).all()):
            return "numbers that are not finite"
        return ""
    count = spec.count if isinstance(spec, Classes) else spec.vocab if isinstance(spec, Tokens) else None
    if count is None:
        return ""
    low, high = int(tensor.min()), int(tensor.max())
    if low < 0 and not (isinstance(spec, Tokens) and bool((tensor[tensor < 0] == -100).all())):
        return f"{low}, expected 0 to {count - 1}"
    return f"{high}, expected 0 to {count - 1}" if high >= count else ""


@check("dataset")
def splits_differ(subject: Subject) -> None:
    """No split is another one: what a model is measured on is not what it is trained on."""
    splits: Splits = subject.splits()
    sources = {name: getattr(splits, name) for name in ("train", "val", "test")}
    found = {name: _samples(s, splits.spec) for name, s in sources.items() if s is not None}
    for one, other in itertools.combinations(found, 2):
        first, second = found[one], found[other]
        shared = {*first} & {*second}
        # Of few possible samples, some come again in another split.
        twins = any(len(set(samples)) < len(samples) for samples in (first, second))
        least = min(len(first), len(second))
        alike = first == second and not (twins and one == "val")
        if not alike and (twins or len(shared) <= MOST_SHARED * least):
            continue
        many = f"{len(shared)} of its {len(second)} samples in common with"
        if {*first} == {*second}:
            many = "the same samples as"
        elif len(shared) == len(second):
            many = "samples that are all in"
        chooses = ", which chooses the model" if one == "val" else ""
        raise Failed(
            f"{subject.what}: its split {other!r} has {many} {one!r}{chooses}; cut the rows into splits that "
            f"share none, or leave {'it' if one == 'train' else repr(one)} out"
        )


def _samples(source: Source, spec: DataSpec, most: int = 4096) -> list[bytes]:
    """A digest of each of its first samples."""
    import hashlib

    count = min(len(source), most)
    joined = not all(entry.counted for entry in spec.inputs)
    found = []
    for start in range(0, count, 256):
        rows = range(start, min(start + 256, count))
        batch = _rows(source, rows)
        pieces = _picked(batch, [*range(len(rows))], spec)
        for row in range(len(rows)):
            digest = hashlib.blake2b(digest_size=16)
            for piece in pieces:
                if piece is not None:
                    digest.update(piece[row].contiguous().cpu().numpy().tobytes())
            for entry, x in zip(spec.inputs, batch.inputs, strict=True) if joined else ():
                if entry.counted:  # a number of its own, by which samples differ, however alike they are
                    digest.update(x[row].contiguous().cpu().numpy().tobytes())
            found.append(digest.digest())
    return found


@check("dataset")
def works_in_spawned_workers(subject: Subject) -> None:
    """Its samples can be read in another process that was spawned, and are the same there."""
    from ..runs import unequal

    source = subject.splits().train
    rows = list(range(min(len(source), 8)))
    try:
        ForkingPickler.dumps(source)
    except Exception as error:
        raise Failed(
            f"{subject.what}: its samples cannot be sent to a worker: {type(error).__name__}: {error}; "
            "functions inside functions and open files do not pickle"
        ) from error
    if subject.plugin.version == "local":
        raise Skipped("it can be sent to a worker, but a local file is no module that one could import")
    try:
        there = _elsewhere().submit(_read_there, source, rows).result()
    except Exception as error:
        raise Failed(f"{subject.what}: reading in a worker fails: {type(error).__name__}: {error}") from error
    if list(unequal(list(_rows(source, rows)), list(there))):
        raise Failed(f"{subject.what}: a worker reads other samples than the process itself")


@functools.cache
def _elsewhere() -> ProcessPoolExecutor:
    """One process for all data sets of a plugin, for it takes seconds to start."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def end_workers() -> None:
    """End the process that samples were read in."""
    if _elsewhere.cache_info().currsize:
        _elsewhere().shutdown()
        _elsewhere.cache_clear()


def _read_there(source: Source, rows: list[int]) -> tuple[Any, ...]:
    return tuple(_rows(source, rows))


@check("dataset")
def draws_its_samples(subject: Subject) -> None:
    """A picture of it can be drawn, by its record or by its spec, and leaves the samples as they are."""
    from ...contract.drawing import INSTALL, can_draw
    from ...inference.pictures import draw_by_spec, drawn
    from ..runs import unequal

    splits: Splits = subject.splits()
    plot = subject.part.plot  # type: ignore[attr-defined]
    if plot is None and not drawn(splits.spec):
        raise Skipped(
            f"its record has no function `plot`, and the core does not draw {splits.spec.inputs[0]}"
        )
    if not can_draw():
        raise Skipped(f"pictures are not drawn here: {INSTALL}")
    from matplotlib.figure import Figure

    rows, figure = range(min(len(splits.train), 64)), Figure()
    before = copy.deepcopy(_picked(_rows(splits.train, rows), [*rows], splits.spec))
    (plot or draw_by_spec)(splits, figure)
    if not any(axes.has_data() for axes in figure.axes):
        raise Failed(f"{subject.what}: its function `plot` draws nothing on the figure that it is given")
    figure.savefig(io.BytesIO(), dpi=30)
    if list(unequal(before, _picked(_rows(splits.train, rows), [*rows], splits.spec))):
        raise Failed(f"{subject.what}: its function `plot` changes the samples")
