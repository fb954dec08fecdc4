"""Sparse matrices that stay the same from step to step, and what is computed once of tensors that do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Memo(Generic[T]):
    """What was made of some tensors, as long as the same tensors, unchanged, are given again.

    It belongs to no state and no copy of a model: it is made again where it is lost.
    """

    def __init__(self) -> None:
        self._keys: tuple[Tensor, ...] | None = None
        self._versions: tuple[int, ...] = ()
        self._value: T | None = None

    def get(self, keys: tuple[Tensor, ...], make: Callable[[], T]) -> T:
        known = self._keys
        if known is not None and len(known) == len(keys):
            for old, new, version in zip(known, keys, self._versions, strict=True):
                if old is not new or new._version != version:
                    break
            else:
                return self._value  # type: ignore[return-value]
        self._value = make()
        self._keys, self._versions = keys, tuple([t._version for t in keys])
        return self._value

    def __deepcopy__(self, memo: Any) -> Memo[T]:
        return Memo()

    def __reduce__(self) -> Any:
        return (Memo, ())


class Csr(NamedTuple):
    """A sparse matrix by rows, and the same by columns, for the way back."""

    starts: Tensor  # (rows + 1,)
    columns: Tensor  # (entries,) sorted by row
    values: Tensor  # (entries,)
    column_starts: Tensor  # (columns + 1,)
    rows: Tensor  # (entries,) sorted by column
    turned: Tensor  # (entries,) the place in `values` of each entry by columns
    back: Tensor  # (entries,) the values by columns
    shape: tuple[int, int]

    @classmethod
    def of(cls, row: Tensor, column: Tensor, values: Tensor, shape: tuple[int, int]) -> Csr:
        """From entries in any order."""
        order = torch.argsort(row * shape[1] + column)
        row, column, values = row[order], column[order], values[order]
        turned = torch.argsort(column * shape[0] + row)
        first = (_starts(row, shape[0]), column.contiguous(), values.contiguous())
        second = (_starts(column, shape[1]), row[turned].contiguous(), turned, values[turned])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that such matrices are new, which torch says once
            _multiply(*first, shape, values.new_zeros(shape[1], 1))
        return cls(*first, *second, shape)

    @classmethod
    def of_dense(cls, x: Tensor) -> Csr:
        row, column = x.nonzero(as_tuple=True)
        return cls.of(row, column, x[row, column], (x.shape[0], x.shape[1]))

    def matmul(self, dense: Tensor, values: Tensor | None = None) -> Tensor:
        """The product with a matrix, with other values in the same places where they are given."""
        result: Tensor = _Product.apply(self, values, dense)  # type: ignore[no-untyped-call]
        return result


def _starts(sorted_numbers: Tensor, count: int) -> Tensor:
    counts = torch.bincount(sorted_numbers, minlength=count)
    return torch.cat((counts.new_zeros(1), counts.cumsum(0)))


def _multiply(
    starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int], dense: Tensor
) -> Tensor:
    matrix = torch.sparse_csr_tensor(starts, columns, values, size, check_invariants=False)
    if not torch.is_autocast_enabled(dense.device.type):
        return matrix @ dense.to(values.dtype)
    with torch.autocast(dense.device.type, enabled=False):  # there is no such product in half the width
        return matrix @ dense.to(values.dtype)


class _Product(torch.autograd.Function):
    """Sparse times dense, differentiated by the dense one; the values are data, not parameters."""

    @staticmethod
    def forward(ctx: Any, matrix: Csr, values: Tensor | None, dense: Tensor) -> Tensor:
        ctx.matrix, ctx.dtype, ctx.values = matrix, dense.dtype, values
        own = matrix.values if values is None else values
        return _multiply(matrix.starts, matrix.columns, own, matrix.shape, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        m, values = ctx.matrix, ctx.values
        own = m.back if values is None else values[m.turned]
        found = _multiply(m.column_starts, m.rows, own, (m.shape[1], m.shape[0]), grad.contiguous())
        return None, None, found.to(ctx.dtype)
