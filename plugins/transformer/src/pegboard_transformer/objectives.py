"""Objectives of texts: the stretch that answers a question, and the symbols hidden for pretraining."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pegboard import Batch, Metric
from pegboard_objectives.functional import IGNORED, class_counts, cross_entropy
from pegboard_objectives.objective import Supervised
from torch import Tensor

from .specs import Masked, Span


def best_span(output: Tensor, longest: int | None = None) -> Tensor:
    """First and last place (batch, 2) of the likeliest span: the largest start + end with first <= last.

    `output` (batch, 2, length) has the logits of start and end; a span of more than `longest` places does
    not count.
    """
    start, end = output.float().unbind(1)
    width = min(longest or start.shape[-1], start.shape[-1])
    # The best start for every end, among the places up to it that leave the span short enough.
    padded = F.pad(start, (width - 1, 0), value=float("-inf"))
    best, place = F.max_pool1d(padded.unsqueeze(1), width, 1, return_indices=True)
    last = (best.squeeze(1) + end).argmax(-1, keepdim=True)
    return torch.cat((place.squeeze(1).gather(1, last) - (width - 1), last), 1)


def span_overlap(span: Tensor, target: Tensor) -> Tensor:
    """F1 of the places of two spans (batch, 2): 2 shared / (places of one + places of the other)."""
    shared = torch.minimum(span[:, 1], target[:, 1]) - torch.maximum(span[:, 0], target[:, 0]) + 1
    return 2 * shared.clamp(min=0) / ((span[:, 1] - span[:, 0]) + (target[:, 1] - target[:, 0]) + 2)


def follow_part(target: Tensor) -> Tensor:
    """Whether the second sentence follows, of a `Masked` target: indices (batch,), distributions (batch, 2).

    What a distribution over all symbols, as a smoothed one, gives to symbols past 0 and 1 goes to both alike.
    """
    if not target.is_floating_point():
        return target[:, 0]
    first = target[:, 0]
    return first[:, :2] + first[:, 2:].sum(-1, keepdim=True) / 2


def pretraining(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """The mean cross entropy of the symbols that are hidden, and that of the sentences that follow, summed.

    `output` is (batch, 1 + length, vocab): in the first row the logits of "does not follow" and "follows",
    then those of the symbol of every place. `target` has their indices (batch, 1 + length), -100 where
    nothing is asked, or distributions over the symbols. Either part is 0 where nothing of it is asked.
    """
    hidden = cross_entropy(output[:, 1:], target[:, 1:], weight)
    return hidden + cross_entropy(output[:, 0, :2], follow_part(target), weight)


def asked(batch: Batch) -> Tensor:
    """How many places of a batch are asked, weighted."""
    assert batch.target is not None
    places = batch.target.flatten(0, 1) if batch.target.is_floating_point() else batch.target.flatten()
    return class_counts(places, batch.weight).sum()


class Answering(Supervised):
    """A stretch of a text for each sample; outputs are (batch, 2, length)."""

    def __init__(self, target: Span, longest: int | None) -> None:
        super().__init__("span", cross_entropy, cross_entropy, target)
        self.longest = longest
        self.monitor = ("f1", "max")

    def mass(self, batch: Batch) -> Tensor | float:
        return asked(batch)

    def wrong(self, output: Any, target: Tensor | None) -> str | None:
        if target is None or target.is_floating_point():
            return None
        length = output.shape[-1]
        bad = target[(target != IGNORED) & ((target < 0) | (target >= length))]
        if not len(bad):
            return None
        return (
            f"a span begins or ends at place {int(bad[0])}, and the text has {length} places: expected 0 to "
            f"{length - 1}, or {IGNORED} where there is no answer"
        )

    def metrics(self) -> dict[str, Metric]:
        from pegboard_objectives.metrics import Fed

        def known(target: Tensor) -> Tensor:
            return (target != IGNORED).all(-1)

        def exact(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            return (best_span(output, self.longest) == target).all(-1), known(target)

        def overlap(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            return span_overlap(best_span(output, self.longest), target), known(target)

        return {
            "exact_match": Fed(lambda m: m.Share(), exact, True),
            "f1": Fed(lambda m: m.Share(), overlap, True),
        }

    def predict(self, output: Any) -> dict[str, Tensor]:
        place = best_span(output, self.longest)
        chance = output.float().softmax(-1).gather(-1, place.unsqueeze(-1)).prod(1).squeeze(-1)
        return {"start": place[:, 0], "end": place[:, 1], "probability": chance}


class Uncovering(Supervised):
    """Symbols hidden in a text, and whether its second sentence follows; outputs (batch, 1+length, vocab)."""

    def __init__(self, target: Masked) -> None:
        super().__init__("pretraining", pretraining, pretraining, target)

    def mass(self, batch: Batch) -> Tensor | float:
        # Exact where a split asks one of the two; where it asks both, batches count by all they ask.
        return asked(batch)

    def metrics(self) -> dict[str, Metric]:
        from pegboard_objectives.metrics import Fed

        def hidden(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            return output[:, 1:].argmax(-1) == target[:, 1:], target[:, 1:] != IGNORED

        def follows(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            return output[:, 0, :2].argmax(-1) == target[:, 0], target[:, 0] != IGNORED

        def surprise(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            logits, index = output[:, 1:].float(), target[:, 1:]
            losses = F.cross_entropy(logits.flatten(0, 1), index.flatten(), reduction="none")
            return losses.view_as(index), index != IGNORED

        return {
            "masked_accuracy": Fed(lambda m: m.Share(), hidden, True),
            "next_accuracy": Fed(lambda m: m.Share(), follows, True),
            "perplexity": Fed(lambda m: m.Perplexity(), surprise, False),
        }

    def predict(self, output: Any) -> dict[str, Tensor]:
        chance = output[:, 0, :2].float().softmax(-1)[:, 1]
        return {"follows": chance, "symbols": output[:, 1:].argmax(-1)}
