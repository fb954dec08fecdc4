"""What a trained run is used for: measuring it on a split or with a probe, and predicting for new rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .config.alone import insist_on_fit
from .config.nodes import Chosen
from .contracts import Objective, Probe, Source, Splits
from .data import Resident, place
from .ending import readable
from .engine.evaluate import collect, evaluate
from .engine.precision import choose_device, choose_precision
from .errors import PegboardError
from .loading import load_model
from .nearest import nearest
from .parts import Context, Facts
from .planning import build, private_rng, read_data


class Trained:
    """A trained model with the data and the objective of its run."""

    def __init__(
        self,
        ref: str | Path,
        which: str = "best",
        device: str = "auto",
        local: Sequence[str | Path] = (),
    ) -> None:
        self.device = choose_device(device)
        self.model, self.plan = load_model(ref, self.device, which, local=local)
        trainer = self.plan.settings.trainer
        self.precision = choose_precision(trainer.precision, self.device)
        context = Context(spec=self.plan.spec, outputs=self.plan.outputs, device=self.device, key="objective")
        self.objective: Objective = build(self.plan.objective, context)
        batches = self.plan.settings.batches
        self.batch, self.workers = batches.eval_size, batches.workers
        self._splits: Splits | None = None

    @property
    def splits(self) -> Splits:
        """The data of the run, read when it is first needed."""
        if self._splits is None:
            self._splits = read_data(self.plan.settings)
        return self._splits

    def source(self, split: str) -> Source:
        source: Source | None = getattr(self.splits, split)
        if source is None:
            there = [name for name in ("train", "val", "test") if getattr(self.splits, name) is not None]
            raise PegboardError(f"the data has no {split} split: it has {', '.join(there)}")
        return source.to(self.device)

    def evaluate(self, split: str) -> dict[str, float]:
        """Loss and metrics on a split."""
        metrics = {name: m.to(self.device) for name, m in self.objective.metrics().items()}
        return evaluate(
            self.model, self.objective, metrics, self.source(split), self.batch, self.device, self.precision,
            workers=self.workers,
        )  # fmt: skip

    def probe(self, chosen: Chosen, words: Sequence[str] = ()) -> dict[str, float]:
        """What a probe measures on the model and the splits; what it draws is the same each time.

        One whose own rules refuse the run is a mistake, told before it measures; `words` gave its fields.
        """
        settings = self.plan.settings
        model: Any = settings.model.entry.part
        objective: Any = self.plan.objective.entry.part
        optimizer: Any = settings.optimizer.entry.part
        tricks = tuple(sorted(c.entry.part.name for c in settings.regularizers.values()))
        known = Facts(
            spec=self.plan.spec, model=model, objective=objective, optimizer=optimizer, tricks=tricks
        )
        insist_on_fit(chosen, known, f"probe {chosen.entry.part.name!r}, which does not fit the run", words)
        seed = self.plan.settings.seed
        context = Context(
            spec=self.plan.spec, outputs=self.plan.outputs, device=self.device, seed=seed, key="probe"
        )
        probe: Probe = build(chosen, context)
        splits = replace(self.splits)
        place(splits, self.device)
        with private_rng(seed, "probe"):
            return probe.measure(self.model, splits, torch.device(self.device))

    def predict(self, source: Source) -> dict[str, list[Any]]:
        """Columns for people, a value for each sample."""
        output, _, _ = collect(self.model, source, self.batch, self.device, self.precision, self.workers)
        names = getattr(self.plan.spec.target, "names", ())
        return {
            key: [readable(value, names if key == "class" else ()) for value in column]
            for key, column in self.objective.predict(output).items()
        }

    def encode(self, columns: Mapping[str, Sequence[Any]], where: str) -> Source:
        """Rows that a person wrote as a source, treated as the training data was."""
        splits = self.splits
        if splits.encode is None:
            raise PegboardError(f"data set {self.plan.settings.data.entry.part.name!r} cannot read tables")
        try:
            inputs = splits.encode(columns)
        except KeyError as error:
            name = str(error.args[0])
            near = nearest(name, columns)
            raise PegboardError(
                f"{where} lacks the column {name!r}; it has {', '.join(list(columns)[:8])}"
                + (f"; did you mean {near[0]!r}?" if near else "")
            ) from None
        return Resident([x.to(self.device) for x in inputs])


def read_table(path: Path) -> dict[str, list[Any]]:
    """Columns of a .csv file with a header, or of a .json file (a list of rows, or columns)."""
    if not path.is_file():
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        near = nearest(path.name, [p.name for p in beside if p.is_file()])
        raise PegboardError(f"no file {path}" + (f"; did you mean {near[0]!r}?" if near else ""))
    try:
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a mark in front
                rows: Any = list(csv.DictReader(file))
        elif path.suffix in (".json", ".jsonl"):
            text = path.read_text("utf-8-sig")
            rows = (
                [json.loads(t) for t in text.splitlines() if t]
                if path.suffix == ".jsonl"
                else json.loads(text)
            )
        else:
            raise PegboardError(f"{path} is not a table that predict reads: expected .csv, .json or .jsonl")
    except RecursionError:
        raise PegboardError(f"cannot read {path}: nested too deep for a table") from None
    except (ValueError, OSError, csv.Error) as error:
        raise PegboardError(f"cannot read {path}: {error}") from None
    if isinstance(rows, dict):
        columns = {str(k): v for k, v in rows.items() if isinstance(v, list)}
        if len(columns) < len(rows) or len({len(v) for v in columns.values()}) != 1:
            raise PegboardError(f"{path}: expected columns as lists of the same length")
        return columns
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise PegboardError(f"{path} holds no rows: expected a header and rows, or a list of objects")
    if None in rows[0] or any(None in row for row in rows):  # what DictReader calls cells without a column
        raise PegboardError(f"{path}: a row has more cells than the header has columns")
    return {str(key): [_number(row.get(key)) for row in rows] for key in rows[0]}


def _number(text: Any) -> Any:
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError):
        return text


def write_table(columns: Mapping[str, Sequence[Any]], path: Path | None) -> str:
    """Columns as CSV text, in a file where one is named; `.json` gives a list of rows."""
    if path is not None and path.suffix not in (".csv", ".json", ""):
        raise PegboardError(f"{path} is not a table that predict writes: expected .csv or .json")
    rows = list(zip(*columns.values(), strict=True))
    if path is not None and path.suffix == ".json":
        objects = [dict(zip(columns, row, strict=True)) for row in rows]
        path.write_text(json.dumps(objects, indent=1) + "\n", "utf-8")
        return ""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    if path is not None:
        path.write_text(file.getvalue(), "utf-8")
    return file.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return json.dumps(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
