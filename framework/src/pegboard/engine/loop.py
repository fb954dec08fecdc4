"""The loop: epochs of updates, with evaluation, rows of figures and checkpoints at their boundaries.

Players train in turn; a classifier has one, so there is one loop for all. Between two boundaries
nothing but the linked step runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..contracts import Splits
from ..data import epoch_order
from ..errors import PegboardError
from ..nearest import nearest
from ..planning import Assembly
from ..regularizer import Stop
from ..specs import to_json
from . import checkpoint
from .evaluate import evaluate
from .precision import Precision
from .step import link, turns

FLUSH = 512  # losses kept apart on the device before they are summed
SPAN = 0.1  # seconds of steps between two looks at the clock


class Interrupted(PegboardError):
    """A signal asked the run to end; it was saved first."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class NotFinite(PegboardError):
    """A loss became nan or infinite; the checkpoints are from before."""


class Watcher(Protocol):
    """Who is told what happens, outside the step."""

    def advanced(self, step: int) -> None: ...
    def row(self, row: Mapping[str, Any]) -> None: ...
    def saved(self, path: Path, aliases: Sequence[str]) -> None: ...


@dataclass
class Progress:
    """Where a run is."""

    step: int = 0  # updates made
    epoch: int = 0  # epochs completed
    position: int = 0  # updates made in the current epoch
    logged: int = 0  # step of the last row
    best: float | None = None
    best_step: int = 0


class Loop:
    """Carries out an assembled plan on its data."""

    def __init__(
        self, assembly: Assembly, splits: Splits, precision: Precision, watcher: Watcher, folder: Path
    ) -> None:
        self.assembly, self.splits, self.precision = assembly, splits, precision
        self.watcher, self.folder = watcher, folder
        self.plan, self.settings = assembly.plan, assembly.plan.settings
        self.progress = Progress()
        self.halt = 0  # number of a signal that asks to stop; read after every step
        self.updates = [link(assembly, kit, precision) for kit in assembly.kits]
        self.turns = turns(assembly.kits)
        self.losses: list[list[Tensor]] = [[] for _ in assembly.kits]
        self.metrics = {name: m.to(assembly.device) for name, m in assembly.objective.metrics().items()}
        self.monitor, self.higher = self._choose_monitor()
        batch = self.settings.batches.batch_size
        self.eval_batch = self.settings.batches.eval_batch_size or 4 * batch

    def _choose_monitor(self) -> tuple[str, bool]:
        """The figure that decides which checkpoint is best, and whether more of it is better."""
        trainer, objective = self.settings.trainer, self.assembly.objective
        own, mode = objective.monitor
        known = {"train/loss"} | ({f"val/{n}" for n in ("loss", *self.metrics)} if self.splits.val else set())
        if trainer.monitor is None:
            name = f"val/{own}" if self.splits.val else "train/loss"
            mode = mode if name == f"val/{own}" else "min"
        elif trainer.monitor in known:
            name = trainer.monitor
            metric = self.metrics.get(name.removeprefix("val/"))
            if name != f"val/{own}":
                mode = "max" if getattr(metric, "higher_is_better", False) else "min"
        else:
            near = nearest(trainer.monitor, known)
            raise PegboardError(
                f"trainer.monitor is {trainer.monitor!r}, which this run does not measure: expected one of "
                f"{', '.join(sorted(known))}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        return name, (trainer.mode or mode) == "max"

    def groups(self, epoch: int) -> list[tuple[Tensor, ...]]:
        """The updates of an epoch: for each, the sample numbers of its batches, on the device."""
        options, trainer = self.settings.batches, self.settings.trainer
        order = epoch_order(len(self.splits.train), self.settings.seed, epoch, options.shuffle)
        parts = torch.split(order.to(self.assembly.device), options.batch_size)
        if options.drop_last and len(parts[-1]) < options.batch_size:
            parts = parts[:-1]
        if not parts:
            raise PegboardError(
                f"data.drop_last leaves no batch: batch_size is {options.batch_size}, the training split "
                f"has {len(self.splits.train)} samples"
            )
        return [parts[i : i + trainer.accumulate] for i in range(0, len(parts), trainer.accumulate)]

    def run(self) -> str | None:
        """Train to the end of the plan. Returns why a trick stopped it earlier, or None."""
        self.assembly.model.train()
        progress, plan = self.progress, self.plan
        assert plan.steps is not None
        while progress.step < plan.steps:
            groups = self.groups(progress.epoch)
            last = min(len(groups), progress.position + plan.steps - progress.step)
            every, chunk = self.settings.trainer.log_every, 1
            while progress.position < last:
                started = time.monotonic()
                self.span(groups, min(last, progress.position + min(chunk, every - progress.step % every)))
                if self.halt:
                    self._interrupted()
                if progress.step % every == 0 and progress.position < last:
                    self.watcher.row(self._row())
                # Spans are long enough to cost nothing and short enough for a living progress bar.
                chunk = chunk * 2 if time.monotonic() - started < SPAN else max(chunk // 2, 1)
                self.watcher.advanced(progress.step)
            if progress.position == len(groups):
                progress.epoch, progress.position = progress.epoch + 1, 0
            why = self._end_of_epoch(final=progress.step >= plan.steps)
            if why is not None:
                return why
        return None

    def span(self, groups: Sequence[tuple[Tensor, ...]], until: int) -> None:
        """The hot loop: updates up to a position in the epoch, and nothing else."""
        progress, gather, updates, turns = self.progress, self.splits.train.gather, self.updates, self.turns
        losses, cycle = self.losses, len(self.turns)
        for at in range(progress.position, until):
            batches = [gather(index) for index in groups[at]]
            step = progress.step
            for player in turns[step % cycle]:
                losses[player].append(updates[player](batches, step))
            progress.step = step + 1
            progress.position = at + 1
            if self.halt or len(losses[0]) >= FLUSH:
                break
        if len(losses[0]) >= FLUSH:
            self._check_finite()
            self.losses = [[torch.stack(kept).sum()] for kept in losses]

    def _check_finite(self) -> list[float]:
        """The sum of each player's pending losses; one that is not finite ends the run."""
        sums = [float(torch.stack(kept).sum()) if kept else 0.0 for kept in self.losses]
        for kit, kept, total in zip(self.assembly.kits, self.losses, sums, strict=True):
            if kept and not abs(total) < float("inf"):
                bad = (~torch.isfinite(torch.stack(kept))).nonzero()
                first = self.progress.step - len(kept) + int(bad[0]) + 1 if len(bad) else self.progress.step
                raise NotFinite(
                    f"the loss of player {kit.player.name!r} was not finite at step {first}; the checkpoints "
                    f"in {self.folder / 'checkpoints'} are from before\n"
                    "a smaller optimizer.lr, a warm-up or clipping usually mends it"
                )
        return sums

    def _row(self) -> dict[str, Any]:
        """A row with the mean training loss since the row before."""
        progress, sums = self.progress, self._check_finite()
        row: dict[str, Any] = {"step": progress.step, "epoch": round(progress.step / self.steps_per_epoch, 4)}
        names = [kit.player.name for kit in self.assembly.kits]
        since = range(progress.logged, progress.step)
        for player, name in enumerate(names):
            count = sum(player in self.turns[step % len(self.turns)] for step in since)
            row["train/loss" if len(names) == 1 else f"train/{name}/loss"] = sums[player] / max(count, 1)
        row["lr"] = self.assembly.kits[0].optimizer.param_groups[0]["lr"]
        self.losses = [[] for _ in names]
        progress.logged = progress.step
        return row

    @property
    def steps_per_epoch(self) -> int:
        batches = self.plan.batches_per_epoch
        assert batches is not None
        return max(math.ceil(batches / self.settings.trainer.accumulate), 1)

    def _end_of_epoch(self, final: bool) -> str | None:
        """A row, an evaluation and a checkpoint where they are due; why a trick stops the run."""
        progress = self.progress
        due = final or progress.epoch % self.settings.trainer.eval_every == 0
        row = self._row()
        if due and self.splits.val is not None:
            measured = self.evaluate("val")
            row |= {f"val/{name}": value for name, value in measured.items()}
        self.watcher.row(row)
        if not due:
            return None
        why = None
        for kit in self.assembly.kits[:1]:
            for key, judge in self.assembly.linked("after_eval", kit.player.name):
                verdict = judge(row)
                if isinstance(verdict, Stop):
                    why = why or f"{key}: {verdict}"
        value = row[self.monitor]
        better = progress.best is None or (value > progress.best if self.higher else value < progress.best)
        if better:
            progress.best, progress.best_step = value, progress.step
        self.save(("last", "best") if better else ("last",), row)
        return why

    def evaluate(self, split: str) -> dict[str, float]:
        """Loss and metrics of a split."""
        source = getattr(self.splits, split)
        a = self.assembly
        return evaluate(a.model, a.objective, self.metrics, source, self.eval_batch, a.device, self.precision)

    def _interrupted(self) -> None:
        self.save(("last",), {})
        raise Interrupted(
            f"stopped by a signal after step {self.progress.step}, saved; go on with: "
            f"pegboard resume {self.folder}",
            self.halt,
        )

    def save(self, aliases: Sequence[str], figures: Mapping[str, Any]) -> None:
        """Write a checkpoint, point the aliases at it and remove those nobody points at."""
        manifest = {
            "step": self.progress.step,
            "epoch": self.progress.epoch,
            "figures": {k: v for k, v in figures.items() if isinstance(v, int | float)},
            "plugins": self.plan.fingerprint(),
            "spec": to_json(self.plan.spec),
            "parts": {path: entry.qualified for path, entry in self.plan.entries()},
        }
        folder = self.folder / "checkpoints"
        path = checkpoint.save(folder, self.assembly.model, self.state_dict(), manifest)
        for alias in aliases:
            checkpoint.point(folder, alias, path)
        checkpoint.prune(folder)
        self.watcher.saved(path, aliases)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs besides the weights."""
        a = self.assembly
        rng = {"cpu": torch.get_rng_state()}
        if a.device.startswith("cuda"):
            rng["cuda"] = torch.cuda.get_rng_state(a.device)
        return {
            "progress": asdict(self.progress),
            "optimizers": [kit.optimizer.state_dict() for kit in a.kits],
            "scaler": self.precision.scaler.state_dict() if self.precision.scaler else {},
            "tricks": {key: trick.state_dict() for key, trick in a.tricks.items()},
            "rng": rng,
            "generators": {name: g.get_state() for name, g in a.generators.items()},
            "losses": [torch.stack(kept) if kept else torch.zeros(0) for kept in self.losses],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, into a loop made from the same plan."""
        a = self.assembly
        self.progress = Progress(**state["progress"])
        for kit, saved in zip(a.kits, state["optimizers"], strict=True):
            kit.optimizer.load_state_dict(saved)
        self.updates = [link(a, kit, self.precision) for kit in a.kits]  # their groups are new objects
        if self.precision.scaler:
            self.precision.scaler.load_state_dict(state["scaler"])
        for key, trick in a.tricks.items():
            trick.load_state_dict(state["tricks"][key])
        torch.set_rng_state(state["rng"]["cpu"])
        if "cuda" in state["rng"] and a.device.startswith("cuda"):
            torch.cuda.set_rng_state(state["rng"]["cuda"], a.device)
        for name, generator_state in state["generators"].items():
            if name in a.generators:
                a.generators[name].set_state(generator_state)
        self.losses = [list(kept.to(a.device)) for kept in state["losses"]]
