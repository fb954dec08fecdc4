"""The plainest part of every kind, to stand beside the one that is tested.

A light module like that of any plugin: a config registers it by its path, `pegboard.testing.PARTNERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pegboard import (
    Batch,
    Classes,
    Context,
    Dataset,
    DataSpec,
    EvalWeights,
    Facts,
    Ge,
    Image,
    Labels,
    Model,
    Objective,
    ObjectivePart,
    Optimizer,
    Points,
    Probe,
    ProbePart,
    Problem,
    Regularizer,
    RoleName,
    Schedule,
    Series,
    Site,
    Spec,
    Splits,
    Stage,
    Tokens,
    Tracker,
    TrackerPart,
    Trick,
    Values,
    Vector,
    Views,
    Voxels,
    hookimpl,
)
from pegboard.contract.specs import subclasses
from pegboard.contract.tricks import ROLES

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from pegboard import Peg

INPUTS: dict[str, Spec] = {
    "vector": Vector(4),
    "image": Image(1, 8, 8),
    "series": Series(6, 3),
    "tokens": Tokens(7, 6),
}
TARGETS: dict[str, Spec] = {
    "classes": Classes(3),
    "two": Classes(2),
    "labels": Labels(3),
    "values": Values(1),
}
_TEXT, _MARKED, _SIDES = Tokens(7, 6, 0), Tokens(7, 6, 0, 1, 2), Tokens(2, 6)
# What fewer models read or predict, beyond every input with every target.
FORMS: dict[str, DataSpec] = {
    "padded": DataSpec((_TEXT,), Classes(3)),
    "lines": DataSpec((Series(6, 3, True),), Classes(3)),
    "steps": DataSpec((_TEXT,), Tokens(3, 6)),
    "next": DataSpec((Tokens(7, 6),), Tokens(7, 6)),
    "forecast": DataSpec((Series(6, 3),), Series(6, 3)),
    "pair": DataSpec((_MARKED, _MARKED), _MARKED),
    "sentences": DataSpec((_TEXT, _SIDES), Classes(3)),
    "voxels": DataSpec((Voxels(1, 4, 4, 4),), Classes(3)),
    "views": DataSpec((Views(2, 1, 8, 8),), Classes(3)),
    "points": DataSpec((Points(6, 3),), Classes(3)),
    "fewer": DataSpec((Points(6, 3, True),), Classes(3)),
    "parts": DataSpec((Points(6, 3),), Tokens(3, 6)),
}


def forms() -> dict[str, DataSpec]:
    """All forms by name: those of the core's specs, then `package:name` of the specs of imported plugins."""
    theirs = [cls for cls in subclasses() if cls.__module__ != Spec.__module__ and "forms" in vars(cls)]
    named = ((cls.__module__.partition(".")[0], cls.forms()) for cls in theirs)
    return FORMS | {f"{package}:{name}": form for package, own in named for name, form in own.items()}


@dataclass(frozen=True)
class PartnerData:
    """Normal numbers and a target that follows from them."""

    target: Literal["classes", "two", "labels", "values"] = "classes"  # what is to be predicted
    inputs: Literal["vector", "image", "series", "tokens"] = "vector"  # what it is predicted from
    form: str | None = None  # instead of both, a form of data that few models read; see `forms`


def check_data(config: PartnerData, facts: Facts) -> Iterator[Problem]:
    """Whether there is such a form."""
    if config.form is not None and config.form not in forms():
        yield Problem(f"there is no form {config.form!r}", "form", f"one of {', '.join(forms())}")


def data_spec(config: PartnerData) -> DataSpec | None:
    if config.form is not None:
        return forms().get(config.form)
    return DataSpec((INPUTS[config.inputs],), TARGETS[config.target])


def numbers(symbols: Tensor) -> list[str]:
    """Texts whose words are the numbers of their symbols, up to the one that ends them."""
    ends = [row.index(_MARKED.end) if _MARKED.end in row else len(row) for row in symbols.tolist()]
    rows = (row[:end] for row, end in zip(symbols.tolist(), ends, strict=True))
    return [" ".join(str(symbol) for symbol in row if symbol != _MARKED.padding) for row in rows]


def build_data(config: PartnerData, context: Context) -> Splits:
    import torch

    from pegboard import Resident

    spec = data_spec(config)
    assert spec is not None
    if config.form is not None:
        from pegboard.testing.modules import formed

        train, val, test = formed(spec)
        text = isinstance(spec.target, Tokens) and len(spec.inputs) == 2
        return Splits(spec=spec, train=train, val=val, test=test, decode=numbers if text else None)
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
    y = {
        "classes": x[:, :3].argmax(1),
        "two": (x[:, 0] > 0).long(),
        "labels": (x[:, :3] > 0).float(),
        "values": x.sum(1, keepdim=True),
    }[config.target]
    match INPUTS[config.inputs]:
        case Tokens(vocab, length):
            read = (x.repeat(1, length or 0)[:, :length].abs() * 2).long().clamp(max=(vocab or 0) - 1)
        case entry:
            shape = entry.example(1, "meta").shape[1:]
            read = x.repeat(1, shape.numel())[:, : shape.numel()].reshape(-1, *shape)
    train, val, test = (Resident([read[a:b]], y[a:b]) for a, b in ((0, 32), (32, 40), (40, 48)))
    return Splits(spec=spec, train=train, val=val, test=test)


@dataclass(frozen=True)
class PartnerNet:
    """One hidden layer with pegs, on whatever the inputs are, flattened."""

    width: Annotated[int, Ge(1)] = 8  # units of the hidden layer


def check_net(config: PartnerNet, facts: Facts) -> Iterator[Problem]:
    if facts.spec is not None and not all(entry.counted for entry in facts.spec.inputs):
        yield Problem(f"it reads samples one by one, and a batch of {facts.spec} is no stack of them")


def build_net(config: PartnerNet, context: Context) -> nn.Module:
    from pegboard.testing.modules import Flat

    shape = (context.spec.target or Spec()).output_shape(context.outputs or 1)
    inputs = [entry.example(1, "meta").flatten(1).shape[1] for entry in context.spec.inputs]
    flat = Flat(sum(inputs), config.width, *shape)
    flat.padded = any(getattr(entry, "padded", False) for entry in context.spec.inputs)
    return flat


@dataclass(frozen=True)
class PartnerCentres:
    """Minus the squared distances to some points: for an objective that reads those, and no peg."""

    count: Annotated[int, Ge(1)] = 3  # points


def check_centres(config: PartnerCentres, facts: Facts) -> Iterator[Problem]:
    """Only for an objective that takes any number of outputs, as no other reads distances."""
    objective, target = facts.objective, facts.spec.target if facts.spec else None
    any_number = False
    if objective is not None and objective.outputs is not None and target is not None:
        with suppress(TypeError):  # its config has fields without a default
            any_number = objective.outputs(objective.config(), target) is None
    if not any_number:
        yield Problem("it gives distances, and the objective reads something else")


def build_centres(config: PartnerCentres, context: Context) -> nn.Module:
    from pegboard.testing.modules import Centres

    size = sum(entry.example(1, "meta").flatten(1).shape[1] for entry in context.spec.inputs)
    return Centres(size, context.outputs or config.count)


@dataclass(frozen=True)
class PartnerWriter:
    """The same for a text that follows from another, which it can write."""

    width: Annotated[int, Ge(1)] = 8  # units of the hidden layer


def check_writer(config: PartnerWriter, facts: Facts) -> Iterator[Problem]:
    if facts.spec is not None and len(facts.spec.inputs) != 2:
        yield Problem(f"it reads a text and what follows from it, and the data gives {facts.spec}")


def build_writer(config: PartnerWriter, context: Context) -> nn.Module:
    from pegboard.testing.modules import Writer

    source, shifted = (entry.example(1, "meta").shape[1] for entry in context.spec.inputs)
    marks: Any = context.spec.inputs[1]
    return Writer(source + shifted, config.width, (shifted, context.outputs or 1), marks.begin, marks.end)


@dataclass(frozen=True)
class PartnerDescent:
    """Gradient descent with momentum."""

    lr: Annotated[float, Ge(0)] = 0.01  # length of a step


def build_descent(
    config: PartnerDescent, context: Context
) -> Callable[[list[dict[str, Any]]], torch.optim.Optimizer]:
    import torch

    return lambda groups: torch.optim.SGD(groups, lr=config.lr, momentum=0.9, foreach=False)


def momentum_update(optimizer: torch.optim.Optimizer, traced: bool) -> Any:
    """The same update for a graph; a step that is not traced has `step`."""
    from pegboard.testing.modules import momentum

    return momentum(optimizer) if traced else None


@dataclass(frozen=True)
class PartnerRate:
    """A rate that falls to half."""


def build_rate(config: PartnerRate, context: Context) -> Callable[[int], float]:
    return lambda step: 1 - 0.5 * step / max(context.steps or 1, 1)


@dataclass(frozen=True)
class PartnerLoss:
    """Cross entropy, or squares where the target is no class."""


def build_loss(config: PartnerLoss, context: Context) -> Objective:
    from pegboard.testing.modules import PlainLoss

    return PlainLoss(context.spec.target)


@dataclass(frozen=True)
class PartnerTracker:
    """Keeps nothing."""


@dataclass(frozen=True)
class PartnerProbe:
    """Counts the parameters."""


class CountProbe(Probe):
    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        return {"parameters": float(sum(p.numel() for p in model.parameters()))}


@dataclass(frozen=True)
class Factor:
    """Multiplies something by a number, so that the order of two of them and of others shows."""

    by: float = 0.9  # the number
    plus: float = 0.01  # what is added afterwards


class FactorTrick(Trick):
    """Acts in one stage, as a subclass that `acting` makes."""

    def __init__(self, config: Factor) -> None:
        self.by, self.plus = config.by, config.plus

    def change(self, x: Tensor) -> Tensor:
        return x * self.by + self.plus if x.is_floating_point() else x


def _hang(self: FactorTrick, peg: Peg) -> nn.Module:
    from pegboard.testing.modules import Affine

    return Affine(self.by, self.plus)


def _edit_model(self: FactorTrick, model: nn.Module) -> None:
    for p in model.parameters():
        p.data = self.change(p.data)


def _edit_groups(self: FactorTrick, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**g, "decoupled_decay": g.get("decoupled_decay", 0.0) + self.plus} for g in groups]


def _edit_batch(self: FactorTrick, batch: Batch) -> Batch:
    return batch._replace(inputs=tuple(self.change(x) for x in batch.inputs))


def _edit_target(self: FactorTrick, target: Tensor) -> Tensor:
    return self.change(target)


def _edit_loss(self: FactorTrick, loss: Tensor, output: Any, batch: Batch) -> Tensor:
    changed = self.change(loss)
    for tensor in _tensors(output):
        changed = changed + self.plus * tensor.square().mean()
    return changed


def _tensors(output: Any) -> list[Tensor]:
    """All real tensors of a nest."""
    if isinstance(output, dict | list | tuple):
        values = output.values() if isinstance(output, dict) else output
        return [tensor for value in values for tensor in _tensors(value)]
    return [output] if hasattr(output, "is_floating_point") and output.is_floating_point() else []


def _edit_grads(
    self: FactorTrick, grads: list[Tensor | None], params: list[nn.Parameter]
) -> list[Tensor | None]:
    return [None if grad is None else self.change(grad) for grad in grads]


def _after_step(self: FactorTrick, model: nn.Module) -> None:
    _edit_model(self, model)


def _eval_weights(self: FactorTrick, weights: Mapping[str, Tensor]) -> EvalWeights:
    kept = {name: weight.clone() for name, weight in weights.items()}

    def follow(now: list[Tensor]) -> None:
        for own, weight in zip(kept.values(), now, strict=True):
            own.copy_(self.change(weight))

    return EvalWeights(weights=kept, follow=follow)


def _after_eval(self: FactorTrick, metrics: Mapping[str, float]) -> None:
    return None


ACTS: dict[str, Callable[..., Any]] = {
    "hang": _hang, "edit_model": _edit_model, "edit_groups": _edit_groups, "edit_batch": _edit_batch,
    "edit_target": _edit_target, "edit_loss": _edit_loss, "edit_grads": _edit_grads,
    "after_step": _after_step, "eval_weights": _eval_weights, "after_eval": _after_eval,
}  # fmt: skip


def acting(name: str, stage: Stage, role: RoleName, **more: Any) -> Regularizer[Factor]:
    """A trick that acts in one stage."""
    kind = type(f"Factor{name}", (FactorTrick,), {stage: ACTS[stage]})

    def build(config: Factor, context: Context) -> Trick:
        trick: Trick = kind(config)
        return trick

    return Regularizer(name, Factor, build, stages={stage: role}, neutral={"by": 1.0, "plus": 0.0}, **more)


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("partner", PartnerData, build_data, spec=data_spec, check=check_data)]


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    sites: tuple[Site, ...] = ("input", "affine", "hidden")
    return [
        Model("partner", PartnerNet, build_net, check=check_net, pegs=sites),
        Model(
            "writer",
            PartnerWriter,
            build_writer,
            check=check_writer,
            inputs=(Tokens,),
            targets=(Tokens,),
            pegs=sites,
            generates=True,
        ),
        Model("centres", PartnerCentres, build_centres, check=check_centres),
    ]


@hookimpl
def pegboard_optimizers() -> list[Optimizer[Any] | Schedule[Any]]:
    return [
        Optimizer("partner", PartnerDescent, build_descent, functional=momentum_update),
        Schedule("partner", PartnerRate, build_rate),
    ]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [ObjectivePart("partner", PartnerLoss, build_loss, soft=True)]


@hookimpl
def pegboard_trackers() -> list[TrackerPart[Any]]:
    return [TrackerPart("partner", PartnerTracker, lambda config, context: Tracker())]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [ProbePart("partner", PartnerProbe, lambda config, context: CountProbe())]


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    """One trick for every role of every stage: `partner_edit_grads_clip`."""
    roles = [role for stage in ROLES.values() for role in stage]
    return [acting(f"partner_{role.stage}_{role.name}", role.stage, role.name) for role in roles]
