"""Checks that train: short runs beside partners, compared bit for bit."""

from __future__ import annotations

import contextlib
import io
import math
import re
from pathlib import Path
from typing import Any

from ...base.errors import PegboardError
from ...base.files import follow
from ...config.steppers import CHOICES
from ...contract.tricks import ROLES
from ...registry.discovery import UnknownPart
from ...store.names import CHECKPOINTS, WEIGHTS
from ..kit import STEP, Failed, Skipped, check
from ..subjects import Config, Subject

TRAINS = (*STEP, "dataset")


def _room(subject: Subject, check: str) -> Path:
    return subject.folder / check / f"{subject.part.kind}-{subject.part.name}"


@check(*TRAINS)
def exact_resume(subject: Subject) -> None:
    """A run that is interrupted and resumed ends as one that was not, bit for bit."""
    from ..runs import cut_and_resumed, differences, lean, points, whole

    root = _room(subject, "exact_resume")
    with lean():
        reference, events = whole(subject.config, root / "whole")
        for cut in points(events, 2):
            resumed = cut_and_resumed(subject.config, root / f"cut-{cut}", cut)
            if found := differences(reference, resumed):
                raise Failed(
                    f"{subject.what}: a run that was interrupted at event {cut} ({events[cut]}) and resumed "
                    f"differs in {', '.join(found[:5])}. What it keeps from step to step belongs in buffers, "
                    "in state_dict, or in context.generator()"
                )


@check("dataset")
def own_spec_survives_a_run(subject: Subject) -> None:
    """A run on samples of a spec of its own is evaluated and predicted with from its folder alone."""
    from ...contract.specs import Spec
    from ...inference.trained import Trained
    from ...registry.spec_names import check_record
    from ...tools.api import train
    from ..runs import lean

    spec = subject._said() or subject.plan().spec
    if all(type(s).__module__ == Spec.__module__ for s in (*spec.inputs, spec.target) if s is not None):
        raise Skipped("its samples are of the core's own specs")
    try:
        check_record(spec, subject.registry.specs)
    except PegboardError as error:
        raise Failed(f"{subject.what}: {'; '.join(str(error).splitlines())}") from None
    with lean():
        config = subject.with_trainer(epochs=None, steps=2, save_every=None)
        run = train(config, root=_room(subject, "own_spec"), quiet=True)
        trained = Trained(run.folder, device="cpu", local=subject.local)
        trained.evaluate("train")
        part: Any = trained.plan.settings.model.entry.part
        if not part.samples:  # of which an objective may have nothing to say for a single sample
            trained.predict(trained.source("train"))


@check("regularizer")
def neutral_changes_nothing(subject: Subject) -> None:
    """At strength zero, the `neutral` fields of its record, a run is as without it, bit for bit."""
    neutral = subject.part.neutral  # type: ignore[attr-defined]
    if neutral is None:
        raise Skipped("its record names no neutral fields")
    node = {**subject.node, **neutral}
    with_it = {**subject.config, "regularizers": {subject.part.name: node}}
    without = {k: v for k, v in subject.config.items() if k != "regularizers"}
    root = _room(subject, "neutral")
    if found := _apart(with_it, without, root):
        raise Failed(
            f"{subject.what} changes a run though its fields are neutral ({dict(neutral)}): {found}. It must "
            "not draw random numbers nor touch anything there"
        )


def _apart(one: Config, two: Config, root: Path) -> str:
    """Where the weights or rows of two runs differ."""
    from safetensors.torch import load_file

    from ...tools.api import train
    from ..runs import lean, unequal

    with lean():
        runs = [train(c, root=root / str(i), quiet=True) for i, c in enumerate((one, two))]
    weights = [load_file(follow(run.folder / CHECKPOINTS / "last") / WEIGHTS) for run in runs]
    found = [f"weights{path}" for path in unequal(*weights)]
    found += [f"history{path}" for path in unequal(runs[0].history, runs[1].history)]
    return ", ".join(found[:3])


@check("regularizer")
def order_does_not_matter(subject: Subject) -> None:
    """Beside tricks of every other role, listed in any order, it gives the same run, bit for bit."""
    own = subject.part.stages  # type: ignore[attr-defined]
    beside = [
        f"partner_{stage}_{role.name}"
        for stage in own
        for role in ROLES.get(stage, ())
        if role.name != own[stage] or role.by_name
    ]
    if not beside:
        raise Skipped("no other role shares its stages")
    nodes: dict[str, Any] = {name: {"name": f"partners:{name}"} for name in beside}
    nodes[subject.part.name] = subject.node
    trainer = {"steps": 4, "device": "cpu"}
    one = {**subject.config, "regularizers": nodes, "trainer": trainer}
    two = {**one, "regularizers": dict(reversed(nodes.items()))}
    if found := _apart(one, two, _room(subject, "order")):
        raise Failed(f"{subject.what} beside {', '.join(beside)}: listed in another order, {found} differ")


@check("model", "optimizer", "regularizer", "objective", level="advised")  # rates are given to a graph
def compiles_whole(subject: Subject) -> None:
    """A whole step with it is one graph for the compiler, without breaks."""
    from ...preview.explain import explain

    part: Any = subject.part
    if getattr(part, "closure", False) or getattr(part, "synchronizes", ""):
        raise Skipped("its record declares what no graph can hold")
    try:
        subject.registry.lookup("stepper", CHOICES["compile"].name)
    except UnknownPart as error:
        raise Skipped(f"nothing compiles here: {error.message}; {error.hint}") from None
    if subject.assembly().generators:
        raise Skipped("it draws from a random stream of its own, which no graph can hold")
    text = explain(subject.plan(compile="step"), strict=True)
    (line,) = [line for line in text.splitlines() if line.startswith("compile ")]
    if "whole steps" not in line:
        raise Failed(f"{subject.what} keeps a step from being one graph: {line.partition('because ')[2]}")


@check(*STEP)
def trains_under_autocast(subject: Subject) -> None:
    """It trains in bfloat16 as in float32, but for rounding."""
    from ...tools.api import train
    from ..runs import lean

    losses = []
    with lean():
        for precision in ("fp32", "bf16"):
            config = subject.with_trainer(precision=precision, log_every=1, save_every=None, epochs=1)
            run = train(config, root=_room(subject, "autocast") / precision, quiet=True)
            named = (pair for row in run.history for pair in row.items())
            losses.append([value for key, value in named if re.fullmatch(r"train/(.*/)?loss", key)])
    plain, mixed = losses
    if not all(map(math.isfinite, mixed)) or abs(mixed[0] - plain[0]) > 0.05 * max(1.0, abs(plain[0])):
        raise Failed(
            f"{subject.what}: the first loss is {mixed[0]:.4g} in bfloat16 and {plain[0]:.4g} in float32"
        )


@check("objective")
def names_players_and_metrics(subject: Subject) -> None:
    """Where its record names players and metrics, they are those that it has."""
    assembly = subject.assembly()
    part: Any = subject.part
    players = tuple(kit.player.name for kit in assembly.kits)
    if part.players is not None and part.players != players:
        raise Failed(f"{subject.what} declares the players {part.players}, and has {players}")
    if part.metrics is None:
        return
    target = assembly.plan.spec.target
    declared, metrics = part.metrics(assembly.plan.objective.config, target), assembly.objective.metrics()
    if declared is not None and sorted(declared) != sorted(metrics):
        found = f"declares the metrics {sorted(declared)} for {target}, and measures {sorted(metrics)}"
        raise Failed(f"{subject.what} {found}")


PATIENCE = 20.0  # seconds that a tracker may take when a run has ended


def followed(subject: Subject) -> tuple[str, list[str]]:
    """How a run with a tracker ended, and what was said of trackers that failed; one run for all checks."""
    from unittest.mock import patch

    from ...run import training
    from ...tools.api import train

    said = io.StringIO()
    with contextlib.redirect_stderr(said), patch.object(training, "GRACE", PATIENCE):
        run = train(subject.config, root=_room(subject, "tracker"), quiet=True)
    lines = said.getvalue().splitlines()
    failed = [line for line in lines if "switched off" in line or "left behind" in line]
    return run.status, failed


@check("tracker")
def follows_a_run(subject: Subject) -> None:
    """It follows a whole run, from its start to its end, without failing and without holding it up."""
    status, failed = followed(subject)
    if failed or status != "finished":
        raise Failed(f"{subject.what}: {failed[0] if failed else f'the run ended as {status}'}")
