"""Reads the pickles that old data sets come in, and nothing that could run code."""

from __future__ import annotations

import collections
import importlib
import pickle
from pathlib import Path
from typing import Any

from pegboard import PegboardError

# What such files hold: arrays, sparse matrices, and lists of neighbours. Names as old releases had them.
ALLOWED = {
    ("numpy", "ndarray"), ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"), ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.multiarray", "scalar"), ("numpy._core.multiarray", "scalar"),
    ("scipy.sparse.csr", "csr_matrix"), ("scipy.sparse._csr", "csr_matrix"),
    ("collections", "defaultdict"), ("collections", "OrderedDict"),
    ("__builtin__", "list"), ("builtins", "list"),
}  # fmt: skip
RENAMED = {
    "numpy.core.numeric": "numpy._core.numeric",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "scipy.sparse.csr": "scipy.sparse",
    "scipy.sparse._csr": "scipy.sparse",
    "__builtin__": "builtins",
}


class SparseRows:
    """Stands for scipy's sparse matrix, so that scipy is not needed: its `data`, `indices`, `indptr`."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)


class Restricted(pickle.Unpickler):
    """Makes arrays and containers, and refuses every other class or function."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it wants {module}.{name}, which data has no need of")
        if name == "csr_matrix":
            return SparseRows
        if module == "collections":
            return getattr(collections, name)
        return getattr(importlib.import_module(RENAMED.get(module, module)), name)


def load(path: Path) -> Any:
    """What a file holds."""
    try:
        with path.open("rb") as file:
            return Restricted(file, encoding="latin1").load()
    except (
        OSError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        ImportError,
    ) as error:
        raise PegboardError(f"cannot read {path}: {error}") from None
    except pickle.UnpicklingError as error:
        raise PegboardError(f"{path} is not read: {error}") from None
