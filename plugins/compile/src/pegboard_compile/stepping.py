"""Whole updates as compiled graphs: forward, loss, tricks, backward and update in one.

What a graph saves is what Python and dispatch cost in a step, which for a small model is most of it. Torch
looks before every call whether a graph still fits the objects it was made from; of the updates between two
boundaries of the loop, where nothing else runs, only the first takes that way, and the others go straight to
the graph. A graph is made for full batches, another one where `data.batch_schedule` makes them larger; the
odd batch at the end of an epoch takes the ordinary step.
Between two calls a run is in the same state as between two steps, so all that looks at it does so there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from pegboard import Batch, Stepping
from pegboard.contract.results import Update
from pegboard.contract.stepping import Timer
from pegboard.data import Wrapped
from pegboard.engine.precision import Precision, choose_precision
from pegboard.engine.step import Step, make_step, turns
from pegboard.planning.plan import Assembly
from torch import Tensor

from . import Compiled, torch_private
from .estimate import TIMED, Estimate
from .graph import Graph, Unfit, flat, inductor_options, only_traced, reason, tracing
from .torch_private import differentiable_on_meta, is_compilers, last_reason, unique_graphs

if TYPE_CHECKING:
    from pegboard.contract.stepping import Group
    from pegboard.engine.loop import Loop

CALL = "compiled step"  # in a profile
SPENT = ("seconds", "graphs", "recompiled")  # what of a compilation differs from run to run


@dataclass
class Compilation:
    """Result of compilation, for the console and the summary."""

    asked: str  # trainer.compile
    level: str  # off, model or step; auto while it is not decided
    why: str = ""  # why it is not what was asked for, or what decided it
    seconds: float = 0.0  # spent on making graphs
    graphs: int = 0
    recompiled: list[str] = field(default_factory=list)  # why graphs were made again


def obstacles(assembly: Assembly, precision: Precision) -> list[str]:
    """Why a whole step cannot be one graph, as far as it is known without tracing it."""
    settings, found = assembly.plan.settings, [line for line in [torch_private.missing_for_steps()] if line]
    splits = assembly.plan.splits
    if splits is not None and splits.train.lengths is not None:
        found.append("batches of this data differ in length; data.lengths: pad makes them alike")
    if splits is not None and splits.train.varied:
        found.append("batches of this data differ in shape")
    if precision.name == "fp16":
        found.append("fp16 decides outside the graph how the loss is scaled; bf16 needs no scaling")
    for kit in assembly.kits:
        chosen = settings.player_optimizers.get(kit.player.name, (settings.optimizer, None))[0]
        name = f"optimizer {chosen.entry.part.name!r}"
        if kit.closure:
            found.append(f"{name} evaluates the loss again inside its update")
        elif kit.functional is None:
            found.append(f"{name} has no functional form")
        frozen = [n for n, p in kit.player.parameters if not p.requires_grad]
        if frozen:
            found.append(f"{frozen[0]} is frozen, and the functional form moves every parameter")
        keys = [key for key, _ in assembly.linked("after_step", kit.player.name)]
        if keys and settings.trainer.nonfinite == "skip":
            found.append(f"regularizers.{keys[0]} acts after a step that nonfinite: skip may leave out")
    return found


def functional_updates(assembly: Assembly) -> list[Update]:
    """The update of every player's optimizer, for a graph."""
    updates = []
    for kit in assembly.kits:
        update = kit.functional(kit.optimizer, True) if kit.functional is not None else None
        idle = [name for name, p in kit.player.parameters if not kit.optimizer.state.get(p)]
        if update is None and 0 < len(idle) < len(kit.player.parameters):
            raise Unfit(f"{idle[0]} got no gradient, and the functional form moves every parameter")
        if update is None:
            raise Unfit(f"the optimizer of player {kit.player.name!r} has no functional form")
        updates.append(update)
    return updates


def whole_update(
    linked: Sequence[Step],
    updates: Sequence[Update],
    turn: Sequence[int],
    gather: Callable[[Tensor], Batch],
    sums: Sequence[tuple[Tensor, Tensor]],
) -> Callable[..., list[Tensor]]:
    """One update of the players whose turn it is, as a function that can be traced."""

    def update(rates: Sequence[Tensor], index: Tensor | None, batches: Sequence[Batch]) -> list[Tensor]:
        """Nothing is returned, all happens in place; `index` of data on the device, or the batches."""
        if index is not None:
            batches = [gather(rows) for rows in index.unbind()]
        for player in turn:
            step = linked[player]
            loss = step.update_in_graph(batches, rates[player].unbind(), updates[player]).reshape(())
            finite = torch.isfinite(loss)
            total, count = sums[player]
            total.add_(torch.where(finite, loss, 0))
            count.add_(finite)
        return []

    # Torch keeps graphs with the code of a function, and those of other runs in this process would count.
    update.__code__ = update.__code__.replace()
    return update


def try_trace(
    assembly: Assembly, linked: Sequence[Step], turn: Sequence[int], batches: Sequence[Batch]
) -> str:
    """Why a step that was made once cannot be traced whole, or "": nothing is compiled, nothing computed."""
    if why := torch_private.missing_for_trials():
        return why
    rates = [torch.ones(len(k.optimizer.param_groups), device=assembly.device) for k in assembly.kits]
    sums = [(torch.zeros(1, device=assembly.device),) * 2 for _ in assembly.kits]
    with tracing(), differentiable_on_meta():
        try:
            function = whole_update(linked, functional_updates(assembly), turn, lambda rows: batches[0], sums)
            backend = only_traced
            torch.compile(function, backend=backend, fullgraph=True, dynamic=False)(rates, None, batches)
        except Unfit as error:
            return str(error)
        except Exception as error:
            if not is_compilers(error):
                raise
            return reason(error, assembly.plan)
        finally:
            torch.compiler.reset()
    return ""


class Graphs:
    """The updates of a run as graphs: one for each position in the cycle of the players' turns."""

    def __init__(self, loop: Loop, sizes: Sequence[int], config: Compiled) -> None:
        self.loop, self.assembly = loop, loop.assembly
        self.sizes = sizes  # of the batches of an update
        self.updates = functional_updates(self.assembly)
        self.checked = set[int]()  # positions in the cycle whose graph was checked since others had a say
        sums = list(zip(loop.sums, loop.counts, strict=True))
        if self.assembly.device.startswith("cuda"):
            for tensor in flat([self._kept(), sums]):
                torch_private.keep_in_place(tensor)
        options = inductor_options(config.compile_mode, self.assembly.device, config.steps_per_call)
        # Past a wrapper, which would be called while a graph is made and never again.
        gather = (loop.train.resident or loop.train).gather
        self.graphs = [
            Graph(whole_update(loop.linked, self.updates, turn, gather, sums), options, loop.plan)
            for turn in loop.turns
        ]

    def _kept(self) -> list[Any]:
        """What stays where it is in memory, so that a GPU's replay of a graph need not copy it."""
        data, guards = self.loop.train.resident, [linked.guard for linked in self.loop.linked]
        kept: list[Any] = [linked.followers for linked in self.loop.linked]
        kept += [list(state.values()) for kit in self.assembly.kits for state in kit.optimizer.state.values()]
        kept += [[g.found, g.one, g.clean, g.undone] for g in guards if g is not None]
        return kept if data is None else [*kept, data.inputs, data.target, data.weight]

    @property
    def made(self) -> int:
        """How many graphs were compiled."""
        return sum(graph.made for graph in self.graphs)

    def call(self, groups: Sequence[Group], step: int) -> None:
        """Make the updates of these groups, the first of which is number `step`, and add up their losses."""
        loop, train, cycle = self.loop, self.loop.train, len(self.loop.turns)
        rates = [self._rates(player, step, len(groups)) for player in range(len(self.updates))]
        index: Sequence[Tensor] | None = None
        if train.resident is not None and len(set(self.sizes)) == 1:  # else an epoch is one odd update
            numbers = torch.stack([rows for group in groups for rows in group])
            index = numbers.view(len(groups), -1, numbers.shape[-1]).unbind()
        for at, group in enumerate(groups):
            phase = (step + at) % cycle
            now, graph = [of[at] for of in rates], self.graphs[phase]
            if index is not None and isinstance(train, Wrapped):
                for rows in group:
                    train.gathered(rows)
            # Batches that are read may differ in shape, which only the checks would see.
            if index is None:
                graph.checked(now, None, [train.gather(rows) for rows in group])
            elif phase not in self.checked or not graph.direct([*now, index[at]]):
                graph.checked(now, index[at], [])
                self.checked.add(phase)
            loop.progress.step += 1
            loop.progress.position += 1

    def _rates(self, player: int, step: int, count: int) -> Sequence[Tensor]:
        """Learning rates of all groups for each update; the groups are left with the last of them."""
        kit, turns = self.assembly.kits[player], self.loop.turns
        groups = kit.optimizer.param_groups
        rows = []
        for at in range(step, step + count):
            if kit.schedule is not None and player in turns[at % len(turns)]:
                factor = kit.schedule(at)
                for group in groups:
                    group["lr"] = group["initial_lr"] * factor
            rows.append([group["lr"] for group in groups])
        return torch.tensor(rows, dtype=torch.float32).to(self.assembly.device, non_blocking=True).unbind()


class CompiledStepping(Stepping):
    """Updates as graphs: decides what of a run is compiled, and goes back to less where it must."""

    def __init__(self, config: Compiled) -> None:
        self.config, self.eager = config, config.compile != "step"
        self.made = Compilation(config.compile, config.compile)
        self.graphs: Graphs | None = None
        self.counting = False  # whether the guards count from the first update of a graph
        self.estimate: Estimate | None = None
        self.times: list[float] = []  # seconds of updates made by graphs, while `auto` compares
        self.before, self.seen = 0, 0  # graphs that torch had made before those of the model, and those
        self.measured = False  # whether there was an evaluation, in which the model is another graph

    # Before a run.

    def preview(self, assembly: Assembly, precision: Precision, batch: Batch, waits: Sequence[str]) -> str:
        """What of a step becomes a graph; the step is traced to find out."""
        if self.config.compile == "model":
            return "compile     the forward pass of the model"
        found = [*obstacles(assembly, precision), *waits]
        if not found:
            linked = [make_step(assembly, kit, choose_precision("fp32", "meta")) for kit in assembly.kits]
            batches = [batch] * assembly.plan.settings.trainer.accumulate
            found = list(filter(None, [try_trace(assembly, linked, turns(assembly.kits)[-1], batches)]))
        auto, together = self.config.compile == "auto", self.config.steps_per_call
        if found:
            less = "nothing" if auto else "the forward pass of the model alone"
            return f"compile     {less}, because {found[0]}"
        calls = f", {together} in a call" if together > 1 else ""
        return f"compile     whole steps{calls}{', if that pays within the run' if auto else ''}"

    @contextmanager
    def around(self) -> Iterator[None]:
        """Torch's switches for tracing, and what a run asks of kernels told to the compiler too."""
        with tracing(), torch_private.told_determinism():
            yield

    def inexact(self, made: int, cut: bool) -> Iterable[str]:
        """In what a run that goes on will not be as one of its new length from the start."""
        if self.config.compile == "auto" and made:
            yield "trainer.compile=auto decides by the length of the run what is compiled"
        if cut and self.config.compile == "step" and self.config.steps_per_call > 1:
            yield f"calls of {self.config.steps_per_call} updates were cut at step {made}"

    # A run.

    def begin(self) -> None:
        """Before the first update of a run, or of what is left of it."""
        lines = torch_private.gone_early() if self.made.level != "off" else []
        for line in lines:
            self.loop.watcher.note(f"compile: {line}")
        whole = self.made.level in ("step", "auto")
        if whole and (found := obstacles(self.loop.assembly, self.loop.precision)):
            self._less(found[0])
        if self.made.level == "model":
            self._model()
        elif self.made.level == "auto":
            linked = self.loop.linked
            self.estimate = Estimate(self.loop.assembly.device, sum(len(of.params) for of in linked))

    def _model(self) -> None:
        """Compile the forward pass alone: as it can be where that was asked for, else only as one graph."""
        if why := torch_private.missing_for_models():
            self.made.level = "off"
            self.loop.watcher.note(f"compile: nothing is compiled, because {why}")
            return
        self.made.level, self.before, self.seen = "model", unique_graphs(), 0
        model, mode, whole = self.loop.assembly.model, self.config.compile_mode, self.made.asked != "model"

        def forward(*args: Any, **options: Any) -> Any:  # ours, for torch leaves out what begins in its own
            return torch_private.call_forward(model, *args, **options)

        forward.__code__ = forward.__code__.replace()  # see whole_update
        compiled = torch.compile(forward, mode=None if mode == "default" else mode, fullgraph=whole)
        ready = _ready(model)

        def call(*args: Any, **options: Any) -> Any:
            if ready is not None:
                ready(*args)
            started = time.monotonic()
            try:
                found = compiled(*args, **options)
                if not model.training:
                    self._seen(self.loop.progress.step, started, again=self.measured)
                    self.measured = True
                return found
            except Exception as error:
                if not whole or not is_compilers(error):
                    raise
                first = self.made.why  # that there is no graph of a whole step
                self._less(reason(error, self.loop.plan))  # pieces of it would cost more than they save
                self.made.why = first
                return forward(*args, **options)

        # In place, so that no name in the model changes.
        torch_private.set_compiled(model, call)

    def _less(self, why: str) -> None:
        """Go on with a smaller graph, or none."""
        self.graphs = None
        self.made.why = why
        if self.made.level == "step" and self.made.asked != "auto":
            self.loop.watcher.note(f"compile: only the model's forward pass is compiled, because {why}")
            self._model()
        else:
            self.loop.watcher.note(f"compile: nothing is compiled, because {why}")
            self.made.level = "off"
            if not torch_private.missing_for_models():
                torch_private.set_compiled(self.loop.assembly.model, None)

    def advance(self, groups: Sequence[Group], until: int, last: int) -> None:
        """Updates up to a position in the epoch; calls do not depend on `until` and may end after it."""
        loop, progress = self.loop, self.loop.progress
        if self.graphs is not None:  # an evaluation or a save may have changed what a graph was made from
            self.graphs.checked.clear()
        while progress.position < until and not loop.full():
            count = self._together(groups, last) if self.made.level == "step" else 0
            if count:
                try:
                    self._call(groups[progress.position : progress.position + count])
                except Unfit as error:
                    self._less(str(error))
            elif self.made.level == "auto":
                self._estimate(groups)
            else:
                self._ordinary(groups, progress.position + 1 if self.made.level == "step" else until)
        loop.flush_if_full()

    def _estimate(self, groups: Sequence[Group]) -> None:
        assert self.estimate is not None
        if self.estimate.watch(lambda: self._one(groups)):
            pays, self.made.why = self.estimate.decide((self.loop.plan.steps or 0) - self.loop.progress.step)
            self.made.level = "step" if pays else "off"
            what = "whole steps are compiled" if pays else "nothing is compiled"
            self.loop.watcher.note(f"compile: {what}, because {self.made.why}")

    def _one(self, groups: Sequence[Group]) -> None:
        at = self.loop.progress.position + 1
        super().advance(groups, at, at)

    def _together(self, groups: Sequence[Group], last: int) -> int:
        """How many of the next updates one call makes; none, where the ordinary step has to."""
        loop, at = self.loop, self.loop.progress.position
        if loop.progress.step < len(loop.turns):  # the optimizers make their state in their first step
            return 0
        even = len(groups) if _sizes(groups[-1]) == _sizes(groups[0]) else len(groups) - 1
        return max(min(self.config.steps_per_call, last - at, even - at), 0)

    def _ordinary(self, groups: Sequence[Group], until: int) -> None:
        self.counting = False
        step, started = self.loop.progress.step, time.monotonic()
        try:
            super().advance(groups, until, until)
        except Exception as error:
            if self.made.level != "model" or not is_compilers(error):
                raise
            self._less(reason(error, self.loop.plan))
        if self.made.level == "model":
            self._seen(step, started, again=self.seen > 0)

    def _seen(self, step: int, started: float, again: bool) -> None:
        """Keep account of graphs of the model that torch has made since then."""
        graphs = unique_graphs() - self.before
        if graphs > self.seen:
            self._made(graphs - self.seen, step, time.monotonic() - started, again)
            self.seen = graphs

    def _call(self, groups: Sequence[Group]) -> None:
        loop, progress = self.loop, self.loop.progress
        if self.graphs is None or self.graphs.sizes != _sizes(groups[0]):
            self.graphs = Graphs(loop, _sizes(groups[0]), self.config)
        if not self.counting:
            for linked in loop.linked:
                assert linked.guard is not None
                linked.guard.begin(progress.step)
            self.counting = True
        if (ready := _ready(loop.assembly.model)) is not None:
            ready(*loop.train.gather(groups[0][0]).inputs)
        before, step, started = self.graphs.made, progress.step, time.monotonic()
        try:
            self.graphs.call(groups, step)
        finally:
            if (made := self.graphs.made) > before:
                for line in torch_private.gone_late() if not before else ():
                    loop.watcher.note(f"compile: {line}")
                self._made(made - before, step, time.monotonic() - started, again=made > len(loop.turns))
        if loop.assembly.device == "cpu":
            loop.check_finite()
        if self.estimate is not None and self.graphs.made == before:
            self._compare(time.monotonic() - started, len(groups))

    def _made(self, graphs: int, step: int, seconds: float, again: bool) -> None:
        """Keep account of graphs; one that is made again is told, for it costs what the first did."""
        self.made.seconds += seconds
        self.made.graphs += graphs
        if again:
            said = f"step {step + 1}: {last_reason()}"
            self.made.recompiled.append(said)
            self.loop.watcher.note(f"compile: a graph was made again in {seconds:.1f} s at {said}")

    def _compare(self, seconds: float, updates: int) -> None:
        """Whether what `auto` has chosen is the gain that it was estimated to be."""
        assert self.estimate is not None
        self.times += [seconds / updates] * updates
        if len(self.times) >= 2 * TIMED:
            why = self.estimate.slower(statistics.median(self.times))
            self.estimate = None
            if why:
                self._less(why)

    # What is kept and told of it.

    def state_dict(self) -> dict[str, Any]:
        """What is compiled so far: graphs are made anew after a resume."""
        state = asdict(self.made)
        return state | {"spent": {name: state.pop(name) for name in SPENT}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, or what the core kept before it had steppers."""
        known = {name: value for name, value in state.items() if name != "spent"} | state.get("spent", {})
        if known.get("asked") == self.config.compile:
            self.made = Compilation(**known)

    def summary(self) -> dict[str, Any]:
        """What came of it."""
        return {"compiled": asdict(self.made)}

    # For a profile.

    @property
    def hides(self) -> Literal["", "forward", "step"]:
        """What of an update is a graph now, as far as it is decided."""
        return {"step": "step", "auto": "step", "model": "forward"}.get(self.made.level, "")  # type: ignore[return-value]

    def timed(self, timer: Timer) -> None:
        """Calls of a graph, which make as many updates as they are given."""
        self._call = timer(CALL, self._call, len)  # type: ignore[method-assign]

    def set_up(self) -> Mapping[str, tuple[str, float, int]]:
        """What it took to make the graphs."""
        return {"making graphs": (CALL, self.made.seconds, self.made.graphs)} if self.made.seconds else {}

    def profile_notes(self) -> Iterable[str]:
        """What has no times of its own."""
        if self.made.level == "model":
            yield "the forward pass is one graph: what hangs in it has no times of its own"
        elif self.made.graphs:
            yield "a compiled step is one graph; trainer.compile=off shows the times of what is in it"


def _ready(model: Any) -> Callable[..., None] | None:
    """What a model makes once of inputs that stay the same; a graph can hold on to it, but not make it."""
    found: Callable[..., None] | None = getattr(model, "ready", None)
    return found


def _sizes(group: Group) -> list[int]:
    return [len(rows) for rows in group]
