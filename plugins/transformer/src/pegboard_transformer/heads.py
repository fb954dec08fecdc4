"""What `bert` makes of the places of a text (rows, length, width), one module for each kind of target.

All are called alike: with those places, where the text lasts, the inputs and the table of words.
"""

from __future__ import annotations

import torch
from pegboard import Peg
from torch import Tensor, nn
from torch.nn import functional as F


def impossible(x: Tensor) -> float:
    """A logit of what cannot be: finite, so that nothing becomes nan, and of no weight in a softmax."""
    return max(-1e9, torch.finfo(x.dtype).min)


class Pooled(nn.Module):
    """A head that reads the first place alone, through a layer of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width)
        self.pooled = Peg("pooled", width)

    def pool(self, x: Tensor) -> Tensor:
        """(rows, width)."""
        return self._modules["pooled"](torch.tanh(self.pooler(x[:, 0])))  # type: ignore[misc, no-any-return]


class Classifier(Pooled):
    """Logits or values (rows, outputs) of a text as a whole."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__(width)
        self.classifier = nn.Linear(width, outputs)
        self.logits = Peg("logits", outputs)

    def forward(
        self, x: Tensor, lasts: Tensor | None, inputs: tuple[Tensor, ...], words: nn.Embedding
    ) -> Tensor:
        return self._modules["logits"](self.classifier(self.pool(x)))  # type: ignore[misc, no-any-return]


class Tagger(nn.Module):
    """Logits (rows, length, outputs) of every place."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.pooled = Peg("pooled", width, "NLC")
        self.classifier = nn.Linear(width, outputs)
        self.logits = Peg("logits", outputs, "NLC")

    def forward(
        self, x: Tensor, lasts: Tensor | None, inputs: tuple[Tensor, ...], words: nn.Embedding
    ) -> Tensor:
        pegs = self._modules
        return pegs["logits"](self.classifier(pegs["pooled"](x, lasts)), lasts)  # type: ignore[misc, no-any-return]


class SpanHead(nn.Module):
    """Logits (rows, 2, length) of the places at which an answer begins and ends.

    Padding has none. With `around`, the symbols that begin and end a sentence, answers are in the second one
    alone. All texts are taken to have `length` places, whatever the batch.
    """

    def __init__(self, width: int, length: int, around: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.length, self.around = length, around
        self.pooled = Peg("pooled", width, "NLC")
        self.ends = nn.Linear(width, 2)
        self.logits = Peg("logits", 2, "NLC")

    def forward(
        self, x: Tensor, lasts: Tensor | None, inputs: tuple[Tensor, ...], words: nn.Embedding
    ) -> Tensor:
        pegs = self._modules
        y = pegs["logits"](self.ends(pegs["pooled"](x, lasts)), lasts).transpose(1, 2)  # type: ignore[misc]
        if self.around is not None:
            tokens, segments = inputs
            second = (segments == 1) & (tokens != self.around[0]) & (tokens != self.around[1])
            lasts = second if lasts is None else lasts & second
        low = impossible(y)
        if lasts is not None:
            y = y.masked_fill(~lasts.unsqueeze(1), low)
        return F.pad(y, (0, self.length - y.shape[-1]), value=low)


class Pretraining(Pooled):
    """Logits (rows, 1 + length, vocab): whether the second sentence follows, then the symbol of every place.

    The first row has them at 0 (does not follow) and 1 (follows). A symbol's logit is the product of a place,
    through a layer of its own, with the symbol's embedding, plus a constant.
    """

    def __init__(self, width: int, vocab: int, eps: float) -> None:
        super().__init__(width)
        self.follows = nn.Linear(width, 2)
        self.transform = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.logits = Peg("logits", vocab, "NLC")

    def forward(
        self, x: Tensor, lasts: Tensor | None, inputs: tuple[Tensor, ...], words: nn.Embedding
    ) -> Tensor:
        places = self.norm(F.gelu(self.transform(x)))
        symbols = self._modules["logits"](F.linear(places, words.weight, self.bias), lasts)  # type: ignore[misc]
        follows = self.follows(self.pool(x)).unsqueeze(1)
        row = F.pad(follows, (0, symbols.shape[-1] - 2), value=impossible(follows))
        return torch.cat((row, symbols), 1)
