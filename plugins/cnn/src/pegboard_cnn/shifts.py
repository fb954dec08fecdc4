"""How far a model is from moving with its input, or from not minding where things are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import torch
from pegboard import Classes, Context, PegboardError, Probe, Series, Spec, Splits, Views
from torch import Tensor, nn

from .symmetry import Equivariance

CHUNK = 32  # samples that are in memory at a time
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def moved(x: Tensor, by: int, axis: int, *, around: bool = True) -> Tensor:
    """x with everything `by` places further along an axis; at the border comes in what left, or zeros."""
    found = x.roll(by, axis)
    if around or not by:
        return found
    size = x.shape[axis]
    new = slice(0, min(by, size)) if by > 0 else slice(max(size + by, 0), size)
    found.movedim(axis, 0)[new] = 0
    return found


def equivariance_gap(
    f: Callable[[Any], Any],
    x: Any,
    act: Callable[[Any], Any],
    answer: Callable[[Any], Any] | None = None,
) -> Any:
    """|f(act(x)) - answer(f(x))|, number by number; without `answer` how far f is from being invariant."""
    there = f(x)
    return (f(act(x)) - (there if answer is None else answer(there))).abs()


def axes_of(spec: Spec) -> tuple[int, ...]:
    """The axes along which a sample can move, of a batch of them."""
    dimensions = spec.example(1, "meta").ndim
    if isinstance(spec, Series):
        return (1,)
    return tuple(range(3 if isinstance(spec, Views) else 2, dimensions))


@contextmanager
def answers(model: nn.Module, axes: int) -> Iterator[dict[str, Tensor]]:
    """What each convolution along so many axes gave when it was last called, by its name."""
    kept: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: kept.update({name: output})

    hooks = [
        module.register_forward_hook(keep(name))
        for name, module in model.named_modules()
        if isinstance(module, CONVOLUTIONS) and module.weight.ndim == axes + 2
    ]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


@dataclass
class _Sums:
    """What is added up over samples and axes."""

    change: float = 0.0  # of outputs
    largest: float = 0.0
    numbers: int = 0  # outputs that were compared
    same: int = 0  # samples that were decided as before
    # Squares: of the answers of a convolution, and of how far they are from having moved so along an axis.
    norm: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    gap: dict[tuple[str, int, int], float] = field(default_factory=lambda: defaultdict(float))


class EquivarianceProbe(Probe):
    """What becomes of outputs and of convolutions when the input moves.

    `invariance_gap` is the mean of |p(x) - p(Tx)| over samples, axes and outputs, p the probabilities where
    the target is classes and else the outputs; `invariance_gap_max` is the largest, and `same_class` the
    share that is decided as before. `equivariance_gap/NAME` is |f(Tx) - T'f(x)| / |f(x)| for the convolution
    of this name, in the Euclidean norm over all samples and axes. T' moves by as many places of a smaller
    output as come nearest, so that a stride is no gap where the input moves by a multiple of it.
    """

    def __init__(self, config: Equivariance, context: Context) -> None:
        self.config = config

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        source = getattr(splits, self.config.split)
        if source is None:
            raise PegboardError(
                f"there is no split {self.config.split!r} to move\n"
                "Name one that the data has: split=train, split=val or split=test"
            )
        model = model.to(device).eval()
        classes, axes = isinstance(splits.spec.target, Classes), axes_of(splits.spec.inputs[0])
        sums, count = _Sums(), min(self.config.samples, len(source))
        with torch.no_grad(), answers(model, len(axes)) as kept:
            for start in range(0, count, CHUNK):
                rows = torch.arange(start, min(start + CHUNK, count), device=device)
                (x,) = source.gather(rows).inputs
                self._compare(model, x.to(device), axes, classes, kept, sums)
        figures = {
            "invariance_gap": sums.change / sums.numbers,
            "invariance_gap_max": sums.largest,
        }
        if classes:
            figures["same_class"] = sums.same / (count * len(axes))
        return figures | _gaps(sums, len(axes), self.config.shift)

    def _compare(
        self,
        model: nn.Module,
        x: Tensor,
        axes: tuple[int, ...],
        classes: bool,
        kept: dict[str, Tensor],
        sums: _Sums,
    ) -> None:
        """Add what some samples say of the model."""
        shift, around = self.config.shift, self.config.border == "circular"
        before = model(x)
        at_rest = dict(kept)
        for name, f in at_rest.items():
            sums.norm[name] += float(f.square().sum()) * len(axes)
        for at, axis in enumerate(axes):
            after = model(moved(x, shift, axis, around=around))
            change = (said(after, classes) - said(before, classes)).abs()
            sums.change += float(change.sum())
            sums.numbers += change.numel()
            sums.largest = max(sums.largest, float(change.max()))
            if classes:
                sums.same += int((decided(after) == decided(before)).sum())
            for name, f in at_rest.items():
                for by in range(shift + 1):
                    apart = kept[name] - moved(f, by, 2 + at, around=around)
                    sums.gap[name, at, by] += float(apart.square().sum())


def said(output: Tensor, classes: bool) -> Tensor:
    """Probabilities of classes, or the outputs themselves."""
    if not classes:
        return output
    return output.sigmoid() if output.shape[-1] == 1 else output.softmax(-1)


def decided(output: Tensor) -> Tensor:
    """The class of each sample."""
    return output[..., 0] > 0 if output.shape[-1] == 1 else output.argmax(-1)


def _gaps(sums: _Sums, axes: int, shift: int) -> dict[str, float]:
    """The gap of each convolution, with the nearest move of its output along each axis."""
    figures = {}
    for name, norm in sums.norm.items():
        least = [min(sums.gap[name, at, by] for by in range(shift + 1)) for at in range(axes)]
        figures[f"equivariance_gap/{name}"] = sqrt(sum(least) / max(norm, 1e-30))
    return figures
