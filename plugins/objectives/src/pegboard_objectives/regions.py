"""Where a model errs: errors of training and held-out samples by region of the data."""

from __future__ import annotations

import torch
from pegboard import Batch, Classes, PegboardError, Probe, Source, Splits
from torch import Tensor, nn

from .region_options import ErrorByRegion

PIECE = 4096  # samples that a model reads at a time


class RegionProbe(Probe):
    """Errors in bins of a number; bin 1 is the lowest.

    Where both errors of a bin are large, the model underfits there; where that of the held-out samples alone
    is, it overfits there.
    """

    def __init__(self, config: ErrorByRegion) -> None:
        self.config = config

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        held_out = getattr(splits, self.config.split)
        if held_out is None:
            raise PegboardError(f"there is no split {self.config.split!r}: expected one that the data has")
        train, other = whole(splits.train), whole(held_out)
        classes = isinstance(splits.spec.target, Classes)
        numbers = self.numbers(other)
        if self.config.by == "curvature":  # training samples lie where the nearest held-out one does
            near = torch.cdist(train.inputs[0].double(), other.inputs[0].double()).argmin(1)
            of_train = numbers[near]
        else:
            of_train = self.numbers(train)
        edges = torch.tensor(self.config.edges, dtype=torch.float64)
        if not len(edges):
            shares = torch.linspace(0, 1, self.config.bins + 1, dtype=torch.float64)[1:-1]
            edges = torch.quantile(numbers, shares)
        figures = {}
        for batch, which, name in ((other, numbers, ""), (train, of_train, "train_")):
            errors = errors_of(model, batch, device, classes)
            for place, (error, count) in enumerate(by_region(errors, which, edges), 1):
                if count:
                    figures[f"{name}error_{place}"] = error
                figures[f"{name}samples_{place}"] = float(count)
        return figures

    def numbers(self, batch: Batch) -> Tensor:
        """What bins are cut by, of each sample: (samples,)."""
        x, y = batch.inputs[0].double(), batch.target
        assert y is not None
        if self.config.by == "input":
            return x[:, self.config.column]
        target = y.reshape(len(y), -1)[:, self.config.column].double()
        return target if self.config.by == "target" else curvature(x[:, 0], target)


def whole(source: Source) -> Batch:
    """All samples of a split."""
    try:
        return source.to("cpu").gather(torch.arange(len(source)))
    finally:
        source.close()


def errors_of(model: nn.Module, batch: Batch, device: torch.device, classes: bool) -> Tensor:
    """The squared error of each sample in the mean over its values, or 1 for a wrong class: (samples,)."""
    model = model.to(device).eval()
    with torch.no_grad():
        parts = [model(x.to(device)) for x in torch.split(batch.inputs[0], PIECE)]
    if not all(isinstance(part, Tensor) and part.dim() == 2 for part in parts):
        raise PegboardError("error_by_region reads outputs (samples, numbers), and the model gives others")
    output, target = torch.cat(parts).cpu().double(), batch.target
    assert target is not None
    if classes:
        found = output[:, 0] > 0 if output.shape[1] == 1 else output.argmax(1)
        return (found.long() != target).double()
    return (output - target.reshape(len(target), -1)).square().mean(1)


def by_region(errors: Tensor, numbers: Tensor, edges: Tensor) -> list[tuple[float, int]]:
    """The mean error and the count of samples between the edges, from the lowest on; both (samples,)."""
    which = torch.bucketize(numbers.contiguous(), edges)
    counts = torch.bincount(which, minlength=len(edges) + 1)
    sums = torch.zeros(len(counts), dtype=errors.dtype).index_add_(0, which, errors)
    return [(float(s / max(n, 1)), n) for s, n in zip(sums, counts.tolist(), strict=True)]


def curvature(x: Tensor, y: Tensor) -> Tensor:
    """|d2y/dx2| at each point by its two neighbours, the ends as those beside them: (samples,)."""
    places, back = torch.unique(x, return_inverse=True)
    if len(places) < 3:
        raise PegboardError("the curvature of a target needs three different inputs")
    counts = torch.bincount(back)
    values = torch.zeros(len(places), dtype=y.dtype).index_add_(0, back, y) / counts
    slopes = values.diff() / places.diff()
    inner = 2 * slopes.diff() / (places[2:] - places[:-2])
    found: Tensor = torch.cat([inner[:1], inner, inner[-1:]]).abs()[back]
    return found
