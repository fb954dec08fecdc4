"""Reads the pickles that old data sets come in, and nothing that could run code."""

from __future__ import annotations

import builtins
import collections
import pickle
from pathlib import Path
from typing import Any

import numpy
import numpy._core.multiarray
import numpy._core.numeric
from pegboard import PegboardError

# What such files hold: arrays, sparse matrices, and lists of neighbours. Names as old releases had them.
MODULES = {
    "numpy": ("ndarray", "dtype"),
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.numeric": ("_frombuffer",),
    "scipy.sparse.csr": ("csr_matrix",),
    "collections": ("defaultdict", "OrderedDict"),
    "builtins": ("list",),
}
RENAMED = {"_core": "core", "_csr": "csr", "__builtin__": "builtins"}


class SparseRows:
    """Stands for scipy's sparse matrix, so that scipy is not needed: its `data`, `indices`, `indptr`."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)


class Restricted(pickle.Unpickler):
    """Makes arrays and containers, and refuses every other class or function."""

    def find_class(self, module: str, name: str) -> Any:
        home = ".".join(RENAMED.get(part, part) for part in module.split("."))
        if name not in MODULES.get(home, ()):
            raise pickle.UnpicklingError(f"it wants {module}.{name}, which data has no need of")
        if home == "scipy.sparse.csr":
            return SparseRows
        if home == "numpy.core.multiarray":
            return getattr(numpy._core.multiarray, name)
        if home == "numpy.core.numeric":
            return getattr(numpy._core.numeric, name)
        return getattr({"numpy": numpy, "collections": collections, "builtins": builtins}[home], name)


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
        MemoryError,
        OverflowError,
        RecursionError,
    ) as error:
        raise PegboardError(f"cannot read {path}: {error}") from None
    except pickle.UnpicklingError as error:
        raise PegboardError(f"{path} is not read: {error}") from None
