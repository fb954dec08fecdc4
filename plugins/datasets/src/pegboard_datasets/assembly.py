"""Tensors of a whole data set -> splits with a spec, notes and a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from pegboard import Classes, DataSpec, Points, Ragged, Resident, Sequences, Source, Splits
from torch import Tensor

from . import scaling
from .mistakes import mistake
from .options import ClassCut, Cut, Shares, ValueCut
from .reading import Columns, number_table
from .splitting import Parts, cut, sample_order


class Samples(NamedTuple):
    """The tensors of one split."""

    inputs: tuple[Tensor | Sequences, ...]
    target: Tensor | Sequences | None

    def source(self) -> Resident | Ragged:
        """What holds them."""
        plain = [x for x in self.inputs if isinstance(x, Tensor)]
        if len(plain) == len(self.inputs) and not isinstance(self.target, Sequences):
            return Resident(plain, self.target)
        return Ragged(self.inputs, self.target)


class Origin(NamedTuple):
    """Where a data set comes from."""

    source: str
    licence: str


def vector_splits(
    x: Tensor,
    y: Tensor,
    spec: DataSpec,
    config: Cut,
    origin: Origin,
    columns: Sequence[str],
    read: Callable[[Columns], Tensor] | None = None,
    extra: Mapping[str, Any] | None = None,
    fold: tuple[int, int] | None = None,
) -> Splits:
    """Cut one table of samples and scale it; `read` turns a person's table into tensors like x."""
    parts = cut_samples(y, spec, config, fold)
    axes = (0, 1) if isinstance(spec.inputs[0], Points) else (0, *range(2, x.dim()))
    scaler = scaling.fit(x[parts.train], config.normalize, axes)
    teach = None
    if isinstance(config, ValueCut):
        teach = scaling.fit(y[parts.train], "standard" if config.normalize_target else "none")

    def samples(index: Tensor | None) -> Samples | None:
        if index is None:
            return None
        return Samples((scaler(x[index]),), teach(y[index]) if teach else y[index])

    def encode(table: Columns) -> tuple[Tensor, ...]:
        return (scaler(read(table) if read else number_table(table, columns)),)

    train = samples(parts.train)
    assert train is not None
    statistics = {spec.names[0]: scaler.notes()} | ({"target": teach.notes()} if teach else {})
    return make_splits(
        spec,
        {"train": train, "val": samples(parts.val), "test": samples(parts.test)},
        encode=encode,
        invert=scaler.inverse,
        columns=columns,
        notes={**origin._asdict(), "statistics": statistics, **(extra or {})},
    )


def cut_samples(y: Tensor, spec: DataSpec, config: Shares, fold: tuple[int, int] | None = None) -> Parts:
    """Who is in which split, as the config says, or in this fold."""
    stratified = isinstance(spec.target, Classes) and isinstance(config, ClassCut) and config.stratify
    order = sample_order(len(y), config.split_seed, y if stratified else None)
    parts = cut(order, config.val, config.test, config.limit, fold)
    if not len(parts.train):
        raise mistake(
            f"{len(y)} samples leave none to train on with val {config.val:g} and test {config.test:g}",
            "at least one training sample",
            "take more samples, or smaller shares",
        )
    return parts


def make_splits(
    spec: DataSpec,
    samples: Mapping[str, Samples | None],
    *,
    columns: Sequence[str],
    notes: Mapping[str, Any],
    **read: Any,
) -> Splits:
    """Splits in memory, with their sizes, classes and fingerprint in the notes; `read`: more of `Splits`."""
    there = {name: s for name, s in samples.items() if s is not None}
    sources = {name: s.source() for name, s in there.items()}
    return join_splits(
        spec,
        sources,
        target=lambda: cast(Tensor, there["train"].target),  # asked for where it has classes alone
        columns=columns,
        notes={**notes, "fingerprint": fingerprint(sources)},
        **read,
    )


def join_splits(
    spec: DataSpec,
    sources: Mapping[str, Source],
    *,
    target: Callable[[], Tensor],
    columns: Sequence[str],
    notes: Mapping[str, Any],
    **read: Any,
) -> Splits:
    """Splits of these sources, with their sizes in the notes, and the classes of the training target."""
    sizes = {name: len(source) for name, source in sources.items()}
    return Splits(
        spec=spec,
        train=sources["train"],
        val=sources.get("val"),
        test=sources.get("test"),
        columns=tuple(columns),
        notes={**notes, "sizes": sizes, **class_counts(spec, target)},
        **read,
    )


def class_counts(spec: DataSpec, target: Callable[[], Tensor]) -> dict[str, dict[str, int]]:
    """How often each class stands in a target; nothing where there are none."""
    if not isinstance(spec.target, Classes) or spec.target.count is None:
        return {}
    counts = torch.bincount(target(), minlength=spec.target.count).tolist()
    names = spec.target.names or [str(k) for k in range(spec.target.count)]
    return {"train_classes": dict(zip(names, counts, strict=True))}


def fingerprint(sources: Mapping[str, Resident | Ragged]) -> str:
    """The sha256 of the tensors of all splits, with their names, types and shapes."""
    digest = hashlib.sha256()
    for name, source in sources.items():
        for tensor in (t for t in source.tensors if t is not None):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
