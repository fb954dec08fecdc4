"""What build functions return, beside reference partners."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..kit import Failed, Skipped, check
from ..subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from ...contract.results import Batch, Source

BUILT = ("model", "optimizer", "regularizer", "objective", "dataset")


@check(*BUILT)
def builds_the_same_twice(subject: Subject) -> None:
    """What it builds is decided by its config and the seed: twice the same, bit for bit."""
    from ..runs import unequal

    one, two = (dict(_held(subject)) for _ in range(2))
    if changed := [name for name, value in one.items() if list(unequal(value, two.get(name)))]:
        raise Failed(
            f"{subject.what} builds something else the second time, with the same config and seed: "
            f"{', '.join(changed[:5])}; draw from context.generator()"
        )


def _held(subject: Subject) -> Iterator[tuple[str, Any]]:
    """All numbers of what a config with this part builds, each under its name in a message."""
    assembly = subject.assembly()
    yield from ((name, value.clone()) for name, value in assembly.model.state_dict().items())
    yield from ((f"the state of {key}", trick.state_dict()) for key, trick in assembly.tricks.items())
    yield (
        "the groups of the optimizer",
        [
            {k: v for k, v in group.items() if k != "params" and not callable(v)}
            for kit in assembly.kits
            for group in kit.optimizer.param_groups
        ],
    )
    splits = assembly.plan.splits
    assert splits is not None
    for split in ("train", "val", "test"):
        if (source := getattr(splits, split)) is not None:
            yield f"the samples of {split}", list(_rows(source, range(min(len(source), 64))))


def _rows(source: Source, rows: Any) -> Batch:
    from ..observed import rows_of

    return rows_of(source, rows)


@check("model", "regularizer", "objective")
def every_parameter_gets_a_gradient(subject: Subject) -> None:
    """Every parameter is reached by a gradient, or is frozen (requires_grad=False)."""
    import torch

    assembly = subject.assembly()
    splits = assembly.plan.splits
    assert splits is not None
    assembly.model.train()
    # Until a gradient moves it, or one reaches what it is used in and cancels there, as that of a bias does
    # before a normalisation.
    still = {name: p for kit in assembly.kits for name, p in kit.player.parameters if p.requires_grad}
    used: set[str] = set()
    if not still:
        raise Skipped("it has nothing to train")
    for turn in range(4):
        start = turn * 8 % max(len(splits.train) - 8, 1)
        batch = _rows(splits.train, range(start, min(start + 8, len(splits.train))))
        for kit in assembly.kits:
            named = [(n, p) for n, p in kit.player.parameters if p.requires_grad]
            own = kit.player.target
            told = batch if own is None else batch._replace(target=own(batch))
            loss, _ = kit.player.loss(assembly.model, told)
            reached = _listen(loss, {id(p): name for name, p in named if turn and name in still})
            grads = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
            for (name, p), grad in zip(named, grads, strict=True):
                if grad is not None:
                    used.add(name)
                if name in reached or (grad is not None and bool((grad != 0).any())):
                    still.pop(name, None)
                if grad is not None:
                    p.data -= 0.1 * grad
    if still:
        unused = [name for name in sorted(still) if name not in used]
        why = "is not used in the loss: use it in the forward pass"
        if not unused:
            why = (
                "is used, but nothing that is computed with it changes the loss: look for a factor of zero or"
            )
            why += " a nonlinearity that is never active"
        raise Failed(
            f"{subject.what}: {', '.join((unused or sorted(still))[:5])} got no gradient in four steps; it "
            f"{why}, or freeze it (requires_grad=False)"
        )


def _listen(loss: Tensor, wanted: dict[int, str]) -> set[str]:
    """Parameters, by id, whose uses get a gradient that is not zero; filled while `loss` is differentiated.

    The sum of that gradient over samples, which is the parameter's own, may be zero by formula. So it is
    looked at where it arrives: in the operations of the graph that read the parameter.
    """
    found: set[str] = set()

    def listener(name: str) -> Callable[[tuple[Tensor | None, ...]], None]:
        def listen(grads: tuple[Tensor | None, ...]) -> None:
            if any(g is not None and bool((g != 0).any()) for g in grads):
                found.add(name)

        return listen

    seen: set[Any] = {loss.grad_fn}
    waiting: list[Any] = [loss.grad_fn] if wanted else []
    while waiting:
        node = waiting.pop()
        for following, _ in node.next_functions if node is not None else ():
            if (name := wanted.get(id(getattr(following, "variable", None)))) is not None:
                node.register_prehook(listener(name))
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found


@check("model", "regularizer", "optimizer")
def saves_and_loads(subject: Subject) -> None:
    """What it has learned is in its state: saved and loaded into a new one, everything is as before."""
    import torch

    from ...planning.plan import private_rng
    from ..runs import unequal

    one = subject.observed.assembly
    two = subject.assembly(seed=17)
    splits = one.plan.splits
    assert splits is not None
    two.model.load_state_dict(_through_file(one.model.state_dict()))
    for key, trick in one.tricks.items():
        two.tricks[key].load_state_dict(_through_file(trick.state_dict()))
        if list(unequal(trick.state_dict(), two.tricks[key].state_dict())):
            raise Failed(f"{subject.what}: state_dict of its trick is another one after load_state_dict")
    for mine, yours in zip(one.kits, two.kits, strict=True):
        yours.optimizer.load_state_dict(_through_file(mine.optimizer.state_dict()))
        if list(unequal(mine.optimizer.state_dict()["state"], yours.optimizer.state_dict()["state"])):
            raise Failed(f"{subject.what}: the state of its optimizer is another one after load_state_dict")
    inputs = _rows(splits.train, range(4)).inputs
    answers = []
    for assembly in (one, two):
        with torch.no_grad(), private_rng(0, "kit"):  # a model may draw
            answers.append(assembly.model.eval()(*inputs))
    if list(unequal(*answers)):
        raise Failed(
            f"{subject.what}: a model that was saved and loaded computes something else; what it needs "
            "belongs in parameters or buffers"
        )


def _through_file(state: Any) -> Any:
    """What a checkpoint would give back: tensors, numbers, texts and containers only."""
    import torch

    file = io.BytesIO()
    try:
        torch.save(state, file)
        file.seek(0)
        return torch.load(file, weights_only=True)
    except Exception as error:  # of pickle, or of whatever the state holds
        raise Failed(f"its state does not survive a file: {str(error).splitlines()[0]}") from error


@check("model", "regularizer", "objective", "optimizer", "schedule")
def runs_on_meta(subject: Subject) -> None:
    """A step with it runs on the meta device: nothing waits for the device, unless its record says why."""
    from ...planning.plan import Plan
    from ...preview.explain import explain

    plan: Plan = subject.plan()
    text = explain(plan, strict=True)  # which makes two steps there, and names part and line where it cannot
    why = getattr(subject.part, "synchronizes", "")
    if why and why not in text:
        raise Failed(f"{subject.what} declares to wait for the device, but explain does not show it")


@check("model")
def generates_samples(subject: Subject) -> None:
    """Samples of a model that generates are like its input, finite, and decided by the generator alone."""
    import torch

    if not subject.part.samples:  # type: ignore[attr-defined]
        raise Skipped("it generates none")
    assembly = subject.assembly()
    model: Any = assembly.model.eval()
    if not hasattr(model, "sample"):
        raise Failed(f"{subject.what} says that it generates samples, but has no method `sample`")
    (spec, *_) = assembly.plan.spec.inputs
    with torch.no_grad():
        once, again = (model.sample(3, torch.Generator().manual_seed(1)) for _ in range(2))
    if once.shape != spec.example(3, "meta").shape or not bool(torch.isfinite(once).all()):
        raise Failed(f"{subject.what}: its samples are {tuple(once.shape)}, expected finite ones of {spec}")
    if not torch.equal(once, again):
        raise Failed(f"{subject.what}: the same generator gives other samples; draw from it alone")


@check("optimizer")
def descends(subject: Subject) -> None:
    """It lowers a simple loss, holds all groups and leaves parameters without a gradient alone."""
    import torch

    from ...contract.records import Context

    factory = subject.part.build(subject.built_config(), Context(seed=1, steps=200))
    target = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    moved, idle = torch.zeros(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    groups = [{"params": [moved], "names": ["moved"]}, {"params": [idle], "names": ["idle"]}]
    optimizer = factory(groups)
    if {id(p) for group in optimizer.param_groups for p in group["params"]} != {id(moved), id(idle)}:
        raise Failed(f"{subject.what} does not hold the parameters of all groups that it is given")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (moved - target).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    first = closure().item()
    for _ in range(200):
        if subject.part.closure:  # type: ignore[attr-defined]
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    last = closure().item()
    if not last < first:
        raise Failed(
            f"{subject.what} does not lower a sum of squares in 200 steps: {first:.4g}, then {last:.4g}"
        )
    if not torch.equal(idle, torch.ones(2, 2)):
        raise Failed(f"{subject.what} changes a parameter that has no gradient")


@check("schedule")
def factors_are_sound(subject: Subject) -> None:
    """It gives a finite factor, not below zero, which depends on the number of the step alone."""
    from ...contract.records import Context

    factor = subject.part.build(subject.built_config(), Context(steps=20, epochs=2))
    once = [factor(step) for step in range(20)]
    again = [factor(step) for step in reversed(range(20))][::-1]
    if once != again:
        raise Failed(
            f"{subject.what} gives other factors when it is asked in another order, as after a resume"
        )
    wrong = [(step, value) for step, value in enumerate(once) if not (math.isfinite(value) and value >= 0)]
    if wrong:
        raise Failed(f"{subject.what} gives {wrong[0][1]} at step {wrong[0][0]}")


@check("objective")
def weighs_samples(subject: Subject) -> None:
    """Its loss is one finite number; equal weights change nothing, weight zero leaves a sample out."""
    import torch

    from ...contract.results import Objective

    assembly = subject.assembly()
    splits = assembly.plan.splits
    assert splits is not None
    batch = _rows(splits.train, range(6))
    with torch.no_grad():
        output = assembly.model.eval()(*batch.inputs)
    target, loss = batch.target, assembly.objective.loss
    own = type(assembly.objective).loss is not Objective.loss
    if target is None or not own or not isinstance(output, torch.Tensor):
        raise Skipped("it compares no output with a target")
    whole = loss(output, target)
    if whole.dim() or not bool(torch.isfinite(whole)):
        raise Failed(f"{subject.what}: its loss is {whole}, expected one finite number")
    if not torch.allclose(whole, loss(output, target, torch.full((6,), 2.0)), rtol=1e-4):
        raise Failed(f"{subject.what}: weights that are all alike change its loss")
    weight = torch.tensor([1.0, 1, 1, 1, 0, 0])
    if not torch.allclose(loss(output, target, weight), loss(output[:4], target[:4]), rtol=1e-4):
        raise Failed(f"{subject.what}: samples that weigh nothing change its loss")
    for name, column in assembly.objective.predict(output).items():
        if column.shape[0] != 6:
            raise Failed(f"{subject.what}: predict gives {column.shape[0]} rows of {name!r} for 6 samples")


@check("probe")
def knows_the_optimum(subject: Subject) -> None:
    """A reference leaves the model as it is, and its optimum is a model like it that is nowhere worse."""

    import torch

    from ...contract.records import Context
    from ..runs import unequal

    if not subject.part.reference:  # type: ignore[attr-defined]
        raise Skipped("it is no reference")
    assembly = subject.assembly()
    plan, model = assembly.plan, assembly.model.eval()
    assert plan.splits is not None
    context = Context(spec=plan.spec, outputs=plan.outputs, seed=5, key="reference")
    reference = subject.part.build(subject.built_config(), context)
    if not reference.formula:
        raise Failed(f"{subject.what} does not say what it minimises: give it a `formula`")
    train = plan.splits.train.gather(torch.arange(len(plan.splits.train)))
    before = copy.deepcopy(model.state_dict())
    best = reference.solve(model, train)
    if list(unequal(before, model.state_dict())):
        raise Failed(f"{subject.what}: `solve` changes the model that it is given; copy it")
    with torch.no_grad():
        shapes = [
            [part.shape for part in (given if isinstance(given, tuple) else (given,))]
            for given in (best.eval()(*train.inputs), model(*train.inputs))
        ]
        if shapes[0] != shapes[1]:
            raise Failed(f"{subject.what}: its optimum gives outputs of another shape than the model")
    figures = reference.gap(model, best, train)
    if figures["gap"] < -1e-4 * max(abs(figures["optimum"]), 1e-6):
        raise Failed(f"{subject.what}: a model that was not trained is better than its optimum: {figures}")
