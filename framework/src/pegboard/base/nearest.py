"""Which of the valid names a person meant by a word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable

CUTOFF = 0.6

# What people call the core's own keys and values; the second word counts only where it is valid.
SYNONYMS = {
    "_base_": "extends", "inherit": "extends", "defaults": "extends", "include": "extends",
    "network": "model", "net": "model", "architecture": "model", "arch": "model", "backbone": "model",
    "loss": "objective", "criterion": "objective", "loss_fn": "objective", "task": "objective",
    "dataset": "data", "datasets": "data", "datamodule": "data",
    "logger": "trackers", "loggers": "trackers", "logging": "trackers",
    "tricks": "regularizers", "regularization": "regularizers", "callbacks": "regularizers",
    "train": "trainer", "training": "trainer", "scheduler": "schedule", "lr_scheduler": "schedule",
    "random_seed": "seed", "random_state": "seed", "manual_seed": "seed", "title": "name",
    "type": "name", "class": "name", "kind": "name", "_target_": "name", "id": "name",
    "iterations": "steps", "iters": "steps", "updates": "steps", "checkpoint": "weights",
    "amp": "precision", "dtype": "precision", "accelerator": "device", "metric": "monitor",
    "gpu": "cuda", "metal": "mps", "half": "fp16", "float16": "fp16", "bfloat16": "bf16",
    "float32": "fp32", "16": "fp16", "32": "fp32",
    "full": "fp32", "single": "fp32", "up": "max", "down": "min",
    "higher": "max", "lower": "min",
}  # fmt: skip


def nearest(word: str, names: Iterable[str], count: int = 3) -> list[str]:
    """The names most like a word, the likeliest first; case, dashes and underscores do not count."""
    scored = [(score(word, name), name) for name in sorted(set(names))]
    close = sorted((s for s in scored if s[0] >= CUTOFF), key=lambda s: -s[0])
    return [name for _, name in close[:count]]


def meant(word: str, names: Iterable[str], given: Container[str]) -> list[str]:
    """The names most like a word; one that is already given only where it is clearly more like it."""
    every = nearest(word, names := list(names))
    free = nearest(word, [n for n in names if n not in given])
    return free if free and score(word, every[0]) - score(word, free[0]) < 0.1 else every


def score(word: str, name: str) -> float:
    """How likely `word` was written for `name`, from 0 to 1."""
    word, name = word[:80], name[:80]
    a, b = _plain(word), _plain(name)
    if not a or not b:
        return 0.0
    if a == b:
        return 1.0
    if SYNONYMS.get(word.lower()) == name:
        return 0.95
    if a.rstrip("s") == b.rstrip("s"):
        return 0.94
    longest = max(len(a), len(b))
    typing = 1 - _edits(a, b) / longest
    if sorted(a) == sorted(b):  # letters swapped
        typing = max(typing, 0.8)
    ratio = difflib.SequenceMatcher(None, a, b).ratio() if longest > 3 else 0.0
    whole = max(typing, ratio - 0.1, _short_form(word, name))
    last = re.split(r"[./]", word)[-1]  # torch.optim.Name
    return whole if last == word or "." in name else max(whole, score(last, name) - 0.01)


def _short_form(word: str, name: str) -> float:
    """Scores of abbreviations: initials, shared words, a beginning."""
    ours, theirs = _tokens(word), _tokens(name)
    a, b = _plain(word), _plain(name)
    for one, other in ((a, theirs), (b, ours)):
        if len(other) > 1 and one == "".join(t[0] for t in other):
            return 0.85
    shared = {t.rstrip("s") for t in ours} & {t.rstrip("s") for t in theirs}
    if shared and (len(shared) == len(theirs) or len(shared) == len(ours)):
        first = 0.02 * (a[: len(b)] == b)  # `warmup_steps` is about warmup
        return 0.75 + 0.1 * len(shared) / max(len(ours), len(theirs)) + first
    if len(b) == 1 and a.startswith(b):
        return 0.62
    short, long = sorted((a, b), key=len)
    if len(short) >= 2 and long.startswith(short):
        return 0.7 + 0.1 * len(short) / len(long)
    if any(len(t) > 2 and b.startswith(t) for t in ours):
        return 0.65
    if any(_stem(t, u) >= 5 for t in ours for u in theirs if len(theirs) == 1):
        return 0.62
    return 0.0


def _stem(a: str, b: str) -> int:
    """How many letters two words have in common at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9.:/]", "", text.lower())


def _tokens(text: str) -> list[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    return [t for t in re.split(r"[^a-z0-9]+", spaced.lower()) if t]


def _edits(a: str, b: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours that turn one into the other."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], before[j - 2] + 1)
        before, last = last, row
    return last[-1]
