"""The loop: epochs of updates, with evaluation, rows of figures and checkpoints at their boundaries.

Players train in turn; a classifier has one, so there is one loop for all. Between two boundaries
nothing but the linked step runs.
"""

from __future__ import annotations

import itertools
import math
import shlex
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import torch
from torch import Tensor

from ..base.errors import PegboardError
from ..contract.results import Batch, Splits
from ..contract.stepping import FLUSH
from ..contract.tricks import Stop
from ..data import Batches, Groups, least_samples, reading, unweighted
from ..planning.plan import Assembly, begin_eval_weights, private_rng
from ..registry.spec_names import to_json
from ..store import checkpoint
from ..store.names import CHECKPOINTS
from .evaluate import Evaluator, Halted, reading_batches
from .guard import NotFinite
from .monitor import choose_monitor, loss_names
from .precision import Precision
from .precompute import prepare
from .step import make_step, turns

if TYPE_CHECKING:
    from ..contract.stepping import Group

SPAN = 0.1  # seconds of steps between two looks at the clock
SCALED = 2.0**-14  # a loss that is scaled by less is smaller than what fp16 has normal numbers for


class Interrupted(PegboardError):
    """A signal asked the run to end; it was saved first."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class Watcher(Protocol):
    """Who is told what happens, outside the step."""

    def advanced(self, step: int) -> None: ...
    def row(self, row: Mapping[str, Any]) -> None: ...
    def saved(self, path: Path, aliases: Sequence[str]) -> None: ...
    def note(self, text: str) -> None: ...
    def working(self, total: int, unit: str) -> AbstractContextManager[Callable[[int], None]]: ...
    def epoch_ended(self, loop: Loop) -> None: ...


@dataclass
class Progress:
    """Where a run is."""

    step: int = 0  # updates made
    epoch: int = 0  # epochs completed
    position: int = 0  # updates made in the current epoch
    logged: int = 0  # step of the last row
    stopped: str = ""  # why a trick or the optimizer ended the run
    asked: int = 0  # step at which what comes once after an epoch came: is the optimizer finished?
    finished: str = ""  # what it said
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
        # What is drawn by its weight does not weigh more besides.
        weighted = self.settings.batches.sampling == "weighted"
        self.train = unweighted(splits.train) if weighted else splits.train
        assert self.plan.sampler is not None
        self.sampler = self.plan.sampler
        self.least = least_samples(assembly.model)
        self.progress = Progress()
        self.halt = 0  # number of a signal that asks to stop; read after every step
        begin_eval_weights(assembly)
        prepare(assembly, self.train, watcher.working)
        self.linked = [make_step(assembly, kit, precision) for kit in assembly.kits]
        self.turns = turns(assembly.kits)
        self.stepper = assembly.stepping
        self.stepper.loop = self
        self.losses: list[list[Tensor]] = [[] for _ in assembly.kits]  # since the last flush
        wide = torch.float32 if assembly.device.startswith("mps") else torch.float64  # which has none wider
        self.sums = [torch.zeros(1, dtype=wide, device=assembly.device) for _ in assembly.kits]
        self.counts = [torch.zeros((), dtype=torch.long, device=assembly.device) for _ in assembly.kits]
        self.saved_at, self.saved_step = time.monotonic(), 0
        keep = self.settings.trainer.keep
        self.saver = checkpoint.Saver(folder / CHECKPOINTS, keep, watcher.saved, self.go_on)
        self.metrics = {name: m.to(assembly.device) for name, m in assembly.objective.metrics().items()}
        self.monitor, self.higher = choose_monitor(assembly, splits)
        self.eval_batch = self.settings.batches.eval_size

    def groups(self, epoch: int) -> Sequence[Group]:
        """The updates of an epoch: for each, the sample numbers of its batches, on the device it wants."""
        source, together = self.train, self.settings.trainer.accumulate
        order, size = self.sampler.order(epoch), self.sampler.size(epoch)
        if (pieces := self.sampler.pieces(epoch, order, self.least)) is not None:
            return [
                tuple(itertools.chain(*pieces[i : i + together])) for i in range(0, len(pieces), together)
            ]
        if source.streamed:  # of what is read from disk there may be more than lists have room for
            return Groups(Batches(order, size), together)
        if not source.index_on_cpu:
            order = order.to(self.assembly.device)
        parts = torch.split(order, size)
        return [parts[i : i + together] for i in range(0, len(parts), together)]

    def run(self) -> str | None:
        """Train to the end of the plan. Returns why a trick or the optimizer stopped it earlier, or None."""
        try:
            self._run()
        except BaseException:
            with suppress(PegboardError):  # which would hide what happened before
                self.saver.settle()
            raise
        self.saver.settle()
        return self.progress.stopped or None

    def _run(self) -> None:
        self.assembly.model.train()
        progress, plan = self.progress, self.plan
        assert plan.steps is not None
        self.stepper.begin()
        if progress.step == 0:
            self.save(("last",), {})  # from here on, whatever happens, there is something to resume
        chunk = 1
        # A run that was stopped after its last update still has to measure it.
        while (progress.step < plan.steps or progress.logged < progress.step) and not progress.stopped:
            groups = self.groups(progress.epoch)
            last = min(len(groups), progress.position + plan.steps - progress.step)
            self._read_ahead(groups[progress.position : last])
            while progress.position < last:
                started = time.monotonic()
                until = min(last, progress.position + min(chunk, self._next_event()))
                self.span(groups, until, last)
                if progress.position < last:
                    self._between()
                if self.halt:
                    self._interrupted()
                # Spans are long enough to cost nothing and short enough for a living progress bar.
                chunk = chunk * 2 if time.monotonic() - started < SPAN else max(chunk // 2, 1)
                self.watcher.advanced(progress.step)
            self._end_of_epoch(whole=progress.position == len(groups))

    def _next_event(self) -> int:
        """Steps until a row or a checkpoint is due."""
        step, trainer = self.progress.step, self.settings.trainer
        row = trainer.log_every - step % trainer.log_every
        return row if trainer.save_every is None else min(row, trainer.save_every - step % trainer.save_every)

    def _between(self) -> None:
        """A row or a checkpoint inside an epoch, where one is due."""
        step, trainer = self.progress.step, self.settings.trainer
        if step // trainer.log_every > self.progress.logged // trainer.log_every:
            self.watcher.row(self._row())
        every = trainer.save_every
        if (
            every is not None and step // every > self.saved_step // every
        ) or time.monotonic() - self.saved_at > trainer.save_minutes * 60:
            self.save(("last",), {})

    def _read_ahead(self, groups: Sequence[Group]) -> None:
        """Tell a source that reads from disk which batches come next."""
        if self.train.streamed:
            batches = groups.batches if isinstance(groups, Groups) else list(itertools.chain(*groups))
            self.train.begin(batches, self.settings.batches.workers, self.progress.epoch)

    def full(self) -> bool:
        """Whether the losses kept apart are so many that they must be summed, or a signal asks to stop."""
        return bool(self.halt) or len(self.losses[0]) >= FLUSH

    def span(self, groups: Sequence[Group], until: int, last: int | None = None) -> None:
        """Updates up to a position in the epoch; some steppers go past it, though not past `last`."""
        self.stepper.advance(groups, until, until if last is None else last)

    def flush_if_full(self) -> None:
        if len(self.losses[0]) >= FLUSH:
            self._flush()

    def _flush(self) -> None:
        """Add the pending losses to the sums, leaving out those of updates that were skipped."""
        for player, kept in enumerate(self.losses):
            if kept:
                losses = torch.stack(kept)
                finite = torch.isfinite(losses)
                total = self.sums[player]
                total += torch.where(finite, losses, 0).sum(dtype=total.dtype)
                self.counts[player] += finite.sum()
                kept.clear()

    def _means(self) -> dict[str, float]:
        """The mean loss of each player that moved since the row before; if none was finite, the run ends."""
        self._flush()
        self.check_finite()
        counts = [int(c) for c in self.counts]
        if self.progress.step > self.progress.logged and not any(counts):
            raise NotFinite(f"no update since step {self.progress.logged} had a finite loss")
        named = zip(loss_names(self.assembly), self.sums, counts, strict=True)
        means = {name: float(total) / count for name, total, count in named if count}
        for total in (*self.sums, *self.counts):
            total.zero_()
        return means

    def check_finite(self) -> None:
        """End the run where a device refused an update since the last time it was asked, or a scaler all."""
        scaler = self.precision.scaler
        if scaler is not None and scaler.get_scale() < SCALED:
            raise NotFinite(
                f"gradients were not finite however little the loss was scaled, at step {self.progress.step} "
                f"by {scaler.get_scale():.1g}"
            )
        for player, linked in enumerate(self.linked):
            good = linked.guard.good_updates() if linked.guard is not None else None
            if linked.guard is not None and good is not None:
                moves = (
                    s for s in itertools.count(linked.guard.base) if player in self.turns[s % len(self.turns)]
                )
                raise NotFinite(self._second_look(player, next(itertools.islice(moves, good, None)) + 1))

    def _second_look(self, player: int, step: int) -> str:
        """Repeat the step that the device refused, to say which number was not finite."""
        linked = self.linked[player]
        assert linked.guard is not None
        at = self.progress.position - (self.progress.step - step + 1)
        batches = [self.train.gather(i) for i in self.groups(self.progress.epoch)[at]]
        loss, grads = linked.gradients(batches)
        return linked.guard.describe(loss, grads, linked.params, step)

    def _row(self) -> dict[str, Any]:
        """A row with the mean training loss since the row before."""
        progress = self.progress
        row: dict[str, Any] = {"step": progress.step, "epoch": self.epochs} | self._means()
        row["lr"] = self.assembly.kits[0].optimizer.param_groups[0]["lr"]
        skipped = sum(linked.guard.skipped for linked in self.linked if linked.guard is not None)
        if skipped:
            row["skipped"] = skipped
        progress.logged = progress.step
        return row

    @property
    def epochs(self) -> float:
        """Epochs made, with the part of the current one, as rows show them."""
        progress = self.progress
        part = progress.position / self.sampler.updates(progress.epoch) if progress.position else 0.0
        return round(progress.epoch + part, 4)

    def _end_of_epoch(self, whole: bool) -> None:
        """An evaluation, a row and a checkpoint where they are due.

        Until the evaluation is done nothing has moved on, so that a run stopped in it repeats it.
        """
        progress = self.progress
        if whole and progress.asked < progress.step:
            progress.asked, progress.finished = progress.step, self._finished()
            self._after_epoch()
        final = progress.step >= (self.plan.steps or 0) or bool(progress.finished)
        due = final or (progress.epoch + 1) % self.settings.trainer.eval_every == 0
        measured: dict[str, float] = {}
        if due and self.splits.val is not None:
            try:
                with self.eval_weights():
                    measured = self.evaluate("val")
            except Halted:
                self._interrupted()
        row = self._row() | {f"val/{name}": value for name, value in measured.items()}
        self.watcher.row(row)
        if whole:
            progress.epoch, progress.position = progress.epoch + 1, 0
            self.watcher.epoch_ended(self)
        if not due:
            return
        for key, judge in self.assembly.linked("after_eval", self.assembly.kits[0].player.name):
            verdict = judge(row)
            if isinstance(verdict, Stop) and not progress.stopped:
                progress.stopped = f"{key}: {verdict}"
        if progress.finished and not progress.stopped:
            progress.stopped = f"optimizer: {progress.finished}"
        value, best = row.get(self.monitor, math.nan), progress.best
        # Whatever comes after a nan is better than it, for else nothing ever would be.
        better = best is None or math.isnan(best) or (value > best if self.higher else value < best)
        if better:
            progress.best, progress.best_step = value, progress.step
        self.save(("last", "best") if better else ("last",), row)

    def _after_epoch(self) -> None:
        """Let tricks that keep weights for evaluation look at an epoch that was made."""
        for kit in self.assembly.kits:
            if kit.eval_weights is not None and (act := kit.eval_weights[1].after_epoch) is not None:
                with private_rng(self.settings.seed, "after_epoch", device=self.assembly.device):
                    act(self.assembly.model, self._samples())

    def _samples(self) -> Iterator[Batch]:
        """The training samples in order, in batches as large as those of a step."""
        size = self.sampler.size(self.progress.epoch)
        numbers = reading_batches(self.train, self.assembly.device, size)
        with reading(self.train, numbers, self.settings.batches.workers) as batches:
            yield from batches

    def _finished(self) -> str:
        """Why the optimizers of all players have nothing left to do, or ""."""
        asked = [getattr(kit.optimizer, "finished", None) for kit in self.assembly.kits]
        said = [ask() if ask is not None else None for ask in asked]
        return "; ".join(text or "" for text in said) if all(said) else ""

    @property
    def evaluator(self) -> Evaluator:
        """What measures the model of this run, and others like it."""
        return Evaluator(
            objective=self.assembly.objective,
            precision=self.precision,
            metrics=self.metrics,
            batch_size=self.eval_batch,
            device=self.assembly.device,
            workers=self.settings.batches.workers,
            seed=self.settings.seed,
            halted=lambda: self.halt,
        )

    def evaluate(self, split: str) -> dict[str, float]:
        """Loss and metrics of a split."""
        return self.evaluator.measure(self.assembly.model, getattr(self.splits, split))

    def _interrupted(self) -> NoReturn:
        if self.saved_step != self.progress.step:  # else what is there has the figures of its evaluation
            self.save(("last",), {})
        self.saver.settle()
        raise self.interrupted()

    def interrupted(self) -> Interrupted:
        """What ends a run that a signal asked to end, once it is saved."""
        text = f"stopped by a signal after step {self.progress.step}, saved; go on with: {self.go_on}"
        return Interrupted(text, self.halt)

    @property
    def go_on(self) -> str:
        """The command that takes the run up again."""
        local = [word for path in self.settings.plugins.local for word in ("--local", path)]
        return shlex.join(["pegboard", "resume", str(self.folder), *local])

    def save(self, aliases: Sequence[str], figures: Mapping[str, Any]) -> None:
        """Write a checkpoint to which the aliases will point."""
        self.check_finite()  # what a device refused must not look like progress
        state = self.state_dict()
        registry = self.plan.settings.registry
        names = None if registry is None else registry.specs.name
        manifest = {
            "step": self.progress.step,
            "epoch": self.progress.epoch,
            "figures": {k: v for k, v in figures.items() if isinstance(v, int | float)},
            "plugins": self.plan.fingerprint(),
            "spec": to_json(self.plan.spec, names),
            "parts": {path: entry.qualified for path, entry in self.plan.entries()},
        }
        with self.eval_weights():
            self.saver.save(self.assembly.model, state, manifest, aliases)
        self.saved_at, self.saved_step = time.monotonic(), self.progress.step

    @contextmanager
    def eval_weights(self) -> Iterator[None]:
        """The model with the weights that tricks keep for evaluation, where they do; then as it was."""
        others = self._kept(use=True)
        places = self._places(others)
        trained = {name: tensor.clone() for name, tensor in places.items()}
        try:
            self._put(places, others)
            yield
        finally:
            self._put(places, trained)

    def _kept(self, use: bool) -> dict[str, Tensor]:
        """The weights beside those that are trained, which evaluations use or do not use."""
        kept = [kit.eval_weights[1] for kit in self.assembly.kits if kit.eval_weights is not None]
        return {name: tensor for each in kept if each.use is use for name, tensor in each.weights.items()}

    def _places(self, names: Container[str]) -> dict[str, Tensor]:
        """The parameters and buffers of the model with these names."""
        model = self.assembly.model
        named = itertools.chain(model.named_parameters(), model.named_buffers())
        return {name: tensor.detach() for name, tensor in named if name in names}

    @staticmethod
    def _put(places: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
        for name, tensor in places.items():
            tensor.copy_(values[name])

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs besides the weights."""
        a = self.assembly
        rng = {"cpu": torch.get_rng_state()}
        if a.device.startswith("cuda"):
            rng["cuda"] = torch.cuda.get_rng_state(a.device)
        return {
            "progress": dict(vars(self.progress)),
            "optimizers": [kit.optimizer.state_dict() for kit in a.kits],
            "scaler": self.precision.scaler.state_dict() if self.precision.scaler else {},
            "tricks": {key: trick.state_dict() for key, trick in a.tricks.items()},
            "rng": rng,
            "generators": {name: g.get_state() for name, g in a.generators.items()},
            "losses": [torch.stack(kept) if kept else torch.zeros(0) for kept in self.losses],
            "sums": [total.clone() for total in self.sums],
            "counts": [count.clone() for count in self.counts],
            # What is trained goes on from these, where the weights of the checkpoint are others.
            "trained": {name: p.clone() for name, p in self._places(self._kept(use=True)).items()},
            "eval_weights": {name: kept.clone() for name, kept in self._kept(use=False).items()},
            "stepper": self.stepper.state_dict(),
            "skipped": [linked.guard.skipped if linked.guard is not None else 0 for linked in self.linked],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, into a loop made from the same plan."""
        a = self.assembly
        self.progress = progress = Progress(**state["progress"])
        numbers = (progress.step, progress.epoch, progress.position, progress.logged, progress.best_step)
        if not all(type(n) is int and n >= 0 for n in numbers) or type(progress.best) not in (
            float,
            type(None),
        ):
            raise ValueError(f"{progress}")
        updates = self.sampler.updates(progress.epoch)
        if progress.position > updates:  # an epoch that cannot end
            raise PegboardError(
                f"the checkpoint was saved after update {progress.position} of an epoch, which now has "
                f"{updates}: put the data or config.yaml back as they were"
            )
        for kit, saved in zip(a.kits, state["optimizers"], strict=True):
            kit.optimizer.load_state_dict(saved)
        self.linked = [make_step(a, kit, self.precision) for kit in a.kits]  # their groups are new objects
        for linked, skipped in zip(self.linked, state["skipped"], strict=True):
            if linked.guard is not None:
                linked.guard.base, linked.guard.left_out = self.progress.step, skipped
        self.saved_step = self.progress.step
        self.stepper.load_state_dict(state["stepper"] if "stepper" in state else state["compiled"])
        kept = self._kept(use=True) | self._kept(use=False)
        trained = state["trained"]
        places = self._places(trained)
        self._put({name: kept[name] for name in places if name in kept}, places)
        self._put(places, trained)
        others = state.get("eval_weights", {})  # runs of before have none
        self._put({name: kept[name] for name in others if name in kept}, others)
        if self.precision.scaler:
            self.precision.scaler.load_state_dict(state["scaler"])
        for key, trick in a.tricks.items():
            trick.load_state_dict(state["tricks"].get(key, {}))  # one that was a field of the core has none
        torch.set_rng_state(state["rng"]["cpu"])
        if "cuda" in state["rng"] and a.device.startswith("cuda"):
            torch.cuda.set_rng_state(state["rng"]["cuda"], a.device)
        for name, generator_state in state["generators"].items():
            if name in a.generators:
                a.generators[name].set_state(generator_state)
        self.losses = [list(kept.to(a.device)) for kept in state["losses"]]
        self.sums = [total.to(a.device) for total in state["sums"]]
        self.counts = [count.to(a.device) for count in state["counts"]]
