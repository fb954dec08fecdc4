"""Prototypes by Lloyd's iterations from several starts."""

from __future__ import annotations

import copy

import torch
from pegboard import Batch, Context, PegboardError, Reference
from torch import Tensor, nn

from .design import counted, outputs_of, precise
from .reference_configs import Kmeans

ITERATIONS = 1000  # from one start; a few dozen is usual


def squared_distances(x: Tensor, centres: Tensor) -> Tensor:
    """(samples, centres), from differences: products would cancel near a centre."""
    return torch.stack([(x - centre).square().sum(-1) for centre in centres], -1)


def spread_out(x: Tensor, share: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Samples to start from, each drawn by its squared distance to those before (k-means++)."""
    chosen = [int(torch.multinomial(share, 1, generator=generator))]
    for _ in range(count - 1):
        chance = share * squared_distances(x, x[chosen]).min(-1).values
        if not chance.any():  # fewer different samples than centres
            chance = share
        chosen.append(int(torch.multinomial(chance, 1, generator=generator)))
    return x[chosen].clone()


def lloyd(x: Tensor, share: Tensor, centres: Tensor) -> tuple[Tensor, float]:
    """Move each centre to the mean of the samples nearest to it until none changes sides.

    The centres, and the mean squared distance to the nearest. A centre that is nearest to none stays.
    """
    sides = torch.full((len(x),), -1)
    for _ in range(ITERATIONS):
        nearest = squared_distances(x, centres).argmin(-1)
        if torch.equal(nearest, sides):
            break
        sides = nearest
        mass = torch.zeros(len(centres)).to(x).index_add(0, sides, share)
        sums = torch.zeros_like(centres).index_add(0, sides, share.unsqueeze(-1) * x)
        taken = (mass > 0).unsqueeze(-1)
        centres = torch.where(taken, sums / mass.clamp(min=1e-300).unsqueeze(-1), centres)
    return centres, float(share @ squared_distances(x, centres).min(-1).values)


def kmeans(x: Tensor, share: Tensor, count: int, restarts: int, generator: torch.Generator) -> Tensor:
    """The best centres (count, features) of some starts."""
    starts = (spread_out(x, share, count, generator) for _ in range(restarts))
    return min((lloyd(x, share, start) for start in starts), key=lambda found: found[1])[0]


class KmeansReference(Reference):
    """The best of several starts: no proof that there is nothing better, which nobody finds in general."""

    def __init__(self, config: Kmeans, context: Context) -> None:
        self.restarts, self.seed = config.restarts, context.generator("starts", "cpu").initial_seed()
        self.formula = f"mean over x of min_k ||x - c_k||^2, best of {config.restarts} starts"

    @torch.no_grad()
    def solve(self, model: nn.Module, train: Batch) -> nn.Module:
        centres = self._centres(model)
        inputs, _, share = counted(train)
        x: Tensor = precise(model).input(inputs[0].double().flatten(1))  # type: ignore[operator]
        generator = torch.Generator().manual_seed(self.seed)
        best = copy.deepcopy(model)
        best.centres.copy_(kmeans(x, share, len(centres), self.restarts, generator))  # type: ignore[operator]
        return best

    def value(self, model: nn.Module, train: Batch) -> float:
        self._centres(model)
        inputs, _, share = counted(train)
        return float(share @ -outputs_of(model, inputs).max(-1).values)

    def _centres(self, model: nn.Module) -> Tensor:
        centres = getattr(model, "centres", None)
        if not isinstance(centres, Tensor):
            raise PegboardError(
                f"kmeans is the optimum of a model with `centres`, and {type(model).__name__} has none.\n"
                "Use the model prototypes."
            )
        return centres
