"""How many samples the splits of embedded and made data sets have. No torch at import."""

from __future__ import annotations

from .options import BreastCancer, Diabetes, Digits, Iris, Shares, Wine

Sizes = tuple[int, int, int]  # of train, val and test

EMBEDDED = {Digits: 1797, Iris: 150, Wine: 178, BreastCancer: 569, Diabetes: 442}


def total(config: Shares) -> int:
    """Samples in all splits together."""
    found = EMBEDDED.get(type(config), getattr(config, "samples", None))
    if found is None:  # a quartet of no stated size
        found = 11 if getattr(config, "kind", "") in ("anscombe", "cloud") else 142
    return int(found)


def sizes(config: Shares, fold: tuple[int, int] | None = None) -> Sizes:
    """Samples in train, val and test, cut as `splitting.cut` does."""
    count = total(config)
    test, val = round(count * config.test), round(count * config.val)
    if fold is not None:
        (number, folds), rest = fold, count - test
        val = rest * (number + 1) // folds - rest * number // folds
    train = max(count - test - val, 0)
    return (train if config.limit is None else min(train, config.limit)), val, test
