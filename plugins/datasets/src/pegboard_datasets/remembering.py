"""Series that must be remembered to their end."""

from __future__ import annotations

import torch
from pegboard import Context, DataSpec, Series, Splits
from torch import Generator, Tensor

from .assembly import Samples, cut_samples, make_splits
from .made import Points
from .made_splits import MADE, sample_stream
from .mistakes import mistake
from .reading import Columns, column, to_numbers
from .remembering_options import Adding, Recall, Remembered, adding_spec, recall_spec


def recalled(samples: int, length: int, noise: float = 0.0, *, generator: Generator) -> Points:
    """Series (samples, length, 1) that begin with -1 or 1 and go on with noise; the class is the sign."""
    y = torch.randint(2, (samples,), generator=generator)
    x = noise * torch.randn(samples, length, 1, generator=generator)
    x[:, 0, 0] = 2.0 * y - 1
    return Points(x, y)


def added(sizes: Tensor, length: int, *, generator: Generator) -> Points:
    """Numbers between 0 and 1 and their marks (samples, length, 2); the sum of the two that are marked.

    One of them is in the first half of the `sizes` steps of a series, the other in the second.
    """
    samples = len(sizes)
    numbers = torch.rand(samples, length, generator=generator)
    drawn = torch.rand(samples, 2, generator=generator)
    half = sizes // 2
    places = (drawn * torch.stack((half, sizes - half), 1)).long() + torch.stack((half * 0, half), 1)
    marks = torch.zeros(samples, length).scatter(1, places, 1.0)
    return Points(torch.stack((numbers, marks), -1), numbers.gather(1, places).sum(1, keepdim=True))


def recall(config: Recall, context: Context) -> Splits:
    """Bits to remember."""
    stream = sample_stream(config, context, "recall")
    points = recalled(config.samples, config.length, config.noise, generator=stream)
    return _cut(points, _sizes(config, stream), config, context, recall_spec(config))


def adding(config: Adding, context: Context) -> Splits:
    """Numbers to add."""
    stream = sample_stream(config, context, "adding")
    sizes = _sizes(config, stream)
    points = added(sizes, config.length, generator=stream)
    return _cut(points, sizes, config, context, adding_spec(config))


def _sizes(config: Remembered, generator: Generator) -> Tensor:
    """How many steps each series has, (samples,)."""
    shortest = config.length if config.shortest is None else config.shortest
    return torch.randint(shortest, config.length + 1, (config.samples,), generator=generator)


def _cut(points: Points, sizes: Tensor, config: Remembered, context: Context, spec: DataSpec) -> Splits:
    over = torch.arange(config.length) >= sizes.unsqueeze(1)
    x = points.x.masked_fill(over.unsqueeze(-1), torch.nan)
    parts = cut_samples(points.y, spec, config, context.fold)
    (read,) = spec.inputs
    assert isinstance(read, Series)

    def samples(index: Tensor | None) -> Samples | None:
        return None if index is None else Samples((x[index],), points.y[index])

    return make_splits(
        spec,
        {"train": samples(parts.train), "val": samples(parts.val), "test": samples(parts.test)},
        encode=lambda table: (read_series(table, read),),
        columns=("series",),
        notes=MADE._asdict(),
    )


def read_series(table: Columns, spec: Series) -> Tensor:
    """A column of lists of numbers, the features of each step one after the other, as series."""
    length, features = spec.length, spec.features
    assert length is not None and features is not None
    series = torch.full((len(column(table, "series")), length * features), torch.nan)
    for row, value in enumerate(column(table, "series")):
        numbers = to_numbers([value], "series")[0]
        fits = 0 < len(numbers) <= length * features and len(numbers) % features == 0
        if not fits or (not spec.padded and len(numbers) < length * features):
            each = "1 number" if features == 1 else f"{features} numbers"
            of = f"{each} for each of {'1 to ' if spec.padded else ''}{length} steps"
            raise mistake(f"column 'series', row {row} (0 is the first): {len(numbers)} numbers", of)
        series[row, : len(numbers)] = numbers
    return series.view(-1, length, features)
