"""Texts symbol by symbol: drawn, the likeliest, or by a search over several at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pegboard import Decoding
from torch import Tensor

# (symbols (rows,), state) -> logits of the next ones (rows, vocab), state. A state is any nesting of tuples,
# lists and dicts of tensors whose first axis counts rows, as the keys and values of attention.
Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


def extend(
    step: Step,
    logits: Tensor,
    state: Any,
    how: Decoding,
    *,
    end: int = -1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The symbols that follow, (rows, length), where `logits` (rows, vocab) are of the first of them.

    After a symbol `end` a row has no other, and once all rows have one it stops, unless `how.whole`.
    """
    if how.beams > 1:
        return beam_search(step, logits, state, how, end=end)
    chosen: list[Tensor] = []
    ended = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
    for place in range(how.length):
        symbols = pick(logits, how, generator)
        if end >= 0:
            symbols = torch.where(ended, end, symbols)
            ended = ended | (symbols == end)
        chosen.append(symbols)
        if place == how.length - 1 or (end >= 0 and not how.whole and bool(ended.all())):
            break
        logits, state = step(symbols, state)
    return torch.stack(chosen, 1)


UNITS = 2**40  # parts of a probability


def pick(logits: Tensor, how: Decoding, generator: torch.Generator | None = None) -> Tensor:
    """One symbol for each row of logits (rows, vocab)."""
    if how.temperature == 0:
        return logits.argmax(-1)
    chances = torch.softmax(logits.float() / how.temperature, -1)
    if how.top_k is not None and how.top_k < chances.shape[-1]:
        least = chances.topk(how.top_k, -1).values[:, -1:]
        chances = chances.masked_fill(chances < least, 0.0)
    if how.top_p is not None and how.top_p < 1:
        ranked, order = torch.sort(chances, dim=-1, descending=True, stable=True)
        ranked = ranked / ranked.sum(-1, keepdim=True)
        # A symbol is left out where those before it reach the share already; so the first never is.
        # Summed as whole numbers, for which cumsum has a deterministic kernel on CUDA.
        units = (ranked * UNITS).long()
        ranked = ranked.masked_fill(units.cumsum(-1) - units >= max(round(how.top_p * UNITS), 1), 0.0)
        chances = torch.zeros_like(chances).scatter(-1, order, ranked)
    return torch.multinomial(chances, 1, generator=generator).squeeze(-1)


def beam_search(step: Step, logits: Tensor, state: Any, how: Decoding, *, end: int = -1) -> Tensor:
    """The likeliest of the texts followed, (rows, length), with arguments as those of `extend`.

    Of all continuations of a row's texts the best `beams` are followed, by the sum of log-probabilities
    divided by the length to the power `how.length_penalty`; a text that has ended keeps its score.
    """
    rows, vocab, beams = len(logits), logits.shape[-1], how.beams
    device = logits.device
    first = torch.log_softmax(logits.float(), -1)
    sums, symbols = first.topk(min(beams, vocab), -1)  # (rows, beams)
    width = sums.shape[1]
    if width < beams:  # fewer symbols than beams: some begin as impossible
        sums = torch.nn.functional.pad(sums, (0, beams - width), value=-torch.inf)
        symbols = torch.nn.functional.pad(symbols, (0, beams - width))
    texts = symbols.unsqueeze(-1)  # (rows, beams, length)
    ended = symbols == end
    lengths = torch.ones_like(sums)
    each = torch.arange(rows, device=device).repeat_interleave(beams)
    state = _rows(state, each)
    for _ in range(how.length - 1):
        if end >= 0 and not how.whole and bool(ended.all()):
            break
        logits, state = step(texts[:, :, -1].reshape(-1), state)
        more = torch.log_softmax(logits.float(), -1).view(rows, beams, vocab)
        if end >= 0:  # an ended text goes on in one way, at no cost
            stay = torch.full((vocab,), -torch.inf, device=device)
            stay[end] = 0.0
            more = torch.where(ended.unsqueeze(-1), stay, more)
        totals = sums.unsqueeze(-1) + more
        reach = lengths + (~ended).to(lengths.dtype)
        scores = totals / reach.unsqueeze(-1) ** how.length_penalty
        best = scores.flatten(1).topk(beams, -1).indices
        origin, symbols = best // vocab, best % vocab
        sums = totals.flatten(1).gather(1, best)
        lengths, ended = reach.gather(1, origin), ended.gather(1, origin) | (symbols == end)
        texts = torch.cat((texts.gather(1, origin.unsqueeze(-1).expand_as(texts)), symbols.unsqueeze(-1)), -1)
        flat = (origin + torch.arange(rows, device=device).unsqueeze(1) * beams).reshape(-1)
        state = _rows(state, flat)
    winner = (sums / lengths**how.length_penalty).argmax(1)
    return texts[torch.arange(rows, device=device), winner]


def _rows(state: Any, index: Tensor) -> Any:
    if isinstance(state, Tensor):
        return state.index_select(0, index)
    if isinstance(state, dict):
        return {key: _rows(value, index) for key, value in state.items()}
    if isinstance(state, list | tuple):
        found = [_rows(value, index) for value in state]
        return type(state)(*found) if hasattr(state, "_fields") else type(state)(found)
    return state
