"""Labels that are hidden, and the space that samples are functions on. No torch at import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from pegboard import (
    Classes,
    Context,
    Dataset,
    DataSpec,
    Image,
    Points,
    Series,
    Spec,
    Splits,
    Tokens,
    Vector,
    Voxels,
)

from .mistakes import mistake
from .options import ClassCut

HIDDEN = -100  # the class of a sample whose label is not shown


def finished(part: Dataset[Any]) -> Dataset[Any]:
    """The same data set, which hides labels as its config says and notes the space of its inputs."""
    build, spec = part.build, part.spec

    @wraps(build)
    def finish(config: Any, context: Context) -> Splits:
        splits = build(config, context)
        splits = replace(splits, notes={**splits.notes, "underlying_space": spaces(splits.spec)})
        hidden = isinstance(config, ClassCut) and config.labelled < 1
        return hide(splits, config.labelled, config.split_seed) if hidden else splits

    return replace(part, build=finish, spec=spec and _stated(spec))


def _stated(spec: Callable[[Any], DataSpec | None]) -> Callable[[Any], DataSpec | None]:
    @wraps(spec)
    def stated(config: Any) -> DataSpec | None:
        said = spec(config)
        hidden = isinstance(config, ClassCut) and config.labelled == 0
        # Of another target there are no labels to hide, which is a mistake of its own.
        return replace(said, target=None) if said and hidden and isinstance(said.target, Classes) else said

    return stated


def spaces(spec: DataSpec) -> dict[str, dict[str, Any]]:
    """For each input S, the shape of S and d, where a sample is a function from S to R^d.

    Features and points are a set, pictures a grid in the plane, solids one in space, series and texts a line,
    nodes a graph.
    """
    names = spec.names or tuple(f"input {i}" for i in range(len(spec.inputs)))
    return {name: _space(one) for name, one in zip(names, spec.inputs, strict=True)}


def _space(spec: Spec) -> dict[str, Any]:
    match spec:
        case Image():
            return {"space": "grid2d", "shape": [spec.height, spec.width], "d": spec.channels}
        case Voxels():
            return {"space": "grid3d", "shape": [spec.depth, spec.height, spec.width], "d": spec.channels}
        case Series():
            return {"space": "line", "shape": [spec.length], "d": spec.features}
        case Tokens():
            return {"space": "line", "shape": [spec.length], "d": 1}
        case Vector():
            return {"space": "set", "shape": [spec.features], "d": 1}
        case Points():
            return {"space": "set", "shape": [spec.count], "d": spec.features}
        case _:  # one of a plugin may say it itself, as nodes do
            return getattr(spec, "space", None) or {"space": type(spec).__name__.lower()}


def hide(splits: Splits, share: float, split_seed: int) -> Splits:
    """Show this share of the training labels, at least one of each class; with 0 there is no target at all.

    A sample whose label is hidden keeps its input, and has weight 0 and the class -100, which losses leave
    out. Who keeps its label is decided by `split_seed` and the classes; what one share shows, any larger one
    shows too.
    """
    import torch
    from pegboard import Ragged, Resident

    from .assembly import class_counts, fingerprint
    from .splitting import sample_order

    sources = {"train": splits.train, "val": splits.val, "test": splits.test}
    there = {name: source for name, source in sources.items() if source is not None}
    held = {name: s for name, s in there.items() if isinstance(s, Resident | Ragged)}
    target = held["train"].target if "train" in held else None
    if not isinstance(splits.spec.target, Classes) or not isinstance(target, torch.Tensor):
        raise mistake(
            f"labelled is {share:g}, but the target is {splits.spec.target or 'nothing'} and the samples are "
            f"a {type(splits.train).__name__}",
            "classes of samples that are held in memory",
            "labelled: 1, or for rows from files memory: always",
        )
    if share == 0:
        for source in held.values():
            source.target = None
        spec, shown = replace(splits.spec, target=None), torch.zeros(len(target), dtype=torch.bool)
    else:
        order = sample_order(len(target), split_seed, target)
        shown = torch.zeros(len(target), dtype=torch.bool)
        shown[order[: round(share * len(target))]] = True
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        first = torch.full((int(target.max()) + 1,), len(order)).scatter_reduce(0, target, place, "amin")
        shown[order[first[torch.unique(target)]]] = True
        held["train"].target, held["train"].weight = target.where(shown, HIDDEN), shown.float()
        spec = splits.spec
    notes = {k: v for k, v in splits.notes.items() if k != "train_classes"}
    notes |= {
        "labelled": int(shown.sum()),
        "fingerprint": fingerprint(held),
        **class_counts(spec, lambda: target[shown]),
    }
    return replace(splits, spec=spec, notes=notes)
