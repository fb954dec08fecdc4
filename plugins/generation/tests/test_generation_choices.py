"""Choosing symbols: against enumeration of every text, and against frequencies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from pegboard import Decoding
from pegboard_generation import beam_search, extend, pick
from torch import Tensor

VOCAB, END = 4, 0


def chain(rows: int, seed: int = 0) -> tuple[Callable[[Tensor, Any], tuple[Tensor, Any]], Tensor, Any]:
    """A text whose next symbol depends on the last two, with tables of its own for every row."""
    table = torch.randn(rows, VOCAB, VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2

    def step(symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        tables, last = state["tables"], state["last"]
        place = torch.arange(len(symbols))
        return tables[place, last, symbols], {"tables": tables, "last": symbols}

    first = table[:, 0, 0]
    return step, first, {"tables": table, "last": torch.zeros(rows, dtype=torch.int64)}


def log_chances(rows: int, texts: Tensor, seed: int = 0) -> Tensor:
    """The log-probability of each text (rows, length) up to its first end, step by step."""
    step, logits, state = chain(rows, seed)
    total, ended = torch.zeros(rows), torch.zeros(rows, dtype=torch.bool)
    for symbols in texts.T:
        found = torch.log_softmax(logits, -1).gather(1, symbols.unsqueeze(1)).squeeze(1)
        total = total + torch.where(ended, 0.0, found)
        ended = ended | (symbols == END)
        logits, state = step(symbols, state)
    return total


def every_text(length: int) -> list[tuple[int, ...]]:
    """All texts in which nothing but the end follows an end."""
    found = []
    for text in product(range(VOCAB), repeat=length):
        at = text.index(END) if END in text else length
        if all(s == END for s in text[at:]):
            found.append(text)
    return found


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_texts(penalty: float) -> None:
    rows, length = 3, 4
    texts = every_text(length)
    scores = []
    for text in texts:
        size = text.index(END) + 1 if END in text else length
        scores.append(log_chances(rows, torch.tensor([text] * rows)) / size**penalty)
    best = torch.stack(scores).argmax(0)
    how = Decoding(length=length, beams=len(texts), length_penalty=penalty)
    found = extend(*chain(rows), how, end=END)
    for row in range(rows):
        text = found[row].tolist() + [END] * (length - found.shape[1])
        assert tuple(text) == texts[int(best[row])]


def test_more_beams_never_find_a_less_likely_text_here_and_one_beam_is_greedy() -> None:
    rows, length = 8, 6
    greedy = extend(*chain(rows), Decoding(length=length, temperature=0, whole=True), end=END)
    step, logits, state = chain(rows)
    narrow = beam_search(step, logits, state, Decoding(length=length, beams=1), end=END)
    assert torch.equal(greedy[:, : narrow.shape[1]], narrow)
    step, logits, state = chain(rows)
    wide = beam_search(step, logits, state, Decoding(length=length, beams=32), end=END)
    assert (log_chances(rows, wide) >= log_chances(rows, greedy) - 1e-6).all()


def test_nothing_follows_an_end_and_it_stops_once_all_have_ended() -> None:
    def step(symbols: Tensor, state: int) -> tuple[Tensor, int]:
        logits = torch.full((2, VOCAB), -100.0)
        logits[0, END if state == 1 else 1] = 100.0
        logits[1, END if state == 3 else 2] = 100.0
        return logits, state + 1

    first = torch.tensor([[0.0, 9, 0, 0], [0.0, 0, 9, 0]])
    found = extend(step, first, 0, Decoding(length=20, temperature=0), end=END)
    assert found.tolist() == [[1, 1, END, END, END], [2, 2, 2, 2, END]]
    whole = extend(step, first, 0, Decoding(length=7, temperature=0, whole=True), end=END)
    assert whole.shape == (2, 7)


def test_draws_follow_the_probabilities_with_temperature_top_k_and_top_p() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0]).expand(20000, 4)

    def shares(how: Decoding) -> Tensor:
        drawn = pick(logits, how, torch.Generator().manual_seed(0))
        return torch.bincount(drawn, minlength=4) / len(drawn)

    expected = torch.softmax(logits[0] / 0.7, -1)
    assert torch.allclose(shares(Decoding(temperature=0.7)), expected, atol=0.015)
    two = torch.softmax(logits[0, :2], -1)
    assert torch.allclose(shares(Decoding(top_k=2)), torch.cat((two, torch.zeros(2))), atol=0.015)
    # Chances are 0.64, 0.24, 0.09, 0.03: the first two do not reach 0.9, the first three do.
    three = torch.softmax(logits[0, :3], -1)
    assert torch.allclose(shares(Decoding(top_p=0.9)), torch.cat((three, torch.zeros(1))), atol=0.015)
    assert shares(Decoding(top_p=0.01)).tolist() == [1.0, 0, 0, 0]
    assert shares(Decoding(top_p=1e-15)).tolist() == [1.0, 0, 0, 0]
    again = [pick(logits, Decoding(), torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(again[0], again[1])


def test_a_share_of_the_likeliest_is_summed_by_what_cuda_has_a_deterministic_kernel_for() -> None:
    from pegboard.preview.determinism import scanning

    with scanning() as found:
        pick(torch.randn(8, 50, generator=torch.Generator().manual_seed(0)), Decoding(top_p=0.9))
    assert not list(found)
