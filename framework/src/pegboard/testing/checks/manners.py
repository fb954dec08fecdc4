"""What a part must leave as it finds it: batches, configs, the process, the model that is measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..kit import Failed, Skipped, check
from ..subjects import Subject

if TYPE_CHECKING:
    from torch import nn

    from ...contract.results import Splits


@check("model", "regularizer", "objective", "optimizer")
def leaves_batches_alone(subject: Subject) -> None:
    """Inputs, targets, weights, rows of a batch are after a step or an evaluation what they were before."""
    if changed := subject.observed.batch:
        step = "an evaluation" if all("evaluation" in name for name in changed) else "a step"
        changed = [name.removesuffix(" (in an evaluation)") for name in changed]
        changed = list(dict.fromkeys(changed))
        raise Failed(
            f"{subject.what}: {step} changes {', '.join(changed)} of its batch in place; others read them "
            "too, so give new tensors (x * 2, not x.mul_(2))"
        )


@check("model", "regularizer", "objective", "optimizer", "dataset")
def leaves_its_config_alone(subject: Subject) -> None:
    """No config is another one after everything was built from it: a run records what it was given."""
    if changed := subject.observed.configs:
        raise Failed(
            f"{subject.what}: the config at {', '.join(changed)} is another one after three updates; copy "
            "what is changed (list(config.hidden))"
        )


@check("model", "regularizer", "objective", "optimizer", "dataset")
def leaves_the_process_alone(subject: Subject) -> None:
    """Building and training change nothing global: environment, folder, torch's settings, others' streams."""
    if changed := subject.observed.process:
        raise Failed(
            f"{subject.what}: {', '.join(changed)} changed while it was built and made three updates; what "
            "is random comes from context.generator(), and settings are the config's"
        )


@check("model", "regularizer")
def is_steady_in_evaluation(subject: Subject) -> None:
    """In eval mode a sample has one answer: nothing drawn, no buffer moved, other samples do not matter."""
    import torch

    from ...planning.plan import private_rng
    from ..observed import rows_of
    from ..runs import unequal

    assembly = subject.observed.assembly
    plan, model = assembly.plan, assembly.model.eval()
    assert plan.splits is not None
    few, batch = (rows_of(plan.splits.train, range(count)) for count in (2, 5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    answers = []
    with torch.no_grad():
        for draw in (1, 2):
            with private_rng(draw, "kit"):
                answers.append(model(*batch.inputs))
        with private_rng(1, "kit"):
            alone = model(*few.inputs)
    if moved := [name for name, value in model.state_dict().items() if list(unequal(before[name], value))]:
        raise Failed(
            f"{subject.what}: {', '.join(moved[:3])} changes in an evaluation; a buffer moves only where "
            "self.training is true"
        )
    part: Any = plan.settings.model.entry.part
    if part.samples or plan.spec.target is None:
        return  # what generates may draw
    if list(unequal(*answers)):
        raise Failed(
            f"{subject.what}: in eval mode the same samples have other outputs the second time; what is "
            "drawn is drawn only where self.training is true"
        )
    counted = all(spec.counted for spec in plan.spec.inputs)
    whole = answers[0]
    if not counted or not isinstance(whole, torch.Tensor) or whole.shape[:1] != (5,):
        return
    if alone.shape == whole[:2].shape and not torch.allclose(alone, whole[:2], 1e-3, 1e-4, equal_nan=True):
        raise Failed(
            f"{subject.what}: in eval mode the output for a sample depends on the others of its batch; "
            "statistics of a batch are for training, evaluation uses what was kept of them"
        )


@dataclass
class Measured:
    """Two measurements of a probe, and what they left otherwise than it was."""

    figures: list[dict[str, float]]
    changed: list[str]


def measured(subject: Subject) -> Measured:
    """Measure twice, once for all checks."""
    if (key := f"measured {subject.part.name}") not in subject.shared:
        subject.shared[key] = _measure(subject)
    found: Measured = subject.shared[key]
    return found


def _measure(subject: Subject) -> Measured:
    import torch

    from ...contract.records import Context
    from ...planning.pegs import find
    from ..observed import same, stir

    assembly = subject.assembly()
    splits = assembly.plan.splits
    assert splits is not None
    taken, changed = [], []
    for _, peg in find(assembly.model):
        peg.add_module("kit_counter", _counter())
    model: nn.Module = assembly.model.eval()
    for _ in range(2):
        context = Context(spec=assembly.plan.spec, outputs=assembly.plan.outputs, seed=5, key="probe")
        probe = subject.part.build(subject.built_config(), context)
        stir()
        before = dict(_state(model, splits))
        with torch.enable_grad():  # as it is again afterwards, whatever a probe does
            taken.append(probe.measure(model, splits, torch.device("cpu")))
            after = dict(_state(model, splits))
        changed += [name for name, value in before.items() if not same(value, after.get(name))]
    return Measured(taken, list(dict.fromkeys(changed)))


def _counter() -> nn.Module:
    """Something on a peg whose buffer moves in training, as that of a normalisation does."""
    import torch
    from torch import Tensor, nn

    class Counter(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.calls += 1
            return x

    return Counter()


def _state(model: nn.Module, splits: Splits) -> Iterator[tuple[str, Any]]:
    """What a measurement must leave as it is, each under its name in a message."""
    from ..observed import cloned, process_state, random_streams, rows_of

    yield "the parameters", {n: (id(p), p.detach().clone()) for n, p in model.named_parameters()}
    yield "the buffers", {name: b.detach().clone() for name, b in model.named_buffers()}
    yield "the mode (train or eval)", {name: m.training for name, m in model.named_modules()}
    yield "attributes of modules", {n: dict(_attributes(m)) for n, m in model.named_modules()}
    yield "requires_grad", {name: p.requires_grad for name, p in model.named_parameters()}
    grads = {name: p.grad for name, p in model.named_parameters()}
    yield "the gradients", {name: None if g is None else g.detach().clone() for name, g in grads.items()}
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    modules = dict(model.named_modules())
    yield "the hooks of modules", {n: [len(getattr(m, h, ())) for h in hooks] for n, m in modules.items()}
    yield from ((f"the random stream of {name}", state) for name, state in random_streams().items())
    yield from process_state().items()
    for split in ("train", "val", "test"):
        if (source := getattr(splits, split)) is not None:
            yield f"the samples of {split}", list(cloned(rows_of(source, range(min(len(source), 64)))))


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The settings of a module that are plain values, such as the share of a dropout."""
    for name, value in vars(module).items():
        if isinstance(value, bool | int | float | str | tuple | type(None)) and name != "training":
            yield name, value


@check("probe")
def leaves_the_model_alone(subject: Subject) -> None:
    """Measuring changes nothing: weights, buffers, settings, gradients, hooks, random streams, samples."""
    try:
        changed = measured(subject).changed
    except Exception as error:
        raise Skipped("it does not measure, as measures_the_same_twice tells") from error
    if changed:
        raise Failed(
            f"{subject.what}: measuring changes {', '.join(changed)}; measure a copy (copy.deepcopy(model)), "
            "and draw from context.generator()"
        )


@check("probe")
def measures_the_same_twice(subject: Subject) -> None:
    """It gives finite figures, the same for the same model."""
    once, again = measured(subject).figures
    wrong = [n for n, v in once.items() if not (isinstance(v, float | int) and math.isfinite(v))]
    if not once or wrong:
        raise Failed(f"{subject.what} measures {once!r}, expected named, finite figures")
    if once != again:
        raise Failed(f"{subject.what} measures something else the second time: {once}, then {again}")


@check("tracker")
def leaves_rows_alone(subject: Subject) -> None:
    """The rows and tables that it is given are the same afterwards: other trackers are given them too."""
    import copy

    from ...report import trackers
    from .running import followed

    given: list[tuple[str, Any, Any]] = []
    send = trackers.Dispatch.send

    def noted(dispatch: Any, event: str, *args: Any) -> None:
        if event in ("log", "table", "finish"):
            given.append((event, args, copy.deepcopy(args)))
        send(dispatch, event, *args)

    from unittest.mock import patch

    with patch.object(trackers.Dispatch, "send", noted):
        followed(subject)
    if changed := sorted({event for event, args, before in given if args != before}):
        raise Failed(f"{subject.what}: {', '.join(changed)} changes what it is given; copy it first")
    if not given:
        raise Skipped("the run told it nothing")
