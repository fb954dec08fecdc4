"""Decoder-only transformer (GPT): a language model that predicts each token from those before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pegboard import Decoding, Peg
from torch import Tensor, nn
from torch.nn import functional as F

from . import adoption
from .blocks import Form, Stack, causal_mask
from .embedding import Embed, lasting, rotary
from .initial import normal, shrink_branches


class Decoder(nn.Module):
    """Symbols (rows, length) to logits of the symbol after each place, (rows, length, vocab).

    With learned positions a sequence has at most `length` places. With others it may go on: a place then
    sees the last `length` places, itself among them. `padding` is the symbol that fills up texts behind their
    end, -1 for none, and `end` the one that ends them.
    """

    def __init__(
        self,
        vocab: int,
        length: int,
        layers: int,
        form: Form,
        *,
        positions: str = "learned",
        tied: bool = True,
        padding: int = -1,
        end: int = -1,
    ) -> None:
        super().__init__()
        self.length, self.padding, self.end = length, padding, end
        self.embed = Embed(nn.Embedding(vocab, form.width), form.width, length, positions)
        self.rotary = rotary(positions, length, form.width, form.heads)
        self.stack = Stack(layers, form)
        self.pooled = Peg("pooled", form.width, "NLC")
        self.head = None if tied else nn.Linear(form.width, vocab, bias=False)
        self.logits = Peg("logits", vocab, "NLC")
        self.limited = positions == "learned"  # to `length` places in all
        normal(self)
        shrink_branches(self.stack)

    def forward(self, tokens: Tensor) -> Tensor:
        lasts = lasting(tokens, self.padding)
        # Padding comes after the end of a text, where no place that counts looks: it needs no mask.
        x, how = self._places(tokens, lasts, None)
        return self._score(self.stack(x, **how), lasts)

    def _places(
        self, tokens: Tensor, lasts: Tensor | None, shift: Tensor | None
    ) -> tuple[Tensor, dict[str, Any]]:
        """What the stack reads of sequences from their start, each after `shift` (rows,) empty places."""
        count = tokens.shape[1]
        x = self.embed(tokens, lasts, 0, shift)
        rotation = None if self.rotary is None else self.rotary(count, 0, shift)
        how = {"lasts": lasts, "rotation": rotation}
        if shift is None and count <= self.length:
            return x, how | {"causal": True}
        window = None if count <= self.length else self.length
        seen = None if shift is None else lasts
        return x, how | {"mask": causal_mask(count, lasts=seen, window=window, device=tokens.device)}

    def _score(self, x: Tensor, lasts: Tensor | None = None) -> Tensor:
        """Logits; the map to them is that from symbols where it is tied."""
        x = self.pooled(x, lasts)
        weight = self.embed.read.weight if self.head is None else self.head.weight
        assert isinstance(weight, Tensor)
        return self.logits(F.linear(x, weight), lasts)

    @torch.no_grad()
    def generate(self, tokens: Tensor, *, how: Decoding, generator: torch.Generator | None = None) -> Tensor:
        """Symbols that continue each row, (rows, at most `how.length`)."""
        from pegboard_generation import extend  # only who writes texts needs it

        shift = None
        if self.padding >= 0:  # each text moved to the right, so that all go on at the same place
            count = tokens.shape[1]
            shift = count - (tokens != self.padding).sum(1)
            places = torch.arange(count, device=tokens.device) - shift.unsqueeze(1)
            tokens = tokens.gather(1, places.clamp(min=0))
        logits, state = self._begin(tokens, shift)
        return extend(self._step, logits, state, how, end=self.end, generator=generator)

    def _begin(self, tokens: Tensor, shift: Tensor | None) -> tuple[Tensor, dict[str, Any]]:
        if self.limited and tokens.shape[1] > self.length:
            if shift is not None:
                shift = (shift - (tokens.shape[1] - self.length)).clamp(min=0)
            tokens = tokens[:, -self.length :]
        lasts = None
        if shift is not None:
            lasts = torch.arange(tokens.shape[1], device=tokens.device) >= shift.unsqueeze(1)
        x, how = self._places(tokens, lasts, shift)
        x, cache = self.stack.extend(x, **how)
        state = {"tokens": tokens, "shift": shift, "cache": cache, "count": tokens.shape[1]}
        return self._score(x[:, -1:])[:, 0], state

    def _step(self, symbols: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """Logits after one more symbol of each row, (rows, vocab)."""
        tokens, shift, count = state["tokens"], state["shift"], state["count"]
        if self.limited:
            tokens = torch.cat((tokens, symbols.unsqueeze(1)), 1)
            if count == self.length:  # all positions are taken: every place moves, so nothing kept holds
                return self._begin(tokens, shift)
        kept = self.length - 1  # places before the new one that it sees
        past = [tuple(t[:, :, max(t.shape[2] - kept, 0) :] for t in pair) for pair in state["cache"]]
        seen = past[0][0].shape[2] + 1
        mask = None
        if shift is not None:
            places = torch.arange(count + 1 - seen, count + 1, device=symbols.device)
            mask = (places >= shift.unsqueeze(1))[:, None, None, :]
        x = self.embed(symbols.unsqueeze(1), None, count, shift)
        rotation = None if self.rotary is None else self.rotary(1, count, shift)
        x, cache = self.stack.extend(x, mask, past=past, rotation=rotation)
        state = {"tokens": tokens, "shift": shift, "cache": cache, "count": count + 1}
        return self._score(x)[:, 0], state

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Names of GPT-2, as Hugging Face has them, to those of this model."""
        return adoption.gpt2_names(state, tied=self.head is None)
