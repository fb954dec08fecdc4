"""Columns -> what the model predicts."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from pegboard import Classes, Labels, Spec, Values
from torch import Tensor

from . import scaling
from .categories import by_number, category_names, category_text, category_values
from .mistakes import mistake
from .rows import PIECE, Rows
from .vectors import piece_of

MOST_CLASSES = 100  # integers with more values than this are taken for numbers


class TargetEncoder(Protocol):
    """The target of a sample."""

    @property
    def spec(self) -> Spec:
        """What it gives."""
        ...

    def rows(self, rows: Rows) -> Tensor:
        """The target for rows of the source."""
        ...

    def notes(self) -> dict[str, Any]:
        """What it learned."""
        ...


class ClassTarget:
    """One class, named by the column's type or by its values in all splits."""

    def __init__(self, rows: Rows, name: str, *others: Rows) -> None:
        self._name = name
        self._names = category_names(rows, name, *others)
        self._numbers: dict[Any, int] = {value: i for i, value in enumerate(self._names)}

    @property
    def spec(self) -> Spec:
        return Classes(len(self._names), self._names)

    def rows(self, rows: Rows) -> Tensor:
        return torch.cat([self._read(part) for part in rows.pieces(PIECE)])

    def _read(self, rows: Rows) -> Tensor:
        if rows.type(self._name) == "classes":
            values: list[Any] = category_values(rows, self._name)
        else:  # texts are made of values that were not seen before only
            values = rows.values(self._name)
            self._numbers |= {v: self._numbers[category_text(v)] for v in {*values} - self._numbers.keys()}
        return torch.tensor([self._numbers[v] for v in values], dtype=torch.int64)

    def notes(self) -> dict[str, Any]:
        return {}


class LabelTarget:
    """Any subset of labels: lists of them in one column, or a column of 0 and 1 for each."""

    def __init__(self, columns: tuple[str, ...], *splits: Rows) -> None:
        self._columns = columns
        if len(columns) > 1:
            self._names = columns
            return
        named = splits[0].class_names(columns[0])
        pieces = (piece for rows in splits for piece in rows.pieces(PIECE))
        found = {category_text(v) for rows in pieces for labels in self._lists(rows) for v in labels}
        self._names = tuple(named) if named is not None else tuple(sorted(found, key=by_number))

    def _lists(self, rows: Rows) -> list[list[Any]]:
        name = self._columns[0]
        if rows.type(name) != "list":
            found = f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}"
            raise mistake(found, "a list of labels in every row, or several columns of 0 and 1")
        return rows.values(name)

    @property
    def spec(self) -> Spec:
        return Labels(len(self._names), self._names)

    def rows(self, rows: Rows) -> Tensor:
        if len(self._columns) > 1:
            return self._flags(rows)
        number: dict[Any, int] = {value: i for i, value in enumerate(self._names)}
        indices = rows.class_names(self._columns[0]) is not None
        target = torch.zeros(len(rows), len(self._names))
        for row, labels in enumerate(self._lists(rows)):
            for label in labels:
                target[row, label if indices else number[category_text(label)]] = 1
        return target

    def _flags(self, rows: Rows) -> Tensor:
        target = torch.cat([rows.numbers(name) for name in self._columns], 1).float()
        wrong = ((target != 0) & (target != 1)).nonzero()
        if len(wrong):
            row, label = wrong[0].tolist()
            name = self._names[label]
            found = f"column {name!r}, {rows.where(row)}: {float(target[row, label]):g}"
            raise mistake(found, "0 or 1 for a label", "kind: values predicts numbers")
        return target

    def notes(self) -> dict[str, Any]:
        return {}


class ValueTarget:
    """Real numbers, standardised by those of the training rows where that is asked for."""

    def __init__(self, train: Rows, columns: tuple[str, ...], normalize: bool) -> None:
        self._columns = columns
        self._width = self._read(train.take(torch.arange(1))).shape[1]
        parts = (self._read(part) for part in train.pieces(piece_of(self._width)))
        self._scaler = scaling.fit_parts(parts, "standard" if normalize else "none")

    def _read(self, rows: Rows) -> Tensor:
        numbers = torch.cat([rows.numbers(name) for name in self._columns], 1)
        width = getattr(self, "_width", numbers.shape[1])
        if numbers.shape[1] != width:
            found = f"the target in split {rows.split!r} has rows of {numbers.shape[1]} numbers"
            raise mistake(found, f"{width} in every row")
        return numbers

    @property
    def spec(self) -> Spec:
        names = self._columns if len(self._columns) == self._width else ()
        if self._scaler.how == "none":
            return Values(self._width, names)
        units = (self._scaler.shift, self._scaler.scale)
        shift, scale = (tuple(of.double().expand(self._width).tolist()) for of in units)
        return Values(self._width, names, shift, scale)

    def rows(self, rows: Rows) -> Tensor:
        return self._scaler(self._read(rows))

    def notes(self) -> dict[str, Any]:
        return self._scaler.notes()


def target_kind(rows: Rows, name: str) -> str:
    """What a column is as a target, by its own type; integers with few values are classes."""
    match rows.type(name):
        case "classes" | "string" | "bool":
            return "classes"
        case "integer":
            return "classes" if _few_values(rows, name) else "values"
        case "float":
            return "values"
        case "list":
            few = rows.class_names(name) is not None
            return "labels" if few else _list_kind(rows, name)
        case _:
            found = f"column {name!r} of split {rows.split!r} holds {rows.shown_type(name)}"
            raise mistake(found, "classes, labels or numbers to predict")


def _few_values(rows: Rows, name: str) -> bool:
    seen: set[Any] = set()
    for part in rows.pieces(PIECE):
        seen.update(part.values(name))
        if len(seen) > MOST_CLASSES:
            return False
    return True


def _list_kind(rows: Rows, name: str) -> str:
    inner = str(getattr(getattr(rows.data.features[name], "feature", None), "dtype", ""))
    return "values" if inner.startswith("float") else "labels"
