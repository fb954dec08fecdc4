"""Data sets of sequences for tests, for `plugins: {local: [...]}`: letters, parities and waves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pegboard import Codec, Context, Dataset, DataSpec, Series, Splits, Tokens, hookimpl

LETTERS = "abcd"


@dataclass(frozen=True)
class Turns:
    """A text in which four letters take turns, and its next letters."""

    length: int = 8  # letters of a sample


def turns_spec(config: Turns) -> DataSpec:
    tokens = Tokens(len(LETTERS), config.length)
    return DataSpec((tokens,), tokens, ("text",))


def turns_codec(config: Turns, folder: Path | None = None) -> Codec:
    import torch

    def encode(table: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
        return (torch.tensor([[LETTERS.index(c) for c in str(text)] for text in table["text"]]),)

    def decode(symbols: Any) -> list[str]:
        return ["".join(LETTERS[s] for s in row) for row in symbols.tolist()]

    return Codec(encode, ("text",), decode)


def turns(config: Turns, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    rows = (torch.arange(64).unsqueeze(1) + torch.arange(config.length + 1)) % len(LETTERS)
    source = Resident([rows[:, :-1]], rows[:, 1:])
    return Splits(spec=turns_spec(config), train=source, val=source, **turns_codec(config)._asdict())


@dataclass(frozen=True)
class Parities:
    """Ones and twos of different lengths, and at every place whether the twos so far are even or odd."""

    length: int = 8  # symbols of the longest sample
    samples: int = 400  # to train on, and a quarter as many for the test


def parities_spec(config: Parities) -> DataSpec:
    return DataSpec((Tokens(3, config.length, 0),), Tokens(3, config.length, 0))


def parities(config: Parities, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    generator, count = torch.Generator().manual_seed(0), config.samples + config.samples // 4
    bits = torch.randint(2, (count, config.length), generator=generator)
    over = torch.arange(config.length) >= torch.randint(1, config.length + 1, (count, 1), generator=generator)
    x, y = (bits + 1).masked_fill(over, 0), (bits.cumsum(1) % 2 + 1).masked_fill(over, 0)
    train, test = (Resident([x[part]], y[part]) for part in torch.arange(count).split(config.samples))
    return Splits(spec=parities_spec(config), train=train, val=test, test=test)


@dataclass(frozen=True)
class Waves:
    """Two waves that are a quarter of a turn apart, of different lengths, and their next values."""

    length: int = 12  # steps of the longest sample


def waves_spec(config: Waves) -> DataSpec:
    return DataSpec((Series(config.length, 2, True),), Series(config.length, 2, True))


def waves(config: Waves, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    generator = torch.Generator().manual_seed(0)
    phase = 2 * math.pi * torch.rand(256, 1, generator=generator)
    angle = phase + 0.6 * torch.arange(config.length + 1)
    rows = torch.stack((angle.sin(), angle.cos()), -1)
    over = torch.arange(config.length) >= torch.randint(2, config.length + 1, (256, 1), generator=generator)
    x, y = (part.masked_fill(over.unsqueeze(-1), torch.nan) for part in (rows[:, :-1], rows[:, 1:]))
    train, test = (Resident([x[part]], y[part]) for part in torch.arange(256).split((192, 64)))
    return Splits(spec=waves_spec(config), train=train, val=test, test=test)


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [
        Dataset("turns", Turns, turns, spec=turns_spec, restore=turns_codec),
        Dataset("parities", Parities, parities, spec=parities_spec),
        Dataset("waves", Waves, waves, spec=waves_spec),
    ]
