"""A transformer encoder with a head for a whole sequence or for each step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pegboard import Peg
from torch import Tensor, nn

from . import adoption
from .blocks import Form, Stack, key_mask
from .embedding import Embed, Patches, lasting, rotary
from .initial import normal, xavier


class Reader(nn.Module):
    """Places, a stack of blocks and an affine head: (rows, outputs), or (rows, length, outputs) by `steps`.

    `read` makes places of the input. `pool` says how they become one: their "mean", those that are padding
    left out, or the place of a class "token" that goes first.
    """

    def __init__(
        self,
        read: nn.Module,
        length: int,
        outputs: int,
        layers: int,
        form: Form,
        *,
        positions: str = "learned",
        pool: str = "mean",
        steps: bool = False,
    ) -> None:
        super().__init__()
        if pool not in ("mean", "token"):
            raise ValueError(f"unknown pool {pool!r}: expected mean or token")
        if steps and pool == "token":
            raise ValueError("a class token has no part in an answer for every step: pool must be mean")
        self.pool, self.steps = pool, steps
        self.embed = Embed(read, form.width, length, positions, token=pool == "token")
        self.rotary = rotary(positions, length + (pool == "token"), form.width, form.heads)
        self.stack = Stack(layers, form)
        self.pooled = Peg("pooled", form.width, "NLC" if steps else "NC")
        self.head = nn.Linear(form.width, outputs)
        self.logits = Peg("logits", outputs, "NLC" if steps else "NC")

    def read(self, x: Tensor, lasts: Tensor | None = None) -> Tensor:
        """What the stack makes of an input: (rows, places, width). `lasts` as for `Embed`."""
        x = self.embed(x, lasts)
        rotation = None if self.rotary is None else self.rotary(x.shape[1])
        mask = None if lasts is None else key_mask(lasts)
        y: Tensor = self.stack(x, mask, lasts, rotation=rotation)
        return y

    def answer(self, x: Tensor, lasts: Tensor | None = None) -> Tensor:
        x = self.read(x, lasts)
        if self.steps:
            return self.logits(self.head(self.pooled(x, lasts)), lasts)
        if self.pool == "token":
            x = x[:, 0]
        elif lasts is None:
            x = x.mean(1)
        else:
            share = lasts.to(x.dtype).unsqueeze(-1)
            x = (x * share).sum(1) / share.sum(1).clamp(min=1)
        return self.logits(self.head(self.pooled(x)))

    def whole(self, lasts: Tensor | None) -> Tensor | None:
        """`lasts` with a column for the class token, where there is one."""
        if lasts is None or self.pool != "token":
            return lasts
        return torch.cat((torch.ones_like(lasts[:, :1]), lasts), 1)


class Encoder(Reader):
    """Symbols (rows, length) or, with `features`, vectors (rows, length, features).

    `padding` is the symbol that fills up texts, -1 for none; `padded` vectors are nan after their end.
    """

    def __init__(
        self,
        vocab: int | None,
        length: int,
        outputs: int,
        layers: int,
        form: Form,
        *,
        features: int | None = None,
        padding: int = -1,
        padded: bool = False,
        positions: str = "learned",
        pool: str = "mean",
        steps: bool = False,
    ) -> None:
        if (vocab is None) == (features is None):
            raise ValueError("either a vocabulary of symbols or a number of features must be given")
        read = nn.Linear(features, form.width) if features else nn.Embedding(vocab or 0, form.width)
        super().__init__(read, length, outputs, layers, form, positions=positions, pool=pool, steps=steps)
        if features is not None:
            self.input = Peg("input", features, "NLC")
        self.padding, self.padded = padding, padded
        normal(self)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_floating_point():
            lasts = None
            if self.padded:
                lasts = ~x.isnan().all(-1)
                x = x.nan_to_num()
            x = self.input(x, lasts)
        else:
            lasts = lasting(x, self.padding)
        return self.answer(x, self.whole(lasts))

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Names of `nn.TransformerEncoder` to those of this model."""
        return adoption.torch_names(state, "stack.")


class Vit(Reader):
    """Pictures (rows, channels, height, width), cut into squares of side `patch`."""

    def __init__(
        self,
        channels: int,
        height: int,
        width: int,
        outputs: int,
        patch: int,
        layers: int,
        form: Form,
        *,
        positions: str = "learned",
        pool: str = "token",
    ) -> None:
        read = Patches(channels, height, width, patch, form.width)
        super().__init__(read, read.count, outputs, layers, form, positions=positions, pool=pool)
        xavier(self.stack)
        normal(self.head)
        nn.init.trunc_normal_(read.project.weight, std=(channels * patch * patch) ** -0.5)
        assert read.project.bias is not None
        nn.init.zeros_(read.project.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(x)

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Names of timm, torchvision and Hugging Face to those of this model."""
        return adoption.vit_names(state)
