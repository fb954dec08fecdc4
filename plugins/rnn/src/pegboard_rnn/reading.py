"""Samples as sequences of vectors (batch, length, features), with a mask of the steps that count."""

from __future__ import annotations

import torch
from pegboard import Image, Peg, PegboardError, Series, Spec, Tokens
from torch import Tensor, nn


class ReadSeries(nn.Module):
    """Real vectors as they are; the steps after a sample's end, all nan, become zero."""

    def __init__(self, features: int, padded: bool) -> None:
        super().__init__()
        self.width, self.padded = features, padded
        self.peg = Peg("input", features, "NLC")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        if not self.padded:
            return self.peg(x), None
        mask = ~torch.isnan(x).all(-1)
        return self.peg(x.masked_fill(~mask.unsqueeze(-1), 0.0), mask), mask


class ReadTokens(nn.Module):
    """A vector for each symbol."""

    def __init__(self, vocab: int, width: int, padding: int) -> None:
        super().__init__()
        self.width, self.padding = width, padding
        self.embedding = nn.Embedding(vocab, width)
        self.peg = Peg("embedding", width, "NLC")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        mask = x != self.padding if self.padding >= 0 else None
        return self.peg(self.embedding(x), mask), mask


class ReadImage(nn.Module):
    """A picture row by row, column by column or pixel by pixel, with all its channels."""

    def __init__(self, channels: int, height: int, width: int, steps: str) -> None:
        super().__init__()
        self.steps = steps
        self.width = channels * {"rows": width, "columns": height, "pixels": 1}[steps]
        self.peg = Peg("input", self.width, "NLC")

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        if self.steps == "pixels":
            x = x.flatten(2).transpose(1, 2)
        else:
            x = x.movedim(2 if self.steps == "rows" else 3, 1).flatten(2)
        return self.peg(x), None


def make_reader(spec: Spec, image: str, embedding: int) -> ReadSeries | ReadTokens | ReadImage:
    """What reads such samples."""
    if spec.known:
        match spec:
            case Series(_, features, padded) if features is not None:
                return ReadSeries(features, padded)
            case Tokens(vocab) if vocab is not None:
                return ReadTokens(vocab, embedding, spec.padding)
            case Image(channels, height, width) if channels and height and width:
                return ReadImage(channels, height, width, image)
    raise PegboardError(
        f"rnn reads series, symbols or pictures of known size, and the data gives {spec}.\n"
        "Choose such data; where a size is missing, the data must be read before the model is built."
    )


def last_places(mask: Tensor) -> Tensor:
    """The place of every sample's last step, (batch,); 0 where it has none."""
    return (mask.sum(1) - 1).clamp_min(0)


def turned(x: Tensor, mask: Tensor | None) -> Tensor:
    """Every sample (batch, length, features) from its last step to its first; what pads it stays behind."""
    if mask is None:
        return x.flip(1)
    places = torch.arange(x.shape[1], device=x.device)
    back = last_places(mask).unsqueeze(1) - places
    return x.gather(1, torch.where(back >= 0, back, places).unsqueeze(-1).expand_as(x))
