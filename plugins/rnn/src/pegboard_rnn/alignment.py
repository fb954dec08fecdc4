"""Where a model of pairs of texts looks, in numbers and as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from pegboard import Context, PegboardError, Probe, Source, Splits, Tokens
from torch import Tensor, nn

from .seq2seq_options import Alignment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 64  # texts read together
LONGEST = 24  # letters of a label


class Look(NamedTuple):
    """One pair of texts: words of both, and the weights (words of the target, words of the source)."""

    source: list[str]
    target: list[str]
    weights: Tensor


def summary(weights: Tensor, steps: Tensor, places: Tensor) -> dict[str, Tensor]:
    """Sums over a batch, and how many steps each is over: (batch, steps, places) with the masks of both.

    `peak` is the largest weight of a step, `entropy` in nats; `monotone` counts steps whose place is not
    before that of the step before, `diagonal` those that look most at the place of their own number.
    """
    peak, best = weights.max(-1)
    entropy = torch.special.entr(weights).sum(-1)
    own = torch.arange(weights.shape[1], device=weights.device)
    both = steps & (own < places.sum(1, keepdim=True))
    later = steps[:, 1:]
    return {
        "peak": _of(peak, steps),
        "entropy": _of(entropy, steps),
        "monotone": _of((best[:, 1:] >= best[:, :-1]).float(), later),
        "diagonal": _of((best == own).float(), both),
    }


def _of(values: Tensor, counted: Tensor) -> Tensor:
    return torch.stack(((values * counted).sum().double(), counted.sum().double()))


class AlignmentProbe(Probe):
    """Reads texts with their targets by `model.align`, as in training."""

    def __init__(self, config: Alignment, context: Context) -> None:
        self.config, self.spec = config, context.spec
        self.looks: list[Look] = []

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        source: Source | None = getattr(splits, self.config.split)
        if source is None:
            raise PegboardError(f"alignment: the data has no split {self.config.split!r}")
        align: Callable[..., Tensor] | None = getattr(model, "align", None)
        if align is None:
            raise PegboardError("alignment: the model has no attention to look with (a method `align`)")
        count = min(len(source), self.config.samples or len(source))
        if self.config.first >= len(source):
            raise PegboardError(f"alignment: first is {self.config.first}, and there are {len(source)} texts")
        model.to(device).eval()
        source = source.to("cpu")  # so that numbers may stay there, whatever holds the samples
        totals: dict[str, Tensor] = {}
        for start in range(0, count, BATCH):
            part = torch.arange(start, min(start + BATCH, count))
            read, shifted, _ = self._gather(source, part, device)
            found = summary(align(read, shifted), self._lasts(1, shifted), self._lasts(0, read))
            totals = {name: totals.get(name, 0) + value for name, value in found.items()}
        end = min(self.config.first + self.config.shown, len(source))
        read, shifted, target = self._gather(source, torch.arange(self.config.first, end), device)
        self.looks = list(self._looks(splits, read, shifted, target, align(read, shifted)))
        sums = {name: value.tolist() for name, value in totals.items()}
        return {name: total / steps for name, (total, steps) in sums.items() if steps}

    def _gather(self, source: Source, part: Tensor, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        source.begin([part], 0)
        batch = source.gather(part)
        assert batch.target is not None
        read, shifted = batch.inputs
        return read.to(device), shifted.to(device), batch.target

    def _lasts(self, number: int, symbols: Tensor) -> Tensor:
        """Where a text lasts, (batch, length)."""
        spec = self.spec.inputs[number]
        assert isinstance(spec, Tokens)
        return symbols != spec.padding

    def _looks(
        self, splits: Splits, read: Tensor, shifted: Tensor, target: Tensor, weights: Tensor
    ) -> list[Look]:
        places, steps = self._lasts(0, read).sum(1).tolist(), self._lasts(1, shifted).sum(1).tolist()
        of_input = splits.decode_input
        found = []
        for row, (width, height) in enumerate(zip(places, steps, strict=True)):
            source = _words(read[row, :width], of_input and (lambda symbols: of_input(0, symbols)))
            words = _words(target[row, :height], splits.decode, self._end())
            found.append(Look(source, words, weights[row, :height, :width].float().cpu()))
        return found

    def _end(self) -> int:
        target = self.spec.target
        return target.end if isinstance(target, Tokens) else -1

    def plot(self, figure: Figure) -> None:
        """A panel for each text: words of the source along it, words of the target down."""
        columns = math.ceil(math.sqrt(len(self.looks)))
        lines = math.ceil(len(self.looks) / columns)
        wide = max(len(look.source) for look in self.looks)
        high = max(len(look.target) for look in self.looks)
        figure.set_size_inches(columns * (1.6 + 0.22 * wide), lines * (1.6 + 0.22 * high) + 0.4)
        for place, look in enumerate(self.looks):
            axes = figure.add_subplot(lines, columns, place + 1)
            axes.imshow(look.weights.tolist(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
            axes.set_xticks(range(len(look.source)), look.source, rotation=90, fontsize=8)
            axes.set_yticks(range(len(look.target)), look.target, fontsize=8)
            axes.xaxis.tick_top()


def _words(symbols: Tensor, decode: Callable[[Tensor], list[str]] | None, end: int = -1) -> list[str]:
    """A label for every symbol: its text where there is one, else its number."""
    numbers = symbols.tolist()
    texts = [str(n) for n in numbers] if decode is None else decode(symbols.unsqueeze(1).cpu())
    return [
        "(end)" if number == end else text[:LONGEST].replace("$", r"\$") or str(number)
        for number, text in zip(numbers, texts, strict=True)
    ]
