"""Pieces for a unigram language model of words (Kudo 2018), found by expectation maximisation.

Everything goes through words and pieces in sorted order, so that the result is the same every time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

Scores = dict[str, float]  # log-probability of each piece

LONGEST = 16  # letters in a piece
SEEDS = 10  # pieces to begin with, as a multiple of those wanted
KEPT = 0.75  # share of the pieces that survives a round of pruning
ROUNDS = 2  # steps of expectation maximisation between two prunings
RARE = 0.5  # a piece with a smaller expected count is dropped


def train_unigram(words: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """At most `size` pieces with their log-probabilities, the likeliest first; all letters stay."""
    counted = sorted(words.items())
    scores = _seeds(counted, SEEDS * size)
    while True:
        for _ in range(ROUNDS):
            scores = _maximise(_expected(counted, scores))
        if len(scores) <= size or all(len(piece) == 1 for piece in scores):
            break
        scores = _prune(counted, scores, max(size, int(KEPT * len(scores))))
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _seeds(words: list[tuple[str, int]], most: int) -> Scores:
    counts: Counter[str] = Counter()
    for word, count in words:
        for i in range(len(word)):
            for j in range(i + 1, min(i + LONGEST, len(word)) + 1):
                counts[word[i:j]] += count
    longer = [p for p, count in counts.items() if len(p) > 1 and count > 1]
    longer.sort(key=lambda p: (-counts[p] * len(p), p))
    letters = sorted(p for p in counts if len(p) == 1)
    kept = letters + longer[: max(most - len(letters), 0)]
    total = sum(counts[p] for p in kept)
    return {p: math.log(counts[p] / total) for p in kept}


def _expected(words: list[tuple[str, int]], scores: Scores) -> dict[str, float]:
    """How often each piece occurs, expected over all ways to cut the words."""
    expected = dict.fromkeys(scores, 0.0)
    chance = {piece: math.exp(score) for piece, score in scores.items()}
    for word, count in words:
        n = len(word)
        edges = [
            (i, j, p, chance[p])
            for i in range(n)
            for j in range(i + 1, min(i + LONGEST, n) + 1)
            if (p := word[i:j]) in chance
        ]
        before, after = [1.0, *[0.0] * n], [*[0.0] * n, 1.0]
        for i, j, _, c in edges:
            before[j] += before[i] * c
        for i, j, _, c in reversed(edges):
            after[i] += after[j] * c
        if before[n] > 0:  # a word of many rare letters can be too unlikely for a float
            weight = count / before[n]
            for i, j, piece, c in edges:
                expected[piece] += weight * before[i] * c * after[j]
    return expected


def _maximise(expected: dict[str, float]) -> Scores:
    kept = {p: c for p, c in expected.items() if c >= RARE or len(p) == 1}
    total = sum(kept.values())
    # A letter that longer pieces always cover keeps a small chance, so that any word can be cut.
    return {p: math.log(max(c, RARE) / total) for p, c in kept.items()}


def _prune(words: list[tuple[str, int]], scores: Scores, most: int) -> Scores:
    """Without the pieces whose loss would cost the text's likelihood least."""
    uses: Counter[str] = Counter()
    for word, count in words:
        for piece in _best(word, scores):
            uses[piece] += count
    cost = {}
    for piece, score in scores.items():
        if len(piece) > 1:
            instead = sum(scores[p] for p in _best(piece, scores, without=piece))
            cost[piece] = uses[piece] * (score - instead)
    letters = {p for p in scores if len(p) == 1}
    longer = sorted(cost, key=lambda p: (-cost[p], p))[: max(most - len(letters), 0)]
    kept = letters | set(longer)
    return {p: s for p, s in scores.items() if p in kept}


def _best(word: str, scores: Scores, without: str = "") -> list[str]:
    """The likeliest cut of a word."""
    n = len(word)
    best = [0.0, *[-math.inf] * n]
    start = [0] * (n + 1)
    for j in range(1, n + 1):
        for i in range(max(0, j - LONGEST), j):
            piece = word[i:j]
            if piece in scores and piece != without and best[i] + scores[piece] > best[j]:
                best[j], start[j] = best[i] + scores[piece], i
    pieces, j = [], n
    while j > 0:
        pieces.append(word[start[j] : j])
        j = start[j]
    return pieces
