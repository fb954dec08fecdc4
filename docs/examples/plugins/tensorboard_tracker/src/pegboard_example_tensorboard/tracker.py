"""The tracker, as the core calls it: in a thread of its own, and never from inside a step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pegboard import RunInfo, Table, Tracker
from PIL import Image
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from . import TensorBoard
from .texts import block, flat, markdown

EVENTS = "events.out.tfevents.*"
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp"}


class TensorBoardTracker(Tracker):
    """One event file with every row of metrics.jsonl, each of its numbers as one point."""

    _writer: Any  # the SummaryWriter, which has no types; from `start` on

    def __init__(self, config: TensorBoard) -> None:
        self.config = config
        self._step = 0  # of the newest row
        self._newest: dict[str, int] = {}  # tag -> step of its newest point
        self._settings: dict[str, float | str] = {}
        self._warn: Callable[[str], object] = warnings.warn

    def start(self, run: RunInfo) -> None:
        """A new file, which after a resume holds all rows from the first on, in place of the older ones."""
        folder = run.folder / self.config.folder
        older = list(folder.glob(EVENTS))
        # From step 0 on: a TensorBoard that is open forgets what it has read from the older files.
        self._writer = SummaryWriter(str(folder), purge_step=0, flush_secs=self.config.flush_seconds)
        self._settings, self._warn = flat(run.config), run.warn
        self._writer.add_text("config", block(yaml.safe_dump(dict(run.config), sort_keys=False), "yaml"), 0)
        self._writer.add_text("plan", block(run.plan), 0)
        for row in run.previous:
            self.log(row)
        self._writer.flush()
        for path in older:  # emptied, not removed: an open TensorBoard goes on from it to the new one
            path.write_bytes(b"")

    def log(self, row: Mapping[str, Any]) -> None:
        """A point for every number of the row."""
        self._step = row.get("step", self._step)
        for tag, value in row.items():
            if tag != "step" and isinstance(value, int | float):
                self._point(tag, value)

    def table(self, name: str, table: Table) -> None:
        """A table as text."""
        self._writer.add_text(name, markdown(table.columns, table.rows), self._step)

    def figure(self, name: str, path: Path) -> None:
        """A picture; of another format, where it is. One that cannot be read is left out, and rows go on."""
        if path.suffix.lower() not in PICTURES:
            self._writer.add_text(name, f"`{path}`", self._step)
            return
        try:
            with Image.open(path) as picture:
                pixels = np.asarray(picture.convert("RGBA"))  # (height, width, 4)
        except OSError as error:
            self._warn(f"TensorBoard does not get the figure {name}: {error}")
        else:
            self._writer.add_image(name, pixels, self._step, dataformats="HWC")

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        """The last figures beside the settings that led to them, for TensorBoard's table of runs."""
        figures = {f"final/{name}": value for name, value in summary.get("figures", {}).items()}
        for tag, value in figures.items():
            self._point(tag, value)
        # Into this file: add_hparams would make a run of its own in a folder below.
        parts = hparams(self._settings, figures) if figures else ()  # type: ignore[no-untyped-call]
        for part in parts:
            self._writer.file_writer.add_summary(part, self._step)
        why = summary.get("why")
        self._writer.add_text("status", f"{status}: {why}" if why else status, self._step)
        self._writer.close()

    def _point(self, tag: str, value: float) -> None:
        if self._newest.get(tag) == self._step:  # the row of the test set repeats the epoch
            return
        self._newest[tag] = self._step
        # In single precision: TensorBoard's fast reader leaves points in double precision out.
        self._writer.add_scalar(tag, value, self._step)
