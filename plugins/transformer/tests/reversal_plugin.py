"""A local plugin of the tests: sequences whose answer is the same sequence backwards."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pegboard import Context, Dataset, DataSpec, Resident, Splits, Tokens, hookimpl

SYMBOLS, LENGTH = 10, 8


@dataclass(frozen=True)
class Reversal:
    """Random symbols, and at each place the symbol at the same place from the end."""

    samples: int = 2000  # for training


def build(config: Reversal, context: Context) -> Splits:
    tokens = torch.randint(SYMBOLS, (config.samples + 400, LENGTH), generator=context.generator("tokens"))
    parts = tokens.split((config.samples, 200, 200))
    train, val, test = (Resident([part], part.flip(1)) for part in parts)
    return Splits(spec=spec(config), train=train, val=val, test=test)


def spec(config: Reversal) -> DataSpec:
    return DataSpec((Tokens(SYMBOLS, LENGTH),), Tokens(SYMBOLS, LENGTH))


@hookimpl
def pegboard_datasets() -> list[Dataset[Reversal]]:
    return [Dataset("reversal", Reversal, build, spec=spec)]
