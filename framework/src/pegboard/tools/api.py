"""The Python interface: `train`, `resume`, `plan`, `load` and the `Run` they speak of."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..base.errors import PegboardError
from ..base.files import follow
from ..config.accepted_types import kind_of
from ..config.check import check
from ..planning import plan as planning
from ..planning.plan import make_plan
from ..store.names import CONFIG, METRICS, SUMMARY

if TYPE_CHECKING:
    from torch import nn


class Run:
    """A run folder. `figures` are its last measurements, `history` the rows of metrics.jsonl.

    That of a cross-validation has its `folds`, each a run; its `figures` are their means.
    """

    def __init__(self, folder: str | Path) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise PegboardError(f"found {kind_of(folder)}, expected the path of a run folder")
        self.folder = follow(Path(folder))
        if not (self.folder / CONFIG).is_file():
            from ..store.run_reader import not_a_run

            raise PegboardError(not_a_run(self.folder))

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.status}, {self.figures})"

    @property
    def summary(self) -> dict[str, Any]:
        """How it ended: status, seconds, steps, the best step and the figures."""
        path = self.folder / SUMMARY
        try:
            found = dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}
        except (ValueError, TypeError, RecursionError) as error:
            raise PegboardError(f"cannot read {path}: {error}") from None
        return {"status": "unfinished", **found}

    @property
    def status(self) -> str:
        return str(self.summary["status"])

    @property
    def figures(self) -> dict[str, float]:
        return dict(self.summary.get("figures", {}))

    @property
    def diagnosis(self) -> dict[str, Any]:
        """The figures of each split, the gap between them, and a verdict with its rule."""
        return dict(self.summary.get("diagnosis", {}))

    @property
    def reference(self) -> dict[str, Any]:
        """The optimum that the config names, its figures, and the gap to it."""
        return dict(self.summary.get("reference", {}))

    @property
    def folds(self) -> list[Run]:
        """The runs of a cross-validation that have begun; none of a single run."""
        from ..store.run_reader import fold_count, fold_folder

        places = (fold_folder(self.folder, number) for number in range(fold_count(self.folder)))
        return [Run(place) for place in places if (place / CONFIG).is_file()]

    @property
    def history(self) -> list[dict[str, Any]]:
        from ..store.run_folder import MetricsFile

        return MetricsFile.read(self.folder / METRICS)

    @cached_property
    def model(self) -> nn.Module:
        """The best model of the run, in eval mode on the CPU."""
        return load(self.folder)


class Plan(planning.Plan):
    """A config that was resolved, checked and wired, before anything is allocated."""

    def explain(self, strict: bool = False) -> str:
        """What will happen, in one screen; run on the meta device. `strict`: not if it waits on a GPU."""
        from ..preview.explain import explain

        return explain(self, strict)

    def trace(self, device: str = "meta") -> list[str]:
        """What one training step calls, in order, recorded while it runs on a device."""
        from ..preview.explain import trace

        return trace(self, device)


def plan(config: str | Path | Mapping[str, Any], *overrides: str) -> Plan:
    """Resolve, check and wire a config. Nothing is allocated; data is read only where its spec needs it."""
    return cast(Plan, make_plan(check(config, overrides), read=False, kind=Plan))


def train(
    config: str | Path | Mapping[str, Any],
    *overrides: str,
    root: str | Path = "runs",
    quiet: bool = False,
    profile: bool = False,
    strict: bool = False,
    from_run: str | Path | Run | None = None,
    other_data: bool = False,
    inexact: bool = False,
) -> Run:
    """Train a config to its end in a new folder below `root`.

    What would wait for the device in every step on a GPU is a warning, with `strict` an error. With
    `profile`, the folder also holds `profile/`: a trace of some steps and where the time went. With
    `from_run` the new run goes on from where that one stands, as `resume` with overrides does in its folder;
    the config may differ from that of the run in its length, and in what leaves no trace in the weights.
    """
    from ..report.console import Console
    from ..run.training import Manner
    from . import cross_validation

    if from_run is not None:
        from ..run.resume import Resumption, continue_run

        origin = from_run.folder if isinstance(from_run, Run) else Path(from_run)
        if profile:
            raise PegboardError("profile is for a run from its beginning: leave from_run or profile out")
        how = Resumption(overrides=overrides, other_data=other_data, inexact=inexact)
        settings = check(config, overrides)
        return Run(continue_run(settings, origin, Path(root), Console(quiet), how))
    console = Console(quiet)
    if not profile:
        settings = check(config, overrides)
        return Run(cross_validation.train(settings, Path(root), console, Manner(strict=strict)))
    from .ledger import Ledger

    with Ledger() as ledger:
        ledger.console = console
        with ledger.phase("check"):
            settings = check(config, overrides)
        return Run(cross_validation.train(settings, Path(root), console, Manner(ledger, strict)))


def resume(
    run: str | Path | Run,
    quiet: bool = False,
    *,
    local: Sequence[str | Path] = (),
    overrides: Sequence[str] = (),
    other_data: bool = False,
    inexact: bool = False,
) -> Run:
    """Go on with a run that was interrupted, from its last checkpoint.

    By `overrides`, as `["trainer.epochs=40"]`, also a finished one goes on, as if it had been asked for so
    from the beginning. Where it cannot, as with a schedule that depends on the length of the run, that is an
    error that says what differs; with `inexact` the run goes on all the same.
    A run folder executes nothing by itself: local plugins that its config names are given in `local`,
    unless this process has used them already. Data that is not that of the run is an error; with
    `other_data` the run goes on with it, and environment.json notes from which step on.
    """
    from ..report.console import Console
    from ..run.resume import Resumption
    from . import cross_validation

    found = run if isinstance(run, Run) else Run(run)
    how = Resumption(local=local, overrides=overrides, other_data=other_data, inexact=inexact)
    cross_validation.resume(found.folder, Console(quiet), how)
    return Run(found.folder)


def load(
    ref: str | Path | Run,
    device: str = "cpu",
    which: str = "best",
    *,
    strict: bool = True,
    local: Sequence[str | Path] = (),
) -> nn.Module:
    """The trained model of a run folder, a checkpoint folder or `zoo:name`, in eval mode.

    `which` chooses between a run's "best" and "last" checkpoint. Weights that do not fit the model are an
    error that lists their names; with `strict=False` what fits is taken. Nothing that is loaded is
    executed: local plugins that the saved config names are given in `local`, unless this process has used
    them already.
    """
    from ..inference.loading import load_model

    if not isinstance(ref, Run | str | os.PathLike):
        raise PegboardError(
            f"found {kind_of(ref)}, expected what was trained: a run, the path of a run folder or of a "
            "checkpoint, or zoo:name"
        )
    return load_model(ref.folder if isinstance(ref, Run) else ref, device, which, strict, local)[0]
