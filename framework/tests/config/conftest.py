"""Parts that exist only here, so that the core is tested without any plugin."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pegboard.config.check import ConfigError, check
from pegboard.config.errors import Mistake
from pegboard.config.nodes import Settings
from pegboard.contract.records import (
    Dataset,
    Facts,
    Ge,
    Gt,
    Le,
    Length,
    Lt,
    Matches,
    Model,
    ObjectivePart,
    Optimizer,
    Problem,
    Regularizer,
    Schedule,
    Stepper,
    TrackerPart,
)
from pegboard.contract.specs import Classes, DataSpec, Image, Labels, Tokens, Values, Vector
from pegboard.registry.discovery import Plugin, Registry

BASE = """\
seed: 0
data: {name: spots, batch_size: 64}
model:
  name: dense
  hidden: [32, 16]
  activation: relu
optimizer: {name: descent, lr: 1e-3}
regularizers:
  drop: {p: 0.2}
trainer: {epochs: 2}
"""


class Padding(enum.Enum):
    SAME = "same"
    VALID = "valid"


@dataclass(frozen=True)
class Spots:
    """Coloured spots."""

    noise: Annotated[float, Ge(0)] = 0.1  # spread of each spot
    classes: Annotated[int, Ge(2)] = 3  # colours


@dataclass(frozen=True)
class Table:
    """Columns of a file."""

    path: str  # the file to read
    columns: dict[str, Literal["input", "target"]] = field(default_factory=dict)  # what each column is


@dataclass(frozen=True)
class Empty:
    """No keys at all."""


@dataclass(frozen=True)
class Dense:
    """Layers that connect everything."""

    hidden: tuple[Annotated[int, Ge(1)], ...] = (64,)  # widths
    activation: Literal["relu", "tanh", "gelu"] = "relu"  # nonlinearity
    bias: bool = True  # add a constant


@dataclass(frozen=True)
class Head:
    """The end of a network."""

    width: Annotated[int, Ge(1)]  # units
    norm: bool = False


@dataclass(frozen=True)
class Conv:
    """Filters that slide."""

    channels: Annotated[tuple[Annotated[int, Ge(1)], ...], Length(1, 4)] = (8,)  # filters of each layer
    kernel_size: Annotated[int, Ge(1), Le(11)] = 3  # side of a filter
    padding: Padding = Padding.SAME
    head: Head | None = None  # layers on top
    scale: Annotated[float, Gt(0)] | Literal["auto"] = "auto"
    init: Any = None


@dataclass(frozen=True)
class Descent:
    """Down the slope."""

    lr: Annotated[float, Gt(0)]  # learning rate
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.0  # share of the last step that is kept


@dataclass(frozen=True)
class Adaptive:
    """A rate for every weight."""

    lr: Annotated[float, Gt(0)] = 1e-3  # learning rate
    betas: tuple[Annotated[float, Ge(0), Lt(1)], Annotated[float, Ge(0), Lt(1)]] = (0.9, 0.999)
    epsilon: Annotated[float, Gt(0)] = 1e-8


@dataclass(frozen=True)
class Wave:
    """Up and down."""

    warmup: Annotated[int, Ge(0)] = 0  # steps
    final: float = 0.0


@dataclass(frozen=True)
class Drop:
    """Drop units."""

    p: Annotated[float, Ge(0), Lt(1)] = 0.5  # share dropped
    sites: tuple[str, ...] = ("hidden",)  # pegs it hangs on


@dataclass(frozen=True)
class Norm:
    """Centre and scale."""

    eps: Annotated[float, Gt(0)] = 1e-5
    momentum: float = 0.1


@dataclass(frozen=True)
class Soften:
    """Soften the target."""

    amount: Annotated[float, Ge(0), Lt(1)] = 0.1  # probability moved


@dataclass(frozen=True)
class Teach:
    """Learn from a teacher."""

    teacher: str  # run to learn from
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")


@dataclass(frozen=True)
class Bound:
    """Keep gradients short."""

    size: Annotated[float, Gt(0)]
    by: Literal["norm", "value"] = "norm"


@dataclass(frozen=True)
class Graphs:
    """Updates as graphs, as fields of the trainer choose them."""

    compile: Literal["model", "step", "auto"] = "step"  # what becomes one graph
    compile_mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"
    steps_per_call: Annotated[int, Ge(1), Le(64)] = 1


@dataclass(frozen=True)
class Board:
    """Figures on a board."""

    project: str | None = None  # where it is filed
    mode: Annotated[str, Matches("online|offline", "online or offline")] = "online"


def build(config: Any, context: Any) -> Any:
    raise AssertionError("a check builds nothing")


def rule(config: Drop, facts: Facts) -> Iterable[Problem]:
    if config.p > 0.9 and facts.model is not None:
        yield Problem("drops nearly everything", field="p", expected="at most 0.9", hint="lower p")


def explode(*_: Any) -> Any:
    raise RuntimeError("boom")


def parts() -> list[Any]:
    return [
        Dataset("spots", Spots, build, spec=lambda c: DataSpec((Vector(2),), Classes(c.classes))),
        Dataset("pictures", Empty, build, spec=lambda c: DataSpec((Image(1, 8, 8),), Classes(10))),
        Dataset("prices", Empty, build, spec=lambda c: DataSpec((Vector(4),), Values(1))),
        Dataset("words", Empty, build, spec=lambda c: DataSpec((Tokens(50, 9),), Classes(3))),
        Dataset("tags", Empty, build, spec=lambda c: DataSpec((Vector(4),), Labels(3))),
        Dataset("table", Table, build),
        Dataset("faulty", Empty, build, spec=explode),
        Model("dense", Dense, build, inputs=(Vector, Image), pegs=("input", "hidden")),
        Model("conv", Conv, build, inputs=(Image,), pegs=("affine",)),
        Model("anything", Empty, build),
        Optimizer("descent", Descent, build),
        Optimizer("adaptive", Adaptive, build),
        Schedule("wave", Wave, build),
        Schedule("flat", Empty, build),
        Regularizer("drop", Drop, build, check=rule, stages={"hang": "drop"}, after=("norm",)),
        Regularizer("norm", Norm, build, stages={"hang": "normalize"}),
        Regularizer("soften", Soften, build, stages={"edit_target": "smooth"}, targets=(Classes,)),
        Regularizer("teach", Teach, build, stages={"edit_loss": "mix"}),
        Regularizer("loner", Empty, build, stages={"edit_grads": "clip"}, conflicts=("drop",)),
        Regularizer(
            "bound",
            Bound,
            build,
            stages={"edit_grads": "noise"},
            replaces={"trainer.clip": "size", "trainer.clip_by": "by"},
        ),
        Regularizer("bomb", Empty, build, check=explode, stages={"edit_loss": "term"}),
        ObjectivePart("entropy", Empty, build, targets=(Classes,), default_for=(Classes,)),
        ObjectivePart("squares", Empty, build, targets=(Values,), default_for=(Values,)),
        ObjectivePart("margin", Empty, build, targets=(Classes,)),
        Stepper("compiled", Graphs, build),
        TrackerPart("board", Board, build),
    ]


@pytest.fixture
def base() -> str:
    """A right config, to be changed."""
    return BASE


@pytest.fixture
def registry() -> Registry:
    return Registry([Plugin("fakes", "pegboard-fakes", "1.0", status="ready", parts=parts())])


@pytest.fixture
def save_run() -> Callable[[str], None]:
    """Make a folder that looks like that of a run with a checkpoint."""

    def run(folder: str) -> None:
        best = Path(folder, "checkpoints", "best")
        best.mkdir(parents=True, exist_ok=True)
        (best / "manifest.json").write_text("{}", "utf-8")

    return run


@pytest.fixture
def accept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry) -> Callable[..., Settings]:
    """Check a text as `cfg.yaml`, beside the files given by name."""
    monkeypatch.chdir(tmp_path)

    def run(text: str | dict[str, Any], *overrides: str, **files: str) -> Settings:
        for name, content in files.items():
            Path(f"{name}.yaml").write_text(content, "utf-8")
        if isinstance(text, dict):
            return check(text, overrides, registry)
        Path("cfg.yaml").write_text(text, "utf-8")
        return check("cfg.yaml", overrides, registry)

    return run


@pytest.fixture
def refuse(accept: Callable[..., Settings]) -> Callable[..., list[Mistake]]:
    """The mistakes of a config that must be wrong."""

    def run(text: str | dict[str, Any], *overrides: str, **files: str) -> list[Mistake]:
        with pytest.raises(ConfigError) as raised:
            accept(text, *overrides, **files)
        return list(raised.value.mistakes)

    return run
