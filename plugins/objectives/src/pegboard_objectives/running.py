"""Running measurements: sums that stay on the device of what is measured until a figure is asked for.

All take the weights of samples: a sample of weight 0 leaves no trace, and one of weight 3 counts as three.
`counts` are booleans that say which of the numbers are known; sums are in double precision where there is it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .functional import along
from .measures import adjusted_rand_index

BINS = 15  # of the calibration error


class Running:
    """A measurement by states: sums, or lists of what was seen."""

    def __init__(self) -> None:
        self._start: dict[str, Tensor | list[Tensor]] = {}
        self._device = "cpu"

    def add_state(self, name: str, start: Tensor | list[Tensor]) -> None:
        """Keep something under a name, which `reset` puts back to how it starts."""
        self._start[name] = start
        self.reset()

    def reset(self) -> None:
        for name, start in self._start.items():
            setattr(self, name, start.to(self._device) if isinstance(start, Tensor) else list(start))

    def to(self, device: str) -> Running:
        """Keep states on a device, from the next start on."""
        self._device = device
        self.reset()
        return self


def weigh(counts: Tensor, weight: Tensor | None) -> Tensor:
    """How much each place counts: its sample's weight where it is known, else 0."""
    wide = torch.float32 if counts.device.type == "mps" else torch.float64
    mass = counts.to(wide)
    return mass if weight is None else mass * along(weight.to(wide), counts)


def total(values: Tensor, mass: Tensor, axis: int | None = None) -> Tensor:
    """The sum of what counts, whatever the rest may be."""
    weighed = torch.where(mass != 0, values.to(mass.dtype), 0) * mass
    return weighed.sum() if axis is None else weighed.sum(axis)


class Share(Running):
    """The mean of values among what counts; of hits, their share."""

    hits: Tensor
    mass: Tensor

    def __init__(self, root: bool = False) -> None:
        super().__init__()
        self.root = root  # give the root of the mean
        self.add_state("hits", torch.tensor(0.0))
        self.add_state("mass", torch.tensor(0.0))

    def update(self, hit: Tensor, counts: Tensor, weight: Tensor | None = None) -> None:
        """`hit` and `counts` are of one shape, samples first."""
        mass = weigh(counts, weight)
        self.hits = self.hits + total(hit, mass)
        self.mass = self.mass + mass.sum()

    def compute(self) -> Tensor:
        mean = self.hits / self.mass
        return mean.sqrt() if self.root else mean


class Perplexity(Share):
    """The exponential of the mean cross entropy: among how many symbols a model is undecided."""

    def compute(self) -> Tensor:
        return super().compute().exp()


class Largest(Running):
    """The largest of all values that count."""

    largest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("largest", torch.tensor(-torch.inf))

    def update(self, values: Tensor, counts: Tensor, weight: Tensor | None = None) -> None:
        """`values` and `counts` are of one shape, samples first."""
        known = torch.where(weigh(counts, weight) != 0, values, -torch.inf)
        self.largest = torch.maximum(self.largest.to(known.dtype), known.max())

    def compute(self) -> Tensor:
        return torch.where(self.largest == -torch.inf, torch.nan, self.largest)


class F1(Running):
    """2 tp / (2 tp + fp + fn), averaged over the classes or labels that occur or are predicted."""

    found: Tensor
    predicted: Tensor
    true: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        for state in ("found", "predicted", "true"):
            self.add_state(state, torch.zeros(classes))

    def update(self, decision: Tensor, target: Tensor, counts: Tensor, weight: Tensor | None = None) -> None:
        """Indices (places,), or booleans (places, labels)."""
        mass = weigh(counts, weight)
        if decision.dtype == torch.bool:
            self.found = self.found + total(decision & target, mass, 0)
            self.predicted = self.predicted + total(decision, mass, 0)
            self.true = self.true + total(target, mass, 0)
            return
        index = target.masked_fill(mass == 0, 0)
        self.found = self.found + self._each(index, mass * (decision == index))
        self.predicted = self.predicted + self._each(decision, mass)
        self.true = self.true + self._each(index, mass)

    def _each(self, index: Tensor, mass: Tensor) -> Tensor:
        return mass.new_zeros(self.classes).index_add(0, index, mass)

    def compute(self) -> Tensor:
        return (2 * self.found / (self.predicted + self.true)).nanmean()


class CalibrationError(Running):
    """How far confidence is from the share of hits, over bins of equal width."""

    confidences: Tensor
    hits: Tensor
    mass: Tensor

    def __init__(self) -> None:
        super().__init__()
        for state in ("confidences", "hits", "mass"):
            self.add_state(state, torch.zeros(BINS))

    def update(self, confidence: Tensor, hit: Tensor, counts: Tensor, weight: Tensor | None = None) -> None:
        """All (places,), or (places, labels); confidence is from 0 to 1."""
        mass = weigh(counts, weight).flatten()
        confidence = confidence.flatten().to(mass.dtype)
        bins = (confidence * BINS).long().clamp(0, BINS - 1)

        def each(values: Tensor) -> Tensor:
            return mass.new_zeros(BINS).index_add(0, bins, values * mass)

        self.confidences = self.confidences + each(confidence)
        self.hits = self.hits + each(hit.flatten().to(mass.dtype))
        self.mass = self.mass + each(torch.ones_like(mass))

    def compute(self) -> Tensor:
        return (self.hits - self.confidences).abs().sum() / self.mass.sum()


def cumulative(x: Tensor) -> Tensor:
    """The sum of the first 1, 2, 3, ... numbers along the last axis.

    `torch.cumsum` of floating point numbers has no deterministic kernel on CUDA. Here each round doubles how
    many numbers are summed; whole numbers are summed exactly, as there.
    """
    reach = 1
    while reach < x.shape[-1]:
        x = x + torch.nn.functional.pad(x[..., :-reach], (reach, 0))
        reach *= 2
    return x


class Auroc(Running):
    """Area under the ROC curve of each column, averaged over the columns that have one.

    A column without a positive or without a negative case has none and is left out; where no
    column has one the result is nan.
    """

    scores: list[Tensor]
    positive: list[Tensor]
    mass: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for state in ("scores", "positive", "mass"):
            self.add_state(state, [])

    def update(self, scores: Tensor, positive: Tensor, counts: Tensor, weight: Tensor | None = None) -> None:
        """`scores` (samples, columns) of any size, `positive` and `counts` booleans of the same shape."""
        self.scores.append(scores)
        self.positive.append(positive)
        self.mass.append(weigh(counts, weight))

    def compute(self) -> Tensor:
        scores = torch.cat(self.scores).float().T.contiguous()
        positive, mass = torch.cat(self.positive).T, torch.cat(self.mass).T
        ordered, order = scores.sort(-1)
        negatives = torch.where(positive, 0, mass)
        # The mass of all negative cases among the lowest 0, 1, 2, ... scores.
        below = torch.nn.functional.pad(cumulative(negatives.gather(-1, order)), (1, 0))
        # A positive case beats the negatives below it, and half of those with its own score.
        lower = below.gather(-1, torch.searchsorted(ordered, scores))
        upper = below.gather(-1, torch.searchsorted(ordered, scores, right=True))
        wins = torch.where(positive, mass * (lower + upper) / 2, 0).sum(-1)
        return (wins / (torch.where(positive, mass, 0).sum(-1) * negatives.sum(-1))).nanmean()


class R2(Running):
    """Share of the variance explained, averaged over features; nan for fewer than two samples.

    A feature that never changes has 1 where it is met exactly and 0 elsewhere.
    """

    number: Tensor
    mass: Tensor
    sums: Tensor
    squares: Tensor
    residuals: Tensor

    def __init__(self) -> None:
        super().__init__()
        for state in ("number", "mass", "sums", "squares", "residuals"):
            self.add_state(state, torch.tensor(0.0))

    def update(self, output: Tensor, target: Tensor, counts: Tensor, weight: Tensor | None = None) -> None:
        """All (samples, features)."""
        mass = weigh(counts, weight)
        self.number = self.number + (mass != 0).sum(0)
        self.mass = self.mass + mass.sum(0)
        self.sums = self.sums + total(target, mass, 0)
        self.squares = self.squares + total(target.square(), mass, 0)
        self.residuals = self.residuals + total((output - target).square(), mass, 0)

    def compute(self) -> Tensor:
        spread = self.squares - self.sums.square() / self.mass
        # What rounding leaves of the spread of a constant.
        noise = self.squares * self.number.clamp(min=1) * torch.finfo(self.squares.dtype).eps
        constant = spread <= noise
        exact = (self.residuals <= noise).to(spread.dtype)
        each = torch.where(constant, exact, 1 - self.residuals / torch.where(constant, 1, spread))
        alone = (self.number < 2) & (self.mass < 2)  # a sample of weight 2 counts as two
        return torch.where(alone, torch.nan, each).nanmean()


class RandIndex(Running):
    """Agreement of two groupings on pairs of samples, 0 by chance and 1 wholly."""

    table: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.add_state("table", torch.tensor(0.0))

    def update(self, scores: Tensor, target: Tensor, counts: Tensor, weight: Tensor | None = None) -> None:
        """`scores` (samples, groups), of which the highest is the group; `target` indices (samples,)."""
        mass = weigh(counts, weight)
        pair = scores.argmax(-1) * self.classes + target.masked_fill(mass == 0, 0)
        size = scores.shape[-1] * self.classes
        self.table = self.table + mass.new_zeros(size).index_add(0, pair, mass).reshape(-1, self.classes)

    def compute(self) -> Tensor:
        return adjusted_rand_index(self.table)
