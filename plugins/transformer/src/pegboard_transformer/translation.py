"""Encoder-decoder transformer: one sequence of tokens to another, as in translation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from pegboard import Decoding, Peg
from torch import Tensor, nn
from torch.nn import functional as F

from . import adoption
from .blocks import Form, Stack, key_mask
from .embedding import Embed, lasting, rotary
from .initial import xavier


class Translation(nn.Module):
    """Source (rows, places) and target shifted right (rows, length) to logits (rows, length, vocab).

    `source` and `target` are (vocabulary, most places, padding symbol); `begin` and `end` are symbols of the
    target. `shared` makes one embedding serve both, `tied` the target's the last map.
    """

    def __init__(
        self,
        source: tuple[int, int, int],
        target: tuple[int, int, int],
        layers: int,
        decoder_layers: int,
        form: Form,
        *,
        begin: int,
        end: int = -1,
        positions: str = "sinusoidal",
        shared: bool = False,
        tied: bool = True,
    ) -> None:
        super().__init__()
        if shared and source[0] != target[0]:
            raise ValueError(
                f"one embedding cannot serve vocabularies of {source[0]} and {target[0]} symbols"
            )
        width, scale = form.width, form.width**0.5
        self.begin, self.end, self.limited = begin, end, positions == "learned"
        self.padding, self.target_padding, self.length = source[2], target[2], target[1]
        longest = max(source[1], target[1]) if shared else target[1]
        self.embed = Embed(nn.Embedding(target[0], width), width, longest, positions, scale=scale)
        self.source_embed: Embed | None = None
        if not shared:
            self.source_embed = Embed(
                nn.Embedding(source[0], width), width, source[1], positions, scale=scale
            )
        self.rotary = rotary(positions, max(source[1], target[1]), width, form.heads)
        self.encoder = Stack(layers, form)
        self.decoder = Stack(decoder_layers, form, width)
        self.pooled = Peg("pooled", width, "NLC")
        self.head = None if tied else nn.Linear(width, target[0], bias=False)
        self.logits = Peg("logits", target[0], "NLC")
        xavier(self)

    def _rotation(self, count: int, start: int = 0) -> Tensor | None:
        return None if self.rotary is None else self.rotary(count, start)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the encoder makes of the source, (rows, places, width), and the mask of who may look where."""
        lasts = lasting(source, self.padding)
        mask = None if lasts is None else key_mask(lasts)
        x = (self.source_embed or self.embed)(source, lasts)
        return self.encoder(x, mask, lasts, rotation=self._rotation(source.shape[1])), mask

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        context, mask = self.encode(source)
        lasts = lasting(target, self.target_padding)
        # Padding comes after the end of a target, where no place that counts looks: it needs no mask.
        x = self.decoder(
            self.embed(target, lasts),
            None,
            lasts,
            causal=True,
            rotation=self._rotation(target.shape[1]),
            context=context,
            context_mask=mask,
        )
        return self._score(x, lasts)

    def _score(self, x: Tensor, lasts: Tensor | None = None) -> Tensor:
        """Logits; the map to them is that from symbols where it is tied."""
        x = self.pooled(x, lasts)
        weight = self.embed.read.weight if self.head is None else self.head.weight
        assert isinstance(weight, Tensor)
        return self.logits(F.linear(x, weight), lasts)

    @torch.no_grad()
    def generate(
        self, source: Tensor, *others: Tensor, how: Decoding, generator: torch.Generator | None = None
    ) -> Tensor:
        """Symbols that answer each source, (rows, at most `how.length`); other inputs are not read."""
        from pegboard_generation import extend  # only who writes texts needs it

        context, mask = self.encode(source)
        state = {"past": None, "memory": self.decoder.remember(context), "mask": mask, "count": 0}
        first = torch.full((len(source),), self.begin, dtype=torch.long, device=source.device)
        logits, state = self._step(first, state)
        if self.limited:  # there is no position further on
            how = replace(how, length=min(how.length, self.length))
        return extend(self._step, logits, state, how, end=self.end, generator=generator)

    def _step(self, symbols: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """Logits after one more symbol of each row, (rows, vocab)."""
        count = state["count"]
        x, past = self.decoder.extend(
            self.embed(symbols.unsqueeze(1), None, count),
            past=state["past"],
            rotation=self._rotation(1, count),
            memory=state["memory"],
            memory_mask=state["mask"],
        )
        return self._score(x)[:, 0], state | {"past": past, "count": count + 1}

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Names of `nn.Transformer` to those of this model."""
        side = adoption.torch_names(state, "encoder.", r"(?:transformer\.)?encoder\.")
        return adoption.torch_names(side, "decoder.", r"(?:transformer\.)?decoder\.")
