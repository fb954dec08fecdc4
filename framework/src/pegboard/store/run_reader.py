"""What a run folder on disk records, read without torch and without trust in what it holds."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from ..base.errors import PegboardError
from ..base.files import beside, follow, write_text
from ..base.nearest import nearest
from ..config.errors import leaves
from ..config.load import read_yaml
from ..report.html import Contents, page
from .names import (
    CHECKPOINTS,
    CONFIG,
    CURVES,
    DATA,
    DIFF,
    ENVIRONMENT,
    FIGURES,
    FOLD,
    LATEST,
    MANIFEST,
    METRICS,
    ORIGINS,
    PAGE,
    PLAN,
    PROFILE,
    SUMMARY,
    TABLES,
    WEIGHTS,
)
from .run_folder import MetricsFile

OWN = (CHECKPOINTS, FIGURES, DATA, PROFILE)  # folders that a run reads and writes itself


class Recorded:
    """A run folder as it stands on disk; files that are damaged or not there are noted."""

    def __init__(self, path: str | Path) -> None:
        self.path = follow(Path(path))
        if not (self.path / CONFIG).is_file():
            raise PegboardError(not_a_run(self.path))
        self.notes: list[str] = []
        self.config = dict(leaves(read_yaml(self.path / CONFIG, self.path)))
        self.origins = self._json(ORIGINS)
        self.environment = self._json(ENVIRONMENT)
        self.summary = self._json(SUMMARY, quiet=True)  # an unfinished run has none

    @property
    def status(self) -> str:
        return str(self.summary.get("status", "unfinished"))

    def to_json(self) -> dict[str, Any]:
        return {"folder": str(self.path), "status": self.status, "rows": len(self.rows)}

    def _json(self, name: str, quiet: bool = False) -> dict[str, Any]:
        """A file of one object; {} where it is not there or damaged, which is noted."""
        path = self.path / name
        if not path.is_file():
            if not quiet:
                self.notes.append(f"{path} is not there, as in runs of older versions")
            return {}
        found = read_object(path)
        if found is None:
            self.notes.append(f"{path} is damaged, and left out")
        return found or {}

    @cached_property
    def runs(self) -> dict[str, Path]:
        """The folders of its runs: itself, or the folds of a cross-validation by their names."""
        folds = [fold_folder(self.path, number) for number in range(fold_count(self.path))]
        return {place.name: place for place in folds if place.is_dir()} if folds else {"": self.path}

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[Any] = []
        for path in (place / METRICS for place in self.runs.values()):
            try:
                rows += MetricsFile.read(path)
            except (OSError, ValueError, RecursionError):
                self.notes.append(f"{path} is damaged, and left out")
        return [row for row in rows if isinstance(row, dict) and isinstance(row.get("step"), int)]

    def interval(self, figure: str) -> str:
        """Where the mean of a cross-validation's figure lies; "" for a run."""
        statistics = self.summary.get("statistics")
        found = statistics.get(figure) if isinstance(statistics, dict) else None
        ends = found.get("interval") if isinstance(found, dict) else None
        if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, float) for end in ends):
            return ""
        return f"95 %: {ends[0]:.4g} to {ends[1]:.4g}"

    @cached_property
    def git_diff(self) -> str:
        path = self.path / DIFF
        if not path.is_file():
            return "none"
        data = path.read_bytes()
        return f"{data.count(10)} lines in git.diff, sha256 {hashlib.sha256(data).hexdigest()[:12]}"

    def section(self, name: str) -> dict[str, Any]:
        """A part of environment.json."""
        found = self.environment.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def other_data(self) -> str:
        """From which steps on the run went on with which other data; "" where it did not."""
        found = self.environment.get("other_data")
        changes = [change for change in found if isinstance(change, dict)] if isinstance(found, list) else []
        now = [data if isinstance(data := change.get("now"), dict) else {} for change in changes]
        pairs = zip(changes, now, strict=True)
        return ", ".join(
            f"{data.get('fingerprint')} from step {change.get('step')} on" for change, data in pairs
        )

    def checkpoints(self) -> dict[str, Checkpoint]:
        """The whole checkpoints by name: best, last, and those of single steps; fold-0/best of a fold."""
        found = {}
        for name, run in self.runs.items():
            folder = run / CHECKPOINTS
            for place in (folder / "best", folder / "last", *sorted(folder.glob("step-*"))):
                if (follow(place) / WEIGHTS).is_file():
                    found[f"{name}/{place.name}".lstrip("/")] = Checkpoint(follow(place))
        return found


class Checkpoint:
    """The weights of a run at a step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = (read_object(path / MANIFEST) if (path / MANIFEST).is_file() else None) or {}
        self.step = self.manifest.get("step", "unknown")

    @cached_property
    def digest(self) -> str:
        with (self.path / WEIGHTS).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @cached_property
    def tensors(self) -> str:
        """A hash of the tensors alone: the order of remarks in the header of the file has no meaning."""
        with (self.path / WEIGHTS).open("rb") as file:
            try:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(min(size, 100 << 20)))
                header.pop("__metadata__", None)
            except (ValueError, RecursionError, AttributeError):
                return self.digest  # no safetensors file at all
            digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    def __str__(self) -> str:
        stated = self.manifest.get("sha256")
        damaged = isinstance(stated, dict) and stated.get(WEIGHTS, self.digest) != self.digest
        wrong = ", not the hash in its manifest" if damaged else ""
        return f"step {self.step}, sha256 {self.digest[:12]}{wrong}"


def fold_count(folder: Path) -> int:
    """How many folds a folder is the cross-validation of; 0 for a run."""
    try:
        trainer = read_yaml(follow(folder) / CONFIG, follow(folder)).get("trainer")
    except PegboardError:
        return 0  # who needs the config says what is wrong with it
    given = trainer if isinstance(trainer, dict) else {}
    folds = given.get("folds")
    return folds if isinstance(folds, int) and folds > 1 and given.get("fold") is None else 0


def fold_folder(folder: Path, number: int) -> Path:
    """Where the run of a fold stands."""
    return folder / f"{FOLD}{number}"


def write_report(
    folder: str | Path, plan: str | None = None, summary: Mapping[str, Any] | None = None
) -> Path:
    """Write the page of a run, report.html, from what its folder holds.

    Who carries the run out has claimed plan.txt, so gives its text, and the summary that is not written yet.
    """
    run = Recorded(folder)
    if plan is None:  # the folder may have come from a stranger, and the page may be sent to one
        refuse_links(run.path, replaced=(PAGE, beside(run.path / PAGE).name))
    figures = sorted((run.path / FIGURES).glob("*.png"), key=lambda path: (path.name != CURVES, path))
    local = run.config.get("plugins.local")
    ended = run.summary if summary is None else summary
    contents = Contents(
        name=str(run.config.get("name", run.path.name)),
        folder=_shown(run.path),
        fold=f"{FOLD}0" if ended.get("folds") else "",  # of several none has weights itself
        summary=ended,
        config=_text(run.path / CONFIG),
        plan=_text(run.path / PLAN) if plan is None else plan,
        environment=run.environment,
        tables=run._json(TABLES, quiet=True),
        pictures={path.stem: path.read_bytes() for path in figures},
        local=[str(path) for path in local] if isinstance(local, list) else (),
    )
    made = run.path / PAGE
    write_text(made, page(contents))
    return made


def refuse_links(folder: Path, replaced: Sequence[str] = ()) -> None:
    """Refuse a run folder with a link out of it, through which a stranger has files read or written.

    Links that are `replaced` before anything is read or written through them may stand there, and those that
    trackers keep deep in folders of their own, as W&B does to its logs.
    """
    home = folder.resolve()
    for place, folders, files in os.walk(home):
        inside = Path(place).relative_to(home).parts
        if inside and inside[0] not in OWN:
            folders[:] = [name for name in folders if Path(place, name).is_symlink()]
        for path in (Path(place, name) for name in (*folders, *files)):
            end = Path(os.path.realpath(path)) if path.is_symlink() else home
            if not end.is_relative_to(home) and path not in [home / name for name in replaced]:
                raise PegboardError(
                    f"{folder / path.relative_to(home)} is a link that leads out of the run folder, "
                    f"to {end}\nremove the link, or put what it points at in its place"
                )


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.is_file() else ""


def _shown(path: Path) -> str:
    """A folder as commands name it from here, without the name of a person's home."""
    with suppress(ValueError):
        return str(path.absolute().relative_to(Path.cwd()))
    return str(path)


def read_object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def not_a_run(path: Path) -> str:
    """What to say of a path that is no run folder, with what was perhaps meant."""
    if path.is_symlink() and not path.exists():
        home = path.parent
        left = sorted(p for p in home.glob(f"*/{CONFIG}") if not p.parent.is_symlink())
        newest = f"\nthe newest that is left: {left[-1].parent}" if left else ""
        return f"{path} points to {os.readlink(path)}, a run that is gone{newest}"
    if not path.exists():
        inside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = [path.parent / name for name in nearest(path.name, inside)]
        what = f"no run at {path}"
    else:
        around = [p for p in path.parents if p.name and (p / CONFIG).is_file()]
        runs = [path / LATEST, *sorted(path.glob(f"*/{LATEST}"))] if path.is_dir() else []
        near = [*around, *(p for p in runs if (p / CONFIG).is_file())]
        what = f"{path} is not a run folder: it has no config.yaml"
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"{what}{meant}\nruns stand in runs/<name>/<time>-<id>, the newest is runs/<name>/latest"
