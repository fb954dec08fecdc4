"""A recurrent network that reads a text and one that writes another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from pegboard import Decoding, Peg, PegboardError, Tokens
from torch import Tensor, nn

from .attention import Additive
from .cells import Fused, State
from .model import Layer
from .reading import ReadTokens, last_places


class Read(NamedTuple):
    """What the decoder is given of a source."""

    summary: Tensor  # (batch, layers, hidden): where the encoder ends
    memory: Tensor | None = None  # (batch, places, hidden): what it gave out, for attention
    keys: Tensor | None = None  # the same as attention compares it
    mask: Tensor | None = None  # (batch, places), true where the source lasts


class Encoder(nn.Module):
    """Recurrent layers over a whole text; where they read it from both ends, each end has half the width."""

    def __init__(self, read: ReadTokens, cell: str, hidden: int, layers: int, bidirectional: bool) -> None:
        super().__init__()
        self.read, each = read, hidden // 2 if bidirectional else hidden
        sizes = [read.width, *[hidden] * (layers - 1)]
        back = [Fused(cell, size, each) if bidirectional else None for size in sizes]
        self.layers = nn.ModuleList(Layer(Fused(cell, n, each), b) for n, b in zip(sizes, back, strict=True))

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the last layer gives out, where each layer ends (batch, layers, hidden), and the mask."""
        x, mask = self.read(source)
        ends = []
        for layer in self.layers:
            assert isinstance(layer, Layer)
            out, _ = layer.recur(x, None, mask)
            ends.append(self._end(out, layer, mask))
            x = layer.hidden(out, mask)
        return x, torch.stack(ends, 1), mask

    def _end(self, out: Tensor, layer: Layer, mask: Tensor | None) -> Tensor:
        """The last output of each direction; that of the second is at the first place."""
        if mask is None:
            end = out[:, -1]
        else:
            end = out[torch.arange(len(out), device=out.device), last_places(mask)]
        if layer.back is None:
            return end
        half = out.shape[-1] // 2
        return torch.cat((end[:, :half], out[:, 0, half:]), -1)


class Decoder(nn.Module):
    """Recurrent layers that begin in given states."""

    def __init__(self, read: ReadTokens, cell: str, hidden: int, layers: int) -> None:
        super().__init__()
        self.read = read
        sizes = [read.width, *[hidden] * (layers - 1)]
        self.layers = nn.ModuleList(Layer(Fused(cell, size, hidden), None) for size in sizes)

    def forward(self, symbols: Tensor, states: Sequence[State]) -> tuple[Tensor, list[State], Tensor | None]:
        """What the last layer gives out for symbols (batch, steps), the states after them, and the mask."""
        x, mask = self.read(symbols)
        after = []
        for layer, state in zip(self.layers, states, strict=True):
            x, state = layer(x, state, mask)
            after.append(state)
        return x, after, mask


class Seq2Seq(nn.Module):
    """Encoder and decoder: `model(source, shifted)` gives logits (batch, length, outputs) of the target.

    `source` and `target` say what both inputs hold, of which the second is the target a step later, behind
    the symbol that begins it; `end` is the symbol that ends it. The decoder starts where the encoder ended.
    With attention it looks, from its state before each symbol, at all that the encoder gave out, to choose
    that symbol. What it sees does not enter its recurrence, so that all steps of a known target are one call.
    """

    def __init__(
        self,
        source: Tokens,
        target: Tokens,
        outputs: int,
        *,
        end: int = -1,
        cell: str = "gru",
        hidden: int = 256,
        layers: int = 1,
        embedding: int | None = None,
        bidirectional: bool = True,
        attention: bool = True,
        teacher_forcing: float = 1.0,
    ) -> None:
        super().__init__()
        if source.vocab is None or target.vocab is None:
            raise PegboardError(f"seq2seq needs to know how many symbols there are: {source}, {target}")
        if bidirectional and hidden % 2:
            raise ValueError(f"hidden {hidden} is odd, and the two directions share it")
        self.begin, self.end, self.teacher_forcing = target.begin, end, teacher_forcing
        size = hidden if embedding is None else embedding
        read, write = (
            ReadTokens(source.vocab, size, source.padding),
            ReadTokens(target.vocab, size, target.padding),
        )
        self.encoder = Encoder(read, cell, hidden, layers, bidirectional)
        self.decoder = Decoder(write, cell, hidden, layers)
        # What an lstm keeps where a text ended is not among its outputs: the decoder's starts from a map.
        kept = layers if cell == "lstm" else 0
        self.keep = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(kept))
        self.attention = Additive(hidden, hidden, hidden) if attention else None
        self.join = nn.Linear(2 * hidden, hidden) if attention else None
        if attention:
            self.affine, self.hidden = Peg("affine", hidden, "NLC"), Peg("hidden", hidden, "NLC")
        self.head = nn.Linear(hidden, outputs)
        self.logits = Peg("logits", outputs, "NLC")

    def read(self, source: Tensor) -> Read:
        """What the decoder needs of sources (batch, places); without attention nothing but the summary."""
        memory, summary, mask = self.encoder(source)
        if self.attention is None:
            return Read(summary)
        return Read(summary, memory, self.attention.key(memory), mask)

    def start(self, summary: Tensor) -> list[State]:
        """The states of the decoder before its first step."""
        ends = summary.unbind(1)
        if not self.keep:
            return [(h,) for h in ends]
        return [(h, keep(h)) for h, keep in zip(ends, self.keep, strict=True)]

    def write(self, symbols: Tensor, states: Sequence[State], source: Read) -> tuple[Tensor, list[State]]:
        """Logits of what follows each of the symbols (batch, steps), and the states behind the last."""
        z, after, mask = self.decoder(symbols, states)
        if self.attention is not None and self.join is not None:
            seen = self.attention(z, source.memory, source.keys, source.mask)
            joined = self.affine(self.join(torch.cat((z, seen), -1)), mask)
            z = self.hidden(torch.tanh(joined), mask)
        return self.logits(self.head(z), mask), after

    def forward(self, source: Tensor, shifted: Tensor) -> Tensor:
        read = self.read(source)
        states = self.start(read.summary)
        if self.training and self.teacher_forcing < 1:
            shifted = self._own(shifted, states, read)
        return self.write(shifted, states, read)[0]

    def _own(self, shifted: Tensor, states: Sequence[State], read: Read) -> Tensor:
        """The target with some symbols as the model guesses them from the true ones before, all at once."""
        with torch.no_grad():
            guesses = self.write(shifted, states, read)[0].argmax(-1)
        own = torch.rand(shifted.shape, device=shifted.device) >= self.teacher_forcing
        own[:, 0] = False
        padding = self.decoder.read.padding
        if padding >= 0:
            own = own & (shifted != padding)
        return torch.where(own, guesses.roll(1, 1), shifted)

    @torch.no_grad()
    def align(self, source: Tensor, shifted: Tensor) -> Tensor:
        """How much each step of a target looks at each place of its source: (batch, steps, places)."""
        if self.attention is None:
            raise PegboardError("this seq2seq looks nowhere: it was built with attention: none")
        read = self.read(source)
        z, _, _ = self.decoder(shifted, self.start(read.summary))
        return self.attention.weights(z, cast(Tensor, read.keys), read.mask)

    @torch.no_grad()
    def generate(
        self, source: Tensor, *others: Tensor, how: Decoding, generator: torch.Generator | None = None
    ) -> Tensor:
        """What it writes for sources, as `Decoding` says; other inputs are not read."""
        from pegboard_generation import extend  # only who writes texts needs it

        read = self.read(source)

        def step(symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
            states, read = state
            logits, states = self.write(symbols.unsqueeze(1), states, Read(*read))
            return logits[:, 0], (states, read)

        first = source.new_full((len(source),), self.begin)
        logits, state = step(first, (self.start(read.summary), tuple(read)))
        return extend(step, logits, state, how, end=self.end, generator=generator)
