"""Sparse matrices that stay the same from step to step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

NARROW = 2**31 - 1  # the largest number of 32 bits


class Csr(NamedTuple):
    """A sparse matrix by rows, and the same by columns, for the way back.

    Places are numbers of 32 bits where these suffice: torch's kernel would copy longer ones in every product.
    """

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
        dtype = torch.int32 if max(*shape, len(values)) <= NARROW else torch.int64
        by_rows = (_starts(row, shape[0], dtype), column.to(dtype), values)
        by_columns = (_starts(column, shape[1], dtype), row[turned].to(dtype), turned, values[turned])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that such matrices are new, which torch says once
            _multiply(*by_rows, shape[1], values.new_zeros(shape[1], 1))
        return cls(*by_rows, *by_columns, shape)

    @classmethod
    def of_dense(cls, x: Tensor) -> Csr:
        row, column = x.nonzero(as_tuple=True)
        return cls.of(row, column, x[row, column], (x.shape[0], x.shape[1]))

    def matmul(self, dense: Tensor, values: Tensor | None = None) -> Tensor:
        """The product with a matrix, with other values in the same places where they are given."""
        own, back = (self.values, self.back) if values is None else (values, None)
        act: Callable[..., Tensor] = _product if torch.compiler.is_compiling() else _Product.apply
        return act(dense, own, back, self.turned, self.starts, self.columns, self.column_starts, self.rows)


def _starts(sorted_numbers: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    counts = torch.bincount(sorted_numbers, minlength=count)
    return torch.cat((counts.new_zeros(1), counts.cumsum(0))).to(dtype)


def _multiply(starts: Tensor, columns: Tensor, values: Tensor, width: int, dense: Tensor) -> Tensor:
    if dense.is_meta:  # which has no sparse matrices and no automatic precision
        return _shape(starts, columns, values, width, dense)
    size = (len(starts) - 1, width)
    matrix = torch.sparse_csr_tensor(starts, columns, values, size, check_invariants=False)
    if not torch.is_autocast_enabled(dense.device.type):
        return matrix @ dense.to(values.dtype)
    with torch.autocast(dense.device.type, enabled=False):  # there is no such product in half the width
        return matrix @ dense.to(values.dtype)


def _shape(starts: Tensor, columns: Tensor, values: Tensor, width: int, dense: Tensor) -> Tensor:
    return values.new_empty(starts.shape[0] - 1, dense.shape[1])


class _Product(torch.autograd.Function):
    """Sparse times dense. torch's own way back turns the matrix around in every step, which takes longer than
    all the rest; here it is given turned around."""

    @staticmethod
    def forward(
        ctx: Any, dense: Tensor, values: Tensor, back: Tensor | None, turned: Tensor,
        starts: Tensor, columns: Tensor, back_starts: Tensor, back_columns: Tensor,
    ) -> Tensor:  # fmt: skip
        seen = dense if ctx.needs_input_grad[1] else None
        ctx.save_for_backward(seen, values, back, turned, starts, columns, back_starts, back_columns)
        ctx.dtype = dense.dtype
        act: Callable[..., Tensor] = _node if torch.compiler.is_compiling() else _multiply
        return act(starts, columns, values, back_starts.shape[0] - 1, dense)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dense, values, back, turned, starts, columns, back_starts, back_columns = ctx.saved_tensors
        (grad,) = grads
        to_dense = to_values = None
        if ctx.needs_input_grad[0]:
            back = values[turned] if back is None else back
            act: Callable[..., Tensor] = _Product.apply  # itself, so that it has a derivative too
            parts = (turned, back_starts, back_columns, starts, columns)
            to_dense = act(grad.contiguous(), back, values, *parts).to(ctx.dtype)
        if dense is not None:
            numbers = torch.arange(len(starts) - 1, device=starts.device)
            rows = torch.repeat_interleave(numbers, starts.diff(), output_size=len(columns))
            to_values = (grad[rows] * dense[columns]).sum(1).to(values.dtype)
        return to_dense, to_values, None, None, None, None, None, None


# The compiler knows no sparse matrices. To it, a product is an operation that it leaves as it is in a graph:
# `product` with its derivative, which is taken apart when the way back is traced, `multiply` what remains.
_LIBRARY: Any = torch.library.Library("pegboard_gnn", "DEF")  # type: ignore[no-untyped-call]
_MATRIX = "Tensor starts, Tensor columns"
_LIBRARY.define(f"multiply({_MATRIX}, Tensor values, int width, Tensor dense) -> Tensor")
_LIBRARY.define(
    f"product(Tensor dense, Tensor values, Tensor? back, Tensor turned, {_MATRIX}, Tensor back_starts,"
    " Tensor back_columns) -> Tensor"
)
_LIBRARY.impl("multiply", _multiply, "CompositeExplicitAutograd")
torch.library.register_fake("pegboard_gnn::multiply", _shape, lib=_LIBRARY)
_LIBRARY.impl("product", _Product.apply, "CompositeImplicitAutograd")
_node = torch.ops.pegboard_gnn.multiply.default
_product = torch.ops.pegboard_gnn.product.default
