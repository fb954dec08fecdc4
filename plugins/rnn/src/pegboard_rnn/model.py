"""Recurrent networks as ordinary modules."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import torch
from pegboard import Decoding, Peg, PegboardError, Spec, Tokens
from torch import Tensor, nn

from .cells import Cell, State
from .reading import ReadTokens, last_places, make_reader, turned

States = tuple[State, ...]  # of all layers


class Layer(nn.Module):
    """A cell, and one that reads from the end where there is one; both outputs stand side by side."""

    def __init__(self, cell: Cell, back: Cell | None) -> None:
        super().__init__()
        self.cell, self.back = cell, back
        self.width = cell.hidden + (back.hidden if back is not None else 0)
        self.hidden = Peg("hidden", self.width, "NLC")

    def recur(self, x: Tensor, state: State | None, mask: Tensor | None) -> tuple[Tensor, State]:
        """The outputs of both directions; the state is that of the first."""
        out, state = self.cell(x, state, mask)
        if self.back is not None:
            out = torch.cat((out, turned(self.back(turned(x, mask), None, mask)[0], mask)), -1)
        return out, state

    def forward(
        self, x: Tensor, state: State | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        out, state = self.recur(x, state, mask)
        return self.hidden(out, mask), state


class Block(Layer):
    """A layer with a residual around it: x + glu(W gelu(layer(norm(x))))."""

    def __init__(self, cell: Cell, back: Cell | None) -> None:
        super().__init__(cell, back)
        width = cell.hidden
        self.affine = Peg("affine", width, "NLC", norm=nn.LayerNorm(width))
        self.mix = nn.Linear(self.width, 2 * width)
        self.residual = Peg("residual", width, "NLC")
        self.width = width

    def forward(
        self, x: Tensor, state: State | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        out, state = self.recur(self.affine(x, mask), state, mask)
        out = self.hidden(nn.functional.gelu(out), mask)
        return x + self.residual(nn.functional.glu(self.mix(out), -1), mask), state


class Rnn(nn.Module):
    """A recurrent network: samples as `spec` says to (batch, outputs), or where it predicts `each_step`, to
    (batch, length, outputs).

    `make(inputs)` gives a cell that reads so many features a step, `layers` times and for both directions.
    With `block` cells stand in residual blocks behind an affine map of the input. Outputs of steps after a
    sample's end mean nothing.
    """

    def __init__(
        self,
        spec: Spec,
        outputs: int,
        make: Callable[[int], Cell],
        *,
        hidden: int,
        layers: int = 1,
        bidirectional: bool = False,
        block: bool = False,
        each_step: bool = False,
        pool: str = "last",
        image: str = "rows",
        embedding: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.spec, self.each_step, self.pool, self.bidirectional = spec, each_step, pool, bidirectional
        self.read = make_reader(spec, image, hidden if embedding is None else embedding)
        width = self.read.width
        self.enter = nn.Linear(width, hidden) if block else None
        width = hidden if block else width
        found: list[Layer] = []
        for _ in range(layers):
            found.append((Block if block else Layer)(make(width), make(width) if bidirectional else None))
            width = found[-1].width
        self.layers = nn.ModuleList(found)
        self.pooled = None if each_step else Peg("pooled", width)
        self.head = nn.Linear(width, outputs, bias=bias)
        self.logits = Peg("logits", outputs, "NLC" if each_step else "NC")

    def states(self, x: Tensor, before: States | None = None) -> tuple[Tensor, States, Tensor | None]:
        """Outputs of the last layer for all steps, the states after the last step, and the mask."""
        h, mask = self.read(x)
        if self.enter is not None:
            h = self.enter(h)
        after = []
        for at, layer in enumerate(self.layers):
            h, state = layer(h, None if before is None else before[at], mask)
            after.append(state)
        return h, tuple(after), mask

    def forward(self, x: Tensor) -> Tensor:
        h, _, mask = self.states(x)
        if self.pooled is not None:
            h = self.pooled(self._pool(h, mask))
            mask = None
        return self.logits(self.head(h), mask)

    def _pool(self, h: Tensor, mask: Tensor | None) -> Tensor:
        """One vector for each sample: the mean over its steps, or its last state in each direction."""
        if self.pool == "mean":
            if mask is None:
                return h.mean(1)
            counts = mask.sum(1, keepdim=True).clamp_min(1)
            return h.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1) / counts
        if mask is None:
            last = h[:, -1]
        else:
            last = h[torch.arange(len(h), device=h.device), last_places(mask)]
        if not self.bidirectional or self.enter is not None:  # a block mixes both directions at every step
            return last
        half = h.shape[-1] // 2
        return torch.cat((last[:, :half], h[:, 0, half:]), -1)  # the other direction ends at the first step

    def step(self, x: Tensor, before: States | None = None) -> tuple[Tensor, States]:
        """One step of every sample, as (batch,) symbols or (batch, features): its outputs, and the states."""
        h, after, _ = self.states(x.unsqueeze(1), before)
        return self.logits(self.head(h))[:, 0], after

    def generate(self, x: Tensor, *, how: Decoding, generator: torch.Generator | None = None) -> Tensor:
        """Symbols that continue the texts x (batch, length): read at once, then a step for each symbol."""
        from pegboard_generation import extend  # only who writes texts needs it

        spec = self.spec
        same = isinstance(spec, Tokens) and spec.vocab == self.head.out_features
        if not same or not self.each_step or self.bidirectional:
            raise PegboardError(
                f"this rnn does not continue texts: it reads {spec} and predicts no next symbol.\n"
                "Train one on text whose target is the text a step further."
            )
        if not x.shape[1]:
            raise PegboardError("there is no text to continue: give at least one symbol.")
        with torch.no_grad():
            logits, states = self._prompt(x)
            end = spec.end if isinstance(spec, Tokens) else -1
            return extend(self.step, logits, states, how, end=end, generator=generator)

    def _prompt(self, x: Tensor) -> tuple[Tensor, States]:
        """The logits after a text, and the states."""
        padding = cast(ReadTokens, self.read).padding
        shared = x.shape[1] if padding < 0 else max(1, int((x != padding).sum(1).min()))
        h, states, _ = self.states(x[:, :shared])
        logits = self.logits(self.head(h[:, -1:]))[:, 0]
        states = _each(states, torch.clone)  # for a part of a tensor keeps all of it in memory
        for symbols in x[:, shared:].unbind(1):  # a text that has ended keeps its state
            logits, states = _choose(symbols != padding, self.step(symbols, states), (logits, states))
        return logits, states

    def adopt(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights of `nn.RNN`, `nn.LSTM` and `nn.GRU`, of any number of layers, by their names here."""
        pattern = re.compile(r"(?:.*\.)?((?:weight|bias)_(?:ih|hh))_l(\d+)(_reverse)?")

        def renamed(name: str) -> str:
            if name.startswith("layers.") or not (found := pattern.fullmatch(name)):
                return name
            kind, layer, reverse = found.groups()
            return f"layers.{layer}.{'back' if reverse else 'cell'}.kernel.{kind}_l0"

        return {renamed(name): value for name, value in state.items()}


def _each(states: States, act: Callable[[Tensor], Tensor]) -> States:
    return tuple(tuple(act(part) for part in state) for state in states)


def _choose(rows: Tensor, one: Any, other: Any) -> Any:
    """Of two nests of tensors that are alike the rows of the first, or of the second."""
    if isinstance(one, Tensor):
        return torch.where(rows.view(-1, *[1] * (one.dim() - 1)), one, other)
    return tuple(_choose(rows, a, b) for a, b in zip(one, other, strict=True))
