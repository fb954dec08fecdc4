"""What the partners build."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pegboard import (
    Batch,
    Choices,
    Classes,
    DataSpec,
    Decoding,
    Objective,
    Peg,
    Resident,
    Series,
    Source,
    Spec,
    Tokens,
)

ALL = 48  # samples of a form of data


class Flat(nn.Module):
    """One hidden layer with pegs on all inputs, flattened and joined; `shape` is that of an output."""

    def __init__(self, inputs: int, width: int, *shape: int) -> None:
        super().__init__()
        layers = (Peg("input", inputs), nn.Linear(inputs, width), Peg("affine", width))
        self.body = nn.Sequential(*layers, nn.ReLU(), Peg("hidden", width))
        self.shape, self.head = shape, nn.Linear(width, math.prod(shape))
        self.padded = False  # places that are not there are nan

    def forward(self, *inputs: Tensor) -> Tensor:
        joined = torch.cat([x.flatten(1).float() for x in inputs], 1)
        joined = joined.nan_to_num() if self.padded else joined
        output: Tensor = self.head(self.body(joined))
        return output.view(-1, *self.shape)


class Centres(nn.Module):
    """Minus the squared distances of samples, flattened, to `count` points: (rows, count)."""

    def __init__(self, inputs: int, count: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(count, inputs))

    def forward(self, *inputs: Tensor) -> Tensor:
        joined = torch.cat([x.flatten(1).float() for x in inputs], 1)
        return -(joined[:, None] - self.points).square().sum(-1)


class Writer(Flat):
    """The same for a text that follows from another, which it can write, from `begin` to `end`."""

    def __init__(self, inputs: int, width: int, shape: tuple[int, int], begin: int, end: int) -> None:
        super().__init__(inputs, width, *shape)
        self.begin, self.end = begin, end

    def generate(self, source: Tensor, *read: Tensor, how: Decoding, generator: Any = None) -> Tensor:
        """The likeliest symbol at each place, (rows, length)."""
        written = torch.full((len(source), 1 + self.shape[0]), self.begin, device=source.device)
        for at in range(min(how.length, self.shape[0])):
            written[:, at + 1] = self(source, written[:, :-1])[:, at].argmax(-1)
        written = written[:, 1 : 1 + how.length]
        return written.masked_fill((written == self.end).cumsum(1) > 0, self.end)


class Affine(nn.Module):
    """A fixed factor and summand."""

    def __init__(self, by: float, plus: float) -> None:
        super().__init__()
        self.by, self.plus = by, plus

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by + self.plus


class PlainLoss(Objective):
    """Cross entropy for classes and symbols, else squares; `weight` weighs samples."""

    def __init__(self, target: Spec | None) -> None:
        self.classes = isinstance(target, (Classes, Choices))
        self.padding: int = getattr(target, "padding", -1)
        self.formula = "-log softmax(f(x))[y]" if self.classes else "mean((f(x) - y)^2)"

    def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        if self.classes and target.is_floating_point():
            each = functional.cross_entropy(output, target, reduction="none")
        elif self.classes:
            places = target if self.padding < 0 else target.masked_fill(target == self.padding, -100)
            each = functional.cross_entropy(output.flatten(0, -2), places.flatten(), reduction="none")
            each = each.view(len(target), -1).mean(1)
        else:
            each = functional.mse_loss(output, target, reduction="none").flatten(1).mean(1)
        return each.mean() if weight is None else (each * weight).sum() / weight.sum()


def formed(spec: DataSpec) -> list[Source]:
    """Sources of 32, 8 and 8 samples, as one of the forms that few models read."""
    cuts = ((0, 32), (32, 40), (40, ALL))
    if not all(entry.counted for entry in spec.inputs):
        return [Joined(spec, torch.arange(a, b)) for a, b in cuts]
    inputs, target = _samples(spec)
    return [Resident([x[a:b] for x in inputs], target[a:b]) for a, b in cuts]


def _samples(spec: DataSpec) -> tuple[list[Tensor], Tensor]:
    """Inputs and a target of all samples."""
    x = torch.randn(ALL, 24, generator=torch.Generator().manual_seed(0))
    lasts = torch.arange(6) < (3 + torch.arange(ALL) % 4).unsqueeze(1)  # samples of 3 to 6 steps
    read = [_input(of, x, lasts) for of in spec.inputs]
    target, first = spec.target, read[0]
    if isinstance(target, Classes):
        return read, x[:, :3].argmax(1)
    if isinstance(target, Series):
        return read, first.roll(-1, 1)
    if target is not None and type(target).__module__ != Spec.__module__:
        return read, target.example(ALL, "cpu")
    assert isinstance(target, Tokens) and target.vocab is not None
    if len(read) == 2:  # what is read second, a step further
        return read, torch.cat((read[1][:, 1:], torch.full((ALL, 1), target.padding)), 1)
    if first.is_floating_point():  # a label for every point
        return read, (first[..., 0] > 0).long()
    if target.vocab < 7:  # a label for every step
        return read, (first % target.vocab).masked_fill(~lasts, -100)
    return read, first.roll(-1, 1)


def _input(spec: Spec, x: Tensor, lasts: Tensor) -> Tensor:
    if isinstance(spec, Tokens):
        assert spec.vocab is not None
        symbols = (x[:, :6].abs() * 2).long() + (3 if spec.vocab > 2 else 0)
        symbols = symbols.clamp(max=spec.vocab - 1)
        if spec.begin >= 0:
            symbols[:, 0] = spec.begin
        return symbols if spec.padding < 0 else symbols.masked_fill(~lasts, spec.padding)
    shape = spec.example(1, "meta").shape[1:]
    dense = x.repeat(1, 1 + shape.numel() // 24)[:, : shape.numel()].reshape(-1, *shape)
    padded = getattr(spec, "padded", False)
    return dense.masked_fill(~lasts.unsqueeze(-1), torch.nan) if padded else dense


class Joined(Source):
    """Samples that stand in a batch as one: examples of their specs, with normal numbers for real ones.

    Where the first input is as large for one sample as for all, every batch holds all, and who is asked.
    """

    def __init__(self, spec: DataSpec, rows: Tensor, device: str = "cpu") -> None:
        self.spec, self.rows, self.device = spec, rows, device
        examples = [entry.example(ALL, "cpu") for entry in spec.inputs]
        self.whole = len(spec.inputs[0].example(1, "cpu")) == len(examples[0])
        self.varied = not self.whole
        generator = torch.Generator().manual_seed(0)
        noise = [torch.randn(x.shape, generator=generator) if x.is_floating_point() else x for x in examples]
        assert noise[0].is_floating_point() and isinstance(spec.target, Classes)
        of_each = noise[0].view(ALL, -1, noise[0].shape[-1])
        self._target = of_each.mean(1)[rows, : spec.target.count].argmax(1).to(device)
        self._examples = [x.to(device) for x in noise]

    def __len__(self) -> int:
        return len(self.rows)

    def gather(self, index: Tensor) -> Batch:
        samples = self.rows.to(index.device)[index]
        inputs = [self._input(*pair, samples) for pair in zip(self.spec.inputs, self._examples, strict=True)]
        place = index.to(self.device)
        return Batch(tuple(inputs), self._target[place], None, place)

    def _input(self, spec: Spec, example: Tensor, samples: Tensor) -> Tensor:
        if self.whole:
            return example[samples] if spec.counted else example
        if not example.is_floating_point():
            return spec.example(len(samples), self.device)
        return example.view(ALL, -1, *example.shape[1:])[samples.to(self.device)].flatten(0, 1)

    def to(self, device: str) -> Joined:
        return Joined(self.spec, self.rows, device)

    def targets(self) -> Tensor:
        return self._target

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return (*self._examples, self._target)


def momentum(optimizer: torch.optim.Optimizer) -> Any:
    """Descent with momentum 0.9 as a function that can be traced; None before the first step."""
    groups = [list(group["params"]) for group in optimizer.param_groups]
    buffers = [optimizer.state.get(p, {}).get("momentum_buffer") for params in groups for p in params]
    if any(buffer is None for buffer in buffers):
        return None

    def update(grads: Sequence[Tensor], rates: Sequence[float | Tensor]) -> None:
        at = 0
        for params, rate in zip(groups, rates, strict=True):
            for p in params:
                buffer = buffers[at]
                assert buffer is not None
                buffer.mul_(0.9).add_(grads[at])
                p.sub_(buffer * rate)
                at += 1

    return update
