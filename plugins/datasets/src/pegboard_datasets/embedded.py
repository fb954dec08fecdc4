"""The data sets that scikit-learn carries; nothing is downloaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pegboard import Context, DataSpec, Splits
from torch import Tensor

from . import options
from .assembly import Origin, vector_splits
from .options import Cut
from .reading import Columns, number_table

UCI = "CC BY 4.0 (UCI machine learning repository)"


def digits(config: options.Digits, context: Context) -> Splits:
    """Grey pictures (n, 1, 8, 8), in [0, 1] before they are normalised."""
    columns = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]

    def read(table: Columns) -> Tensor:
        if "image" in table and columns[0] not in table:
            from .images import read_pixels

            return read_pixels(table["image"], "image", 1, (8, 8)).double() / 255
        return number_table(table, columns).reshape(-1, 1, 8, 8) / 16

    rows = torch.from_numpy(_digit_rows())
    x, y = rows[:, :-1].reshape(-1, 1, 8, 8) / 16, rows[:, -1].long()
    origin = Origin("scikit-learn load_digits: Alpaydin and Kaynak, Optical Recognition of Digits", UCI)
    return vector_splits(x, y, options.DIGITS, config, origin, columns, read, fold=context.fold)


def _digit_rows() -> np.ndarray[Any, np.dtype[np.float64]]:
    """64 pixels and the class of each digit: (n, 65)."""
    found = find_spec("sklearn")  # its file is read past it, because importing it takes as long as torch
    file = Path(found.origin).parent / "datasets/data/digits.csv.gz" if found and found.origin else None
    if file is not None and file.is_file():
        return np.loadtxt(file, delimiter=",")
    bunch = _load("load_digits")
    return np.column_stack([bunch.data, bunch.target])


def iris(config: options.Iris, context: Context) -> Splits:
    """Lengths and widths of sepals and petals in cm."""
    origin = Origin("scikit-learn load_iris: Fisher 1936", UCI)
    return _table(_load("load_iris"), options.IRIS, config, origin, context)


def wine(config: options.Wine, context: Context) -> Splits:
    """Chemical measurements of wines."""
    origin = Origin("scikit-learn load_wine: Aeberhard and Forina, Wine", UCI)
    return _table(_load("load_wine"), options.WINE, config, origin, context)


def breast_cancer(config: options.BreastCancer, context: Context) -> Splits:
    """Measurements of cell nuclei."""
    origin = Origin("scikit-learn load_breast_cancer: Wolberg et al., Diagnostic Wisconsin", UCI)
    return _table(_load("load_breast_cancer"), options.BREAST_CANCER, config, origin, context)


def diabetes(config: options.Diabetes, context: Context) -> Splits:
    """Measurements in their own units: the usual scaled form used the statistics of all samples."""
    bunch = _load("load_diabetes", scaled=False)
    origin = Origin("scikit-learn load_diabetes: Efron et al. 2004", "not stated")
    x, y = torch.from_numpy(bunch.data), torch.from_numpy(bunch.target).float()[:, None]
    columns = [str(name) for name in bunch.feature_names]
    return vector_splits(x, y, options.DIABETES, config, origin, columns, fold=context.fold)


def _table(bunch: Any, spec: DataSpec, config: Cut, origin: Origin, context: Context) -> Splits:
    columns = [str(name) for name in bunch.feature_names]
    x, y = torch.from_numpy(bunch.data), _classes(bunch)
    return vector_splits(x, y, spec, config, origin, columns, fold=context.fold)


def _classes(bunch: Any) -> Tensor:
    return torch.from_numpy(bunch.target).long()


def _load(name: str, **options: Any) -> Any:
    import sklearn.datasets  # type: ignore[import-untyped]

    return getattr(sklearn.datasets, name)(**options)
