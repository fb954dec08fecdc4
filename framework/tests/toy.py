"""A plugin with one small part of each kind, for tests of the core alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pegboard import (
    Batch,
    Classes,
    Context,
    Dataset,
    DataSpec,
    EvalWeights,
    Facts,
    Ge,
    Gt,
    Model,
    Objective,
    ObjectivePart,
    Optimizer,
    Player,
    Problem,
    Regularizer,
    Schedule,
    Splits,
    Stop,
    Table,
    Tracker,
    TrackerPart,
    Trick,
    Values,
    Vector,
    hookimpl,
)


@dataclass(frozen=True)
class Net:
    """A network with one hidden layer."""

    width: Annotated[int, Ge(1)] = 8  # of the hidden layer
    pegs: bool = True  # whether it has pegs


def build_net(config: Net, context: Context) -> Any:
    from pegboard import Peg
    from torch import nn

    inputs, outputs = context.spec.inputs[0].size, context.outputs
    assert inputs is not None and outputs is not None
    if not config.pegs:
        return nn.Sequential(nn.Linear(inputs, config.width), nn.ReLU(), nn.Linear(config.width, outputs))
    return nn.Sequential(
        Peg("input", inputs),
        nn.Linear(inputs, config.width),
        Peg("affine", config.width),
        nn.ReLU(),
        Peg("hidden", config.width),
        nn.Linear(config.width, outputs),
    )


@dataclass(frozen=True)
class Points:
    """Two clouds of points in the plane."""

    count: Annotated[int, Ge(0)] = 64  # training samples
    held_out: bool = True  # whether there are val and test splits
    stated: bool = True  # whether the spec is known without building


def points_spec(config: Points) -> DataSpec | None:
    return DataSpec((Vector(2),), Classes(2, ("left", "right"))) if config.stated else None


def build_points(config: Points, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    def split(count: int, purpose: str) -> Resident:
        generator = context.generator(purpose, "cpu")
        target = torch.arange(count) % 2
        return Resident([torch.randn(count, 2, generator=generator) + 3.0 * target[:, None] - 1.5], target)

    train, held_out = split(config.count, "train"), config.held_out
    spec = DataSpec((Vector(2),), Classes(2, ("left", "right")))

    def encode(columns: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        return (torch.tensor([columns["x"], columns["y"]], dtype=torch.float32).T,)

    return Splits(
        spec=spec,
        train=train,
        val=split(16, "val") if held_out else None,
        test=split(16, "test") if held_out else None,
        encode=encode,
        columns=("x", "y"),
        notes={"fingerprint": "none"},
    )


@dataclass(frozen=True)
class Plain:
    """Gradient descent."""

    lr: Annotated[float, Gt(0)] = 0.1  # step size
    momentum: Annotated[float, Ge(0)] = 0.0  # share of the last step that is kept


def build_plain(config: Plain, context: Context) -> Callable[..., Any]:
    import torch

    return lambda groups: torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, foreach=False)


@dataclass(frozen=True)
class Again:
    """An optimizer that evaluates the loss again."""

    lr: Annotated[float, Gt(0)] = 0.1  # step size


def build_again(config: Again, context: Context) -> Callable[..., Any]:
    import torch

    return lambda groups: torch.optim.LBFGS(
        [p for g in groups for p in g["params"]], lr=config.lr, max_iter=3
    )


@dataclass(frozen=True)
class Halve:
    """Halves the rate every `every` steps."""

    every: Annotated[int, Ge(1)] = 10  # steps


def build_halve(config: Halve, context: Context) -> Callable[[int], float]:
    return lambda step: 0.5 ** (step // config.every)


class Right:
    """The share of right answers."""

    higher_is_better = True

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.right, self.count = 0.0, 0

    def update(self, output: Any, target: Any) -> None:
        self.right = self.right + (output.argmax(-1) == target).sum()
        self.count += len(target)

    def compute(self) -> Any:
        return self.right / self.count

    def to(self, device: str) -> Right:
        return self


class Guess(Objective):
    formula = "nll(f(x), y)"
    monitor = ("right", "max")

    def __init__(self, players: int = 1) -> None:
        self.count = players

    def loss(self, output: Any, target: Any, weight: Any = None) -> Any:
        from torch.nn import functional

        return functional.cross_entropy(output, target)

    def metrics(self) -> dict[str, Any]:
        return {"right": Right()}

    def predict(self, output: Any) -> dict[str, Any]:
        return {"class": output.argmax(-1), "probability": output.softmax(-1).max(-1).values}

    def tables(self, output: Any, target: Any) -> dict[str, Table]:
        return {"counts": Table(["class", "count"], [[c, int((target == c).sum())] for c in (0, 1)])}

    def players(self, model: Any) -> list[Player]:
        (only,) = super().players(model)
        if self.count == 1:
            return [only]
        half = len(only.parameters) // 2
        return [
            Player("first", only.parameters[:half], only.loss, steps=2),
            Player("second", only.parameters[half:], only.loss),
        ]


@dataclass(frozen=True)
class GuessConfig:
    """Cross entropy."""

    players: Annotated[int, Ge(1)] = 1  # how many share the parameters


@dataclass(frozen=True)
class Drop:
    """Zeroes features."""

    p: Annotated[float, Ge(0)] = 0.5  # share
    sites: tuple[str, ...] = ("hidden",)  # pegs


class DropTrick(Trick):
    def __init__(self, config: Drop) -> None:
        self.config = config

    def hang(self, peg: Any) -> Any:
        from torch import nn

        return nn.Dropout(self.config.p) if peg.site in self.config.sites else None


@dataclass(frozen=True)
class Nothing:
    """Has no fields."""


class Everything(Trick):
    """Uses every stage, and counts how often each was called."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1

    def hang(self, peg: Any) -> Any:
        self._count("hang")
        return None

    def edit_model(self, model: Any) -> None:
        self._count("edit_model")

    def edit_groups(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self._count("edit_groups")
        return [{**group, "decoupled_decay": 0.1} for group in groups]

    def edit_batch(self, batch: Batch) -> Batch:
        self._count("edit_batch")
        return batch

    def edit_target(self, target: Any) -> Any:
        self._count("edit_target")
        return target

    def edit_loss(self, loss: Any, output: Any, batch: Batch) -> Any:
        self._count("edit_loss")
        return loss * 2

    def edit_grads(self, grads: Any, params: Any) -> Any:
        self._count("edit_grads")
        return grads

    def after_step(self, model: Any) -> None:
        self._count("after_step")

    def eval_weights(self, weights: Mapping[str, Any]) -> EvalWeights:
        kept = {name: w.clone() for name, w in weights.items()}
        return EvalWeights(
            weights=kept,
            follow=lambda now: self._count("eval_weights"),
            after_epoch=lambda model, batches: self._count("after_epoch"),
            use=False,
        )

    def after_eval(self, metrics: Mapping[str, float]) -> Stop | None:
        self._count("after_eval")
        return None

    def formula(self, loss: str) -> str:
        return f"2 {loss}"

    def state_dict(self) -> dict[str, Any]:
        return dict(self.calls)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = dict(state)


EVERYTHING = {
    "hang": "drop", "edit_model": "initialize", "edit_groups": "decay", "edit_batch": "augment",
    "edit_target": "smooth", "edit_loss": "mix", "edit_grads": "clip", "after_step": "constrain",
    "eval_weights": "average", "after_eval": "stop",
}  # fmt: skip


@dataclass(frozen=True)
class Halfway:
    """Weights for evaluation that go half of the way to those that are trained."""

    use: bool = True  # whether evaluations and checkpoints use them


class HalfwayTrick(Trick):
    """Counts the samples that it was shown after epochs."""

    def __init__(self, config: Halfway) -> None:
        self.config, self.seen = config, 0

    def eval_weights(self, weights: Mapping[str, Any]) -> EvalWeights:
        kept = {name: w.clone() for name, w in weights.items()}

        def follow(now: list[Any]) -> None:
            for own, w in zip(kept.values(), now, strict=True):
                own.lerp_(w, 0.5)

        return EvalWeights(weights=kept, follow=follow, after_epoch=self.look, use=self.config.use)

    def look(self, model: Any, batches: Iterable[Batch]) -> None:
        self.seen += sum(batch.samples for batch in batches)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


@dataclass(frozen=True)
class Patience:
    """Ends the run after some evaluations."""

    evaluations: Annotated[int, Ge(1)] = 2  # before it stops


class PatienceTrick(Trick):
    def __init__(self, config: Patience) -> None:
        self.left = config.evaluations

    def after_eval(self, metrics: Mapping[str, float]) -> Stop | None:
        self.left -= 1
        return Stop("patience ran out") if self.left == 0 else None


@dataclass(frozen=True)
class Note:
    """Writes what it is told to a file."""

    path: str = ""  # of the file
    fail: str = ""  # method that raises


class NoteTracker(Tracker):
    def __init__(self, config: Note) -> None:
        self.config = config

    def _note(self, what: str) -> None:
        if self.config.fail == what:
            raise ConnectionError("the server is gone")
        with Path(self.config.path).open("a") as file:
            file.write(what + "\n")

    def start(self, run: Any) -> None:
        self._note("start")

    def log(self, row: Any) -> None:
        self._note("log")

    def table(self, name: str, table: Any) -> None:
        self._note("table")

    def figure(self, name: str, path: Any) -> None:
        self._note("figure")

    def checkpoint(self, path: Any, aliases: Any) -> None:
        self._note("checkpoint")

    def finish(self, status: str, summary: Any) -> None:
        self._note(f"finish {status}")


def check_loud(config: Nothing, facts: Facts) -> list[Problem]:
    return [Problem("never allowed", hint="leave it out")]


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [Model("net", Net, build_net, inputs=(Vector,), pegs=("input", "affine", "hidden"))]


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("points", Points, build_points, spec=points_spec)]


@hookimpl
def pegboard_optimizers() -> list[Any]:
    return [
        Optimizer("plain", Plain, build_plain),
        Optimizer("again", Again, build_again, closure=True, synchronizes="it compares two losses"),
        Schedule("halve", Halve, build_halve),
    ]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    def build(config: GuessConfig, context: Context) -> Objective:
        return Guess(config.players)

    return [ObjectivePart("guess", GuessConfig, build, targets=(Classes,), default_for=(Classes,))]


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer("drop", Drop, lambda c, x: DropTrick(c), stages={"hang": "drop"}),
        Regularizer("everything", Nothing, lambda c, x: Everything(), stages=EVERYTHING, after=("drop",)),
        Regularizer("patience", Patience, lambda c, x: PatienceTrick(c), stages={"after_eval": "stop"}),
        Regularizer("undeclared", Nothing, lambda c, x: Everything(), stages={"edit_loss": "term"}),
        Regularizer("halfway", Halfway, lambda c, x: HalfwayTrick(c), stages={"eval_weights": "average"}),
        Regularizer("loud", Nothing, lambda c, x: Trick(), check=check_loud),
        Regularizer("values_only", Nothing, lambda c, x: Trick(), targets=(Values,)),
    ]


@hookimpl
def pegboard_trackers() -> list[TrackerPart[Any]]:
    return [TrackerPart("note", Note, lambda c, x: NoteTracker(c))]
