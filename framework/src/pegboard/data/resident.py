"""Data that fits in memory: tensors on the device, and a batch is one indexed gather."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..contract.results import Batch, Source


def pick(x: Tensor, index: Tensor) -> Tensor:
    """The rows of a tensor that have these numbers, in the layout that it has."""
    if x.is_contiguous() and index.device == x.device:  # whole rows are copied, not number by number
        return x.index_select(0, index)
    return x[index]


class Resident(Source):
    """Samples as tensors whose first axis counts them."""

    def __init__(
        self, inputs: Sequence[Tensor], target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        self.inputs = tuple(inputs)
        self.target: Tensor | None = target
        self.weight = weight
        sizes = {len(t) for t in (*self.inputs, target, weight) if t is not None}
        if len(sizes) != 1:
            raise ValueError(f"the tensors of a split differ in their number of samples: {sorted(sizes)}")
        self._size = sizes.pop()

    def __len__(self) -> int:
        return self._size

    def gather(self, index: Tensor) -> Batch:
        inputs = tuple([pick(x, index) for x in self.inputs])
        target = None if self.target is None else pick(self.target, index)
        weight = None if self.weight is None else pick(self.weight, index)
        return Batch(inputs, target, weight, index)

    def to(self, device: str) -> Resident:
        def move(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.to(device)

        return Resident([x.to(device) for x in self.inputs], move(self.target), move(self.weight))

    def channels_last(self) -> Resident:
        """The same samples, images with their channels innermost in memory; their batches are alike."""
        layout = torch.channels_last
        inputs = [x.contiguous(memory_format=layout) if x.dim() == 4 else x for x in self.inputs]
        return Resident(inputs, self.target, self.weight)

    @property
    def resident(self) -> Resident:
        return self

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that it holds."""
        return (*self.inputs, self.target, self.weight)

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors if t is not None)
