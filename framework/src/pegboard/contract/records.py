"""The records a plugin returns, one class for each kind of part.

A record is metadata: a name, the dataclass that is its config schema, and a function that
builds the thing. Nothing here imports torch, so that a whole config can be listed,
documented and checked without it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, NewType, TypeVar, get_args

from .specs import DataSpec, Spec

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from .results import Codec, Objective, Probe, Splits, Tracker, Update  # noqa: F401
    from .stepping import Stepping  # noqa: F401
    from .tricks import Trick  # noqa: F401


C = TypeVar("C")
T = TypeVar("T")

NAME = re.compile(r"[a-z][a-z0-9_-]*")


# Ranges, for use in `Annotated[float, Ge(0), Lt(1)]` on the fields of a config dataclass.
@dataclass(frozen=True, slots=True)
class Ge:
    """At least `bound`."""

    bound: float


@dataclass(frozen=True, slots=True)
class Gt:
    """More than `bound`."""

    bound: float


@dataclass(frozen=True, slots=True)
class Le:
    """At most `bound`."""

    bound: float


@dataclass(frozen=True, slots=True)
class Lt:
    """Less than `bound`."""

    bound: float


@dataclass(frozen=True, slots=True)
class Length:
    """A list, tuple or mapping with `least` to `most` elements."""

    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Matches:
    """A text that the regular expression matches whole; `shown` says it in words."""

    pattern: str
    shown: str


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A text that names a trained model: a run folder, a checkpoint folder or `zoo:name`; "" is none.

    Whether it is there is said before a run begins, with the place in the config. With `files` it may also be
    the path of a file of weights alone. With `alike` it has to read and predict what the run does: features,
    channels and classes of its data are compared where they are known.
    """

    files: bool = False
    alike: bool = False


# A site or role that a plugin adds, with a prefix: `Prefixed("acme:gate")`.
Prefixed = NewType("Prefixed", str)

# Where pegs may be in a model.
CoreSite = Literal["input", "embedding", "affine", "hidden", "attention", "residual", "pooled", "logits"]
SITES: tuple[CoreSite, ...] = get_args(CoreSite)
_SITE = rf"{'|'.join(SITES)}|[\w-]+:[\w-]+"
if TYPE_CHECKING:  # a type checker finds a misspelt site, and a config is checked by the pattern
    Site = CoreSite | Prefixed
else:
    Site = Annotated[str, Matches(_SITE, f"{', '.join(SITES)}, or a plugin's own (acme:x)")]

# The methods of a trick, and what orders those of one stage; a plugin may add roles.
Stage = Literal[
    "edit_model", "hang", "edit_groups", "edit_batch", "edit_target", "edit_loss", "edit_grads",
    "after_step", "eval_weights", "after_eval",
]  # fmt: skip
CoreRole = Literal[
    "initialize", "reparametrize", "normalize", "drop", "rate", "decay", "augment", "mix", "attack",
    "smooth", "term", "noise", "clip", "constrain", "average", "stop",
]  # fmt: skip
RoleName = CoreRole | Prefixed


@functools.cache
def known_site(site: str) -> bool:
    """Whether a name is a site of the core, or one of a plugin's own."""
    return re.fullmatch(_SITE, site) is not None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a part's config that its types cannot express."""

    message: str
    field: str = ""  # dotted path of the field inside the part's config; "" is the part itself
    expected: str = ""
    hint: str = ""  # how to mend it


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about a plan when a record's `check` is called, before torch is imported.

    What only the data knows is None at first; once it was read, `check` is called again. A problem that only
    `steps` or `epochs` shows is a warning where the command line made the run shorter than its config does.
    """

    spec: DataSpec | None = None  # None: known only once the data is read
    model: Model[Any] | None = None
    objective: ObjectivePart[Any] | None = None
    optimizer: Optimizer[Any] | None = None
    tricks: tuple[str, ...] = ()  # part names of the regularizers in the plan
    steps: int | None = None  # updates that the run makes at most
    epochs: int | None = None  # passes over the training split that it makes at most
    smallest_batch: int | None = None  # samples in the smallest training batch, as far as that is known
    players: tuple[str, ...] | None = None  # players of the objective
    metrics: tuple[str, ...] | None = None  # figures of an evaluation besides the loss


@dataclass(kw_only=True)
class Context:
    """What a build function may know besides its own config. It grows by attributes.

    `spec` is what the data set says of its inputs and targets, `outputs` how many numbers a
    sample the objective reads from the model, `steps` how many updates the run will make.
    """

    spec: DataSpec = field(default_factory=DataSpec)
    outputs: int | None = None
    device: str = "cpu"
    seed: int = 0
    key: str = ""  # the name under which the part stands in the config
    steps: int | None = None
    epochs: int | None = None
    samples: int | None = None  # in the training split; None while the data is not read
    folder: Path | None = None  # the run folder, None while planning
    fold: tuple[int, int] | None = None  # number and count, where a data set is cut for cross-validation
    rank: int = 0
    world: int = 1
    quiet: bool = False  # show no progress bar
    generators: dict[str, torch.Generator] = field(default_factory=dict)

    def generator(self, purpose: str = "", device: str | None = None) -> torch.Generator:
        """A private random stream keyed by (seed, key, purpose); its state is in checkpoints."""
        import torch

        from ..base.random_keys import key_seed

        name = f"{self.key}/{purpose}"
        if name not in self.generators:
            where = device or self.device
            generator = torch.Generator("cpu" if where == "meta" else where)
            self.generators[name] = generator.manual_seed(key_seed(self.seed, name))
        return self.generators[name]


@dataclass(frozen=True)
class Part(Generic[C, T]):
    """What every record has. `C` is the config dataclass, `T` what `build` returns."""

    kind: ClassVar[str] = "part"
    reserved: ClassVar[frozenset[str]] = frozenset({"name"})  # keys of the node that are the core's

    name: str
    config: type[C]
    build: Callable[[C, Context], T]
    _: KW_ONLY
    check: Callable[[C, Facts], Iterable[Problem]] | None = None  # cross-field rules; no torch
    deprecated: str = ""  # what to use instead; warns on use
    docs: str = ""  # address of a page that says more
    # Fields to try it with, where their defaults do not suffice; files it needs may be written to the folder.
    trial: Callable[[Path], Mapping[str, Any]] | None = None

    @property
    def summary(self) -> str:
        """The first line of the config's docstring."""
        return (self.config.__doc__ or "").strip().split("\n")[0]


@dataclass(frozen=True)
class StepPart(Part[C, T]):
    """A part that acts in a training step, where nothing waits for the device unless it says so here."""

    synchronizes: str = field(default="", kw_only=True)  # why it waits for the device in every step
    # Why it calls, in training or evaluation, what has no deterministic kernel on CUDA.
    nondeterministic: str = field(default="", kw_only=True)
    full_precision: str = field(default="", kw_only=True)  # why `precision: auto` is fp32 with it


@dataclass(frozen=True)
class Model(StepPart[C, "torch.nn.Module"]):
    """Builds an `nn.Module` from its config and `context.spec`, called as `model(*batch.inputs)`."""

    kind: ClassVar[str] = "model"
    reserved: ClassVar[frozenset[str]] = frozenset({"name", "weights", "infer_pegs"})

    inputs: tuple[type[Spec], ...] = field(default=(), kw_only=True)  # specs it reads; () is any
    targets: tuple[type[Spec], ...] = field(default=(), kw_only=True)  # specs it predicts; () is any
    pegs: tuple[Site, ...] = field(default=(), kw_only=True)  # sites its pegs have
    flat: tuple[Site, ...] = field(default=(), kw_only=True)  # those that see one vector a sample, layout NC
    generates: bool = field(default=False, kw_only=True)  # its module has `generate`, as `Decoding` says
    # Its module has `sample(count, generator) -> Tensor`, new samples like those of its input; and, where
    # they have a meaning, `encode(x)` and `decode(code)`, or `latent(count, generator)` and `decode(code)`.
    samples: bool = field(default=False, kw_only=True)
    objective: str = field(
        default="", kw_only=True
    )  # that trains it where a config names none; "": by target


@dataclass(frozen=True)
class Optimizer(StepPart[C, "Callable[[list[dict[str, Any]]], torch.optim.Optimizer]"]):
    """Builds a factory that takes parameter groups and returns a `torch.optim.Optimizer`.

    That may have a method `finished() -> str | None`, which the loop calls once after every epoch: a text, as
    "gradient norm 8e-7 is at most tolerance 1e-6", ends the run. What it looks at is in its `state_dict`, so
    that a resumed run ends where it would have ended.
    """

    kind: ClassVar[str] = "optimizer"
    reserved: ClassVar[frozenset[str]] = frozenset({"name", "schedule", "players"})

    closure: bool = field(default=False, kw_only=True)  # it evaluates the loss again (LBFGS, SAM)
    # (optimizer, traced) -> its update as a function of the gradients of all groups and the rate of each,
    # changing parameters and state in place; None where there is no such function, or not yet. Traced, it
    # becomes part of a graph: it takes rates as tensors. Else it gives the same numbers as `step`, sooner.
    functional: Callable[[torch.optim.Optimizer, bool], Update | None] | None = field(
        default=None, kw_only=True
    )


@dataclass(frozen=True)
class Schedule(StepPart[C, Callable[[int], float]]):
    """Builds a function from the number of the step (0 first) to a factor of the learning rate.

    Returned by `pegboard_optimizers`, beside the optimizers.
    """

    kind: ClassVar[str] = "schedule"


@dataclass(frozen=True, slots=True)
class Role:
    """A place in the order of a stage. A plugin's own has a prefix, `"acme:prune"`."""

    name: RoleName
    stage: Stage
    after: RoleName | Literal[""] = ""  # the role it comes right after; "" is first in its stage
    by_name: bool = False  # order inside it cannot matter, so names decide
    single: bool = False  # one trick at most acts for a player


@dataclass(frozen=True)
class Regularizer(StepPart[C, "Trick"]):
    """Builds a `Trick`. `stages` names every method the trick overrides, and its role there.

    A trick that hangs modules says on which pegs in a field `sites: tuple[Site, ...]` of its config: from it
    the core knows, before anything is built, which tricks meet and whether the model has such pegs.
    """

    kind: ClassVar[str] = "regularizer"
    reserved: ClassVar[frozenset[str]] = frozenset({"name", "players"})

    stages: Mapping[Stage, RoleName] = field(default_factory=dict, kw_only=True)  # {"hang": "drop"}
    after: tuple[str, ...] = field(default=(), kw_only=True)  # parts it comes after, where they meet
    before: tuple[str, ...] = field(default=(), kw_only=True)
    conflicts: tuple[str, ...] = field(default=(), kw_only=True)  # parts it cannot stand beside
    roles: tuple[Role, ...] = field(default=(), kw_only=True)  # roles it adds
    # Fields with which it changes nothing, to the bit; None where there are none.
    neutral: Mapping[str, Any] | None = field(default=None, kw_only=True)
    inputs: tuple[type[Spec], ...] = field(default=(), kw_only=True)  # inputs it works on; () is any
    targets: tuple[type[Spec], ...] = field(default=(), kw_only=True)  # targets it works on; () is any
    # Fields that the core had for what it does now, and its own in their place: {"trainer.old": "new"}. A
    # config that gives one of them uses the part.
    replaces: Mapping[str, str] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class Dataset(Part[C, "Splits"]):
    """Builds `Splits`: sources for train, val and test, with a spec.

    `spec` says what they will hold from the config alone, where that is possible: sizes that
    only the data knows are None, and the function is left out where nothing is known.
    """

    kind: ClassVar[str] = "dataset"
    reserved: ClassVar[frozenset[str]] = frozenset(
        "name batch_size batch_schedule eval_batch_size sampling shuffle drop_last lengths workers".split()
    )

    spec: Callable[[C], DataSpec | None] | None = field(default=None, kw_only=True)
    folds: bool = field(default=False, kw_only=True)  # `build` cuts as `context.fold` says, before it scales
    # How many samples train, val and test have, from the config alone; with `folds` also of a fold, by its
    # number and count, where the one of (0, 1) validates on all but the test. None: only the data tells.
    samples: Callable[[C, tuple[int, int] | None], tuple[int, int, int] | None] | None = field(
        default=None, kw_only=True
    )
    # Draws on an empty figure what the data set stands for; None: the core draws by the spec.
    plot: Callable[[Splits, Figure], None] | None = field(default=None, kw_only=True)
    # `encode` and `decode` from the files that its splits had, in a folder; None: they need the data.
    restore: Callable[[C, Path], Codec] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class ObjectivePart(StepPart[C, "Objective"]):
    """Builds an `Objective`: the loss, its metrics and its players."""

    kind: ClassVar[str] = "objective"

    targets: tuple[type[Spec], ...] = field(default=(), kw_only=True)  # specs it takes; () is any
    default_for: tuple[type[Spec], ...] = field(default=(), kw_only=True)  # chosen when none is named
    outputs: Callable[[C, Spec], int | None] | None = field(default=None, kw_only=True)
    soft: bool = field(default=False, kw_only=True)  # takes distributions over classes as targets
    # What its players learn in place of the data's target, where they do: what tricks on targets act on.
    target: Spec | None = field(default=None, kw_only=True)
    players: tuple[str, ...] | None = field(default=None, kw_only=True)  # their names; None: not known yet
    # Names of its metrics besides the loss, from its config and the target; None: known once it is built.
    metrics: Callable[[C, Spec | None], Iterable[str] | None] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Stepper(StepPart[C, "Stepping"]):
    """Builds a `Stepping`, which makes the updates of a run in place of the ordinary loop over steps."""

    kind: ClassVar[str] = "stepper"


@dataclass(frozen=True)
class TrackerPart(Part[C, "Tracker"]):
    """Builds a `Tracker`: where numbers, pictures and files go."""

    kind: ClassVar[str] = "tracker"


@dataclass(frozen=True)
class ProbePart(Part[C, "Probe"]):
    """Builds a `Probe`: a measurement on a trained run."""

    kind: ClassVar[str] = "probe"

    # Why it calls what has no deterministic kernel on CUDA.
    nondeterministic: str = field(default="", kw_only=True)
    reference: bool = field(default=False, kw_only=True)  # builds a `Reference`, which a config may name
