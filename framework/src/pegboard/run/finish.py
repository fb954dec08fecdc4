"""The end of a run: its best weights are measured, judged, compared with the optimum, and shown."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.errors import PegboardError
from ..base.files import follow, write_text
from ..contract.drawing import INSTALL, can_draw, draw_curves, draw_figure
from ..contract.records import Context
from ..contract.results import Objective, Probe, Reference, Table
from ..data import epoch_order
from ..engine.evaluate import Halted, collect, eval_mode, measure_rules, on_cpu, reading_order
from ..engine.loop import Loop
from ..inference.readable import worded
from ..inference.sampling import draw_samples, some_inputs, write_picture
from ..planning.plan import Plan, build, private_rng
from ..report.console import Console, number
from ..store import checkpoint
from ..store.names import CHECKPOINTS, CURVES, FIGURES, METRICS, PAGE, TABLES, WEIGHTS
from ..store.run_folder import MetricsFile
from ..store.run_reader import write_report
from .diagnosis import MOST, Answers, Diagnosis, beside, diagnose

if TYPE_CHECKING:
    from .training import Following

SAMPLES = 32  # predictions that are shown
PICTURED = 64  # samples in the picture of what a model generates
POINTS = 1000  # of vectors instead, and of the data beside them
NUMBERS = 2**27  # outputs of a split that are in memory at a time, for the tables that need all


def finish(loop: Loop, following: Following, folder: Path, why: str | None) -> dict[str, Any]:
    """Measure the best weights on all splits, and show what came of the run; returns what sums it up."""
    progress, console = loop.progress, following.console
    _take_best(loop, console, follow(folder / CHECKPOINTS / "best"))
    figures = _held_out(loop, MetricsFile.read(folder / METRICS))
    if "test" in figures:
        row = {"step": progress.step, "epoch": loop.epochs}
        following.row(row | {f"test/{name}": value for name, value in figures["test"].items()})
    split = [*figures][-1] if figures else ""
    tables = _tables(loop, split) if figures else {}
    for name, table in tables.items():
        following.dispatch.send("table", name, table)
    shown = {
        name: {"split": split, "columns": list(t.columns), "rows": list(t.rows)} for name, t in tables.items()
    }
    write_text(folder / TABLES, json.dumps(shown, default=str) + "\n")
    rows = MetricsFile.read(folder / METRICS)
    tricks = _of_training(loop.plan)
    curves = f"not drawn, nor is any picture: {INSTALL}"
    if can_draw():
        with following.profile.phase("drawing"):
            picture = draw_curves(rows, folder / FIGURES / CURVES, loop.settings.name, tricks)
        following.dispatch.send("figure", "curves", picture)
        curves = str(picture)
    with following.profile.phase("drawing"):
        picture_samples(loop, following, "samples", f"{loop.settings.name}: samples")
    judged, measured = None, None
    if loop.settings.trainer.diagnose:
        judged, train, measured = _judge(loop, figures)
        figures = {**train, **figures}
    rules = measure_rules(loop.evaluator, loop.splits, list(figures), partial(unmeasured, console))
    compared = beside(figures, rules)
    if compared is not None and judged is not None:
        judged = compared.judge(judged)
    reference = _beside(loop, list(figures), console) if loop.settings.reference is not None else None
    probed, failed = _probed(loop, following)
    if why:
        console.say(f"stopped early by {why}")
    _show(loop, console, figures, reference or {}, rules)
    if probed:
        console.table("probes", ["figure", "value"], list(probed.items()))
    if judged is not None:
        console.say(judged_lines(judged))
    if compared is not None:
        console.say(f"baselines   {compared}")
        if compared.behind is not None:
            console.warn(f"the run ends behind {compared.behind}: {compared}")
    if measured is not None:
        size = len(loop.splits.train)
        console.say(f"measured    {measured:,} of the {size:,} training samples, drawn by the seed")
    if reference is not None and "gap" in reference:
        console.say(reference_line(reference))
    console.say(f"run folder  {folder}\ncurves      {curves}")
    summary: dict[str, Any] = {
        "best_step": progress.best_step,
        "monitor": loop.monitor,
        "mode": "max" if loop.higher else "min",
        "best": progress.best,
        "figures": _flat({name: figures[name] for name in sorted(figures, key=lambda n: n == "train")})
        | probed,
    }
    if failed:
        summary["failed_probes"] = failed
    if judged is not None:
        summary["diagnosis"] = asdict(judged) | ({} if measured is None else {"samples": measured})
    if compared is not None:
        measures = {name: _flat(of) for name, of in rules.items()}
        summary["baselines"] = {"figures": measures, "figure": compared.figure, "ratios": compared.ratios}
    return summary | ({} if reference is None else {"reference": reference})


def _of_training(plan: Plan) -> list[str]:
    """The tricks that are part of the loss of a training step and of no evaluation."""
    stages = ("hang", "edit_batch", "edit_target", "edit_loss")
    return sorted({placed.key for stage in stages for placed in plan.order.get(stage, ())})


def report(folder: Path, plan: str, summary: Mapping[str, Any], following: Following) -> None:
    """Write the page of a run that has ended."""
    try:
        page = write_report(folder, plan, summary)
        following.dispatch.send("figure", "report", page)
        following.console.say(f"report      {page}")
    except OSError as error:
        following.console.warn(f"{PAGE} was not written: {error.strerror or error}")


def picture_samples(loop: Loop, following: Following, name: str, title: str) -> None:
    """Draw what the model generates, where it does, beside samples of the data."""
    if not getattr(loop.settings.model.entry.part, "samples", False) or not can_draw():
        return
    spec, splits, seed = loop.plan.spec, loop.splits, loop.settings.seed
    path = loop.folder / FIGURES / f"{name}.png"
    try:
        points = spec.inputs[0].scattered
        x = draw_samples(loop.assembly.model, POINTS if points else PICTURED, seed, loop.assembly.device)
        path.parent.mkdir(exist_ok=True)
        real = some_inputs(splits.train, POINTS) if points else None
        if write_picture(x, spec.inputs[0], path, title, splits.invert, real):
            following.dispatch.send("figure", name, path)
    except Exception as error:  # the run itself is whole, and says so
        following.console.warn(f"no picture of samples: {_told(error)}")


def _take_best(loop: Loop, console: Console, best: Path) -> None:
    """Put the best weights of the run into its model."""
    try:
        checkpoint.verify(best, checkpoint.read_manifest(best))
    except PegboardError as error:  # it may be older than the checkpoint that a run was resumed from
        console.warn(f"{error}; the last weights are measured instead")
        loop.progress.best, loop.progress.best_step = None, loop.progress.step
    else:
        weights = checkpoint.read_weights(best / WEIGHTS)
        checkpoint.fit_weights(loop.assembly.model, weights, True, str(best))


def _held_out(loop: Loop, rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The figures of each held-out split; those of the best weights on val are known from their row."""
    splits = [name for name in ("val", "test") if getattr(loop.splits, name) is not None]
    names, progress = ["loss", *loop.metrics], loop.progress
    for row in reversed(rows if progress.best is not None and "val" in splits else ()):
        known = {name: row.get(f"val/{name}") for name in names}
        if row["step"] == progress.best_step and all(isinstance(x, int | float) for x in known.values()):
            return {"val": known} | {name: loop.evaluate(name) for name in splits if name != "val"}
    return {name: loop.evaluate(name) for name in splits}


def _judge(
    loop: Loop, held_out: Mapping[str, Mapping[str, float]]
) -> tuple[Diagnosis, dict[str, dict[str, float]], int | None]:
    """The diagnosis, the figures of the training split, and of how many samples where not of all."""
    objective, train = loop.assembly.objective, loop.splits.train
    if loop.plan.spec.target is None or type(objective).loss is Objective.loss:
        return Diagnosis(None, None, "there is no target to compare outputs with"), {}, None
    order, answers = None, Answers(objective)
    if train.streamed and len(train) > MOST:  # it is read from disk
        order = epoch_order(len(train), loop.settings.seed, 0, shuffle=True)[:MOST]
    figures = {"train": measure(loop, "train", order=order, watch=answers)}
    judged = diagnose({**figures, **held_out}, answers.constant())
    return judged, figures, None if order is None else len(order)


def measure(
    loop: Loop,
    split: str,
    model: nn.Module | None = None,
    order: Tensor | None = None,
    watch: Answers | None = None,
) -> dict[str, float]:
    """Loss and metrics of a split, of another model where one is given."""
    source = getattr(loop.splits, split)
    return loop.evaluator.measure(model or loop.assembly.model, source, order, watch)


def _beside(loop: Loop, splits: Sequence[str], console: Console) -> dict[str, Any]:
    """The optimum that the config names: what it is, its figures, and how far the model is from it."""
    chosen = loop.settings.reference
    assert chosen is not None
    found: dict[str, Any] = {"name": chosen.entry.part.name}
    try:
        context = Context(
            spec=loop.plan.spec, outputs=loop.plan.outputs, seed=loop.settings.seed, key=chosen.key
        )
        reference: Reference = build(chosen, context)
        found["formula"] = reference.formula
        model = copy.deepcopy(loop.assembly.model).cpu().eval()
        train = loop.splits.train.to("cpu").gather(torch.arange(len(loop.splits.train)))
        best = reference.solve(model, train)
        found |= reference.gap(model, best, train)
        best = best.to(loop.assembly.device)
        found["figures"] = _flat({split: measure(loop, split, best) for split in splits})
    except Halted:
        raise
    except Exception as error:  # the run itself is whole, and says so
        found["error"] = _told(error)
        console.warn(f"reference {found['name']} failed, and is left out: {found['error']}")
    return found


def unmeasured(console: Console, name: str, error: Exception) -> None:
    """Say that a rule without learning is left out; the run itself is whole."""
    console.warn(f"{name} cannot be measured by this objective: {_told(error)}")


def _told(error: Exception) -> str:
    """An error in one line; of a message for people all lines, as the last say what helps."""
    what = str(error) if isinstance(error, PegboardError) else repr(error).split("\n")[0]
    return " ".join(what.split())


def _probed(loop: Loop, following: Following) -> tuple[dict[str, float], dict[str, str]]:
    """What the probes of the config measure, as KEY/FIGURE, and why some failed; those that draw do so."""
    figures, failed = dict[str, float](), dict[str, str]()
    plan, device = loop.plan, loop.assembly.device
    for key, chosen in loop.settings.probes.items():
        if loop.halt:
            raise Halted
        try:  # each as `pegboard probe` would later, to the same figures
            context = Context(
                spec=plan.spec, outputs=plan.outputs, device=device, seed=loop.settings.seed, key="probe"
            )
            probe: Probe = build(chosen, context)
            model = copy.deepcopy(loop.assembly.model).eval()
            with private_rng(loop.settings.seed, "probe"), torch.enable_grad():
                found = probe.measure(model, replace(loop.splits), torch.device(device))
            figures |= {f"{key}/{name}": float(value) for name, value in found.items()}
            if probe.draws and can_draw():
                picture = loop.folder / FIGURES / f"probe-{key.replace(':', '-')}.png"
                with following.profile.phase("drawing"):
                    following.dispatch.send("figure", key, draw_figure(picture, key, probe.plot))
        except Halted:
            raise
        except Exception as error:  # the run itself is whole, and says so
            failed[key] = _told(error)
            following.console.warn(f"probe {key} failed, and is left out: {failed[key]}")
    return figures, failed


def _flat(figures: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{split}/{name}": value for split, found in figures.items() for name, value in found.items()}


def _show(
    loop: Loop,
    console: Console,
    figures: Mapping[str, Mapping[str, float]],
    reference: Mapping[str, Any],
    rules: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> None:
    """The table of all figures, below them those of rules without learning and of the optimum."""
    progress = loop.progress
    title = f"best checkpoint, step {progress.best_step} of {progress.step}, by {loop.monitor}"
    if progress.best is None:
        title = f"last checkpoint, step {progress.step}"
    names, best = ["loss", *loop.metrics], reference.get("figures", {})
    rows = [[split, *(found[name] for name in names)] for split, found in figures.items()]
    for rule, by_split in rules.items():
        rows += [[f"{s}, {rule}", *(by_split[s][name] for name in names)] for s in figures if s in by_split]
    if best:
        rows += [[f"{split}, optimum", *(best[f"{split}/{name}"] for name in names)] for split in figures]
    console.table(title, ["split", *names], rows)


def judged_lines(judged: Diagnosis) -> str:
    """The gap, where there is one, and the verdict with its rule."""
    gap = f"gap         {number(judged.gap)} of loss between held-out and training samples\n"
    return f"{'' if judged.gap is None else gap}verdict     {judged}"


def reference_line(reference: Mapping[str, Any]) -> str:
    """How far what was trained is from the optimum."""
    share = f", {reference['relative']:.2g} times the optimum" if "relative" in reference else ""
    return (
        f"reference   {reference['name']}: objective {number(reference['objective'])}, optimum "
        f"{number(reference['optimum'])}, gap {number(reference['gap'])}{share}"
    )


def _tables(loop: Loop, split: str) -> dict[str, Table]:
    """What sums up an evaluation: the objective's tables, and some predictions."""
    assembly, spec, objective = loop.assembly, loop.plan.spec, loop.assembly.objective
    source, device = getattr(loop.splits, split), assembly.device
    batch = source.gather(reading_order(source, device)[:SAMPLES])
    if batch.target is None:
        return {}
    with private_rng(loop.settings.seed, "evaluate", device=device), eval_mode(assembly.model):
        output = on_cpu(loop.precision.wrap(assembly.model)(*batch.inputs))
    said = objective.predict(output)
    if not said:
        return {}
    columns = {"target": batch.target, **said}
    shown = worded(columns, batch.inputs, spec, loop.splits.decode)
    rows = [[i, *cells] for i, cells in enumerate(zip(*shown.values(), strict=True))]
    found = {"predictions": Table(["sample", *shown], rows)}
    if not isinstance(output, Tensor) or type(objective).tables is Objective.tables:
        return found
    if len(source) * output[0].numel() > NUMBERS:  # as those of every symbol of a large vocabulary
        return found
    workers = loop.settings.batches.workers
    output, target, weight = collect(assembly.model, source, loop.eval_batch, device, loop.precision, workers)
    assert target is not None
    if weight is not None:
        output, target = output[weight != 0], target[weight != 0]
    return {**objective.tables(output, target), **found}
