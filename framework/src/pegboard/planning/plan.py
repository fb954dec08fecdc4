"""From a checked config to a plan, and from a plan to the objects of a run.

A plan knows every part, the spec of the data and the order of the tricks, and has allocated
nothing. `assemble` builds its objects on a device: on `meta` to explain, on a real one to train.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..base.errors import PegboardError, no_numbers
from ..base.random_keys import key_seed
from ..config.build_errors import as_config_errors
from ..config.check import refine
from ..config.errors import Mistake
from ..config.nodes import Chosen, Settings
from ..contract.records import Context
from ..contract.results import Objective, Player, Splits, Update
from ..contract.specs import DataSpec, Series
from ..contract.stepping import Stepping
from ..contract.tricks import ROLES, EvalWeights, Placed, Trick, Use, order
from ..data import Sampler, adapted_splits, cut_splits, padded_splits
from ..registry.adapters import adapt_trick
from ..registry.discovery import Entry
from ..registry.spec_names import check_record
from . import pegs
from .channels_last import channels_last
from .check_players import check_players

if TYPE_CHECKING:
    from torch.optim import Optimizer


@dataclass
class Plan:
    """A config that was resolved, checked and wired."""

    settings: Settings
    spec: DataSpec
    objective: Chosen
    order: dict[str, list[Placed]]
    splits: Splits | None = None  # None while nothing had to be read

    @property
    def outputs(self) -> int | None:
        """How many numbers a sample the objective reads from the model."""
        part: Any = self.objective.entry.part
        if part.outputs is not None and self.spec.target is not None:
            return part.outputs(self.objective.config, self.spec.target)  # type: ignore[no-any-return]
        if isinstance(self.spec.target, Series):
            return self.spec.target.features  # at every step
        return None if self.spec.target is None else self.spec.target.size

    @property
    def told(self) -> DataSpec:
        """The spec as tricks see it: with the target that the players learn."""
        part: Any = self.objective.entry.part
        return self.spec if part.target is None else replace(self.spec, target=part.target)

    @functools.cached_property
    def sampler(self) -> Sampler | None:
        """What draws the samples of each epoch; None while the data is not read."""
        if self.splits is None:
            return None
        settings = self.settings
        return Sampler(self.splits, settings.batches, settings.trainer.accumulate, settings.seed)

    @functools.cached_property
    def epochs(self) -> int | None:
        """Passes over the data; None when only `trainer.steps` ends the run."""
        return self.settings.trainer.most_epochs

    @functools.cached_property
    def steps(self) -> int | None:
        """Updates the run will make; None while the data is not read."""
        trainer = self.settings.trainer
        if self.sampler is None or self.epochs is None:
            return trainer.steps
        whole = self.sampler.total(self.epochs)
        return whole if trainer.steps is None else min(whole, trainer.steps)

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every part of the plan with its place in the config."""
        return ((path, chosen.entry) for path, chosen in self.settings.parts.items())

    def part_in(self, file: str) -> tuple[str, Entry] | None:
        """The part whose code is in this file, with its place in the config."""
        for path, entry in self.entries():
            home = _home(entry.part.build)
            if file == str(home) or (home.name == "__init__.py" and Path(file).is_relative_to(home.parent)):
                return path, entry
        return None

    def path_of(self, file: str) -> str:
        """Where in the config the part stands whose code is in this file; "" where it is no part's."""
        found = self.part_in(file)
        return found[0] if found else ""

    def fingerprint(self) -> dict[str, str]:
        """Distribution and version of every plugin the plan uses."""
        return dict(sorted({(e.plugin.dist, e.plugin.version) for _, e in self.entries()}))


def _home(function: Any) -> Path:
    """The file in which a build function, or the class that is one, was written."""
    function = getattr(function, "func", function)  # of a partial
    code = getattr(function, "__code__", None)
    module = sys.modules.get(getattr(function, "__module__", ""))
    return Path(code.co_filename if code is not None else getattr(module, "__file__", None) or "")


def make_plan(
    settings: Settings,
    *,
    read: bool,
    spec: DataSpec | None = None,
    quiet: bool = False,
    kind: type[Plan] = Plan,
) -> Plan:
    """A plan for checked settings. The data is read when `read` is set or its spec is not known."""
    splits, spec, wrong = None, spec or settings.spec, list[Mistake]()
    if read or spec is None or not spec.known:
        with as_config_errors(settings):
            splits = read_data(settings, quiet)
        sampler = Sampler(splits, settings.batches, settings.trainer.accumulate, settings.seed)
        spec, wrong = splits.spec, list(sampler.mistakes(settings, read))
    if settings.spec != spec or splits is not None:
        samples = None if splits is None else len(splits.train) or None
        settings = refine(settings, spec, samples, wrong, None if splits is None else bool(splits.val))
    assert settings.objective is not None
    tricks = {k: Use(c.entry.part, c.config, c.players) for k, c in settings.regularizers.items()}  # type: ignore[arg-type]
    ordered, problems = order(tricks, getattr(settings.model.entry.part, "pegs", ()))
    assert not problems, problems  # settings were checked
    plan = kind(settings, spec, settings.objective, ordered, splits)
    if settings.registry is not None:
        check_record(spec, settings.registry.specs)
    if splits is not None:
        plan.sampler = sampler  # what it found out about the weights of samples is not asked for again
    return plan


def read_data(settings: Settings, quiet: bool = False) -> Splits:
    """The splits that the config's data set builds; `quiet` without bars."""
    part, fold = settings.data.entry.part, settings.trainer.cut
    own = getattr(part, "folds", False)
    context = Context(seed=settings.seed, key="data", fold=fold if own else None, quiet=quiet)
    splits = adapted_splits(build(settings.data, context))
    if fold is not None and not own:
        splits = cut_splits(splits, fold)
    return padded_splits(splits) if settings.batches.lengths == "pad" and len(splits.train) else splits


def build(chosen: Chosen, context: Context) -> Any:
    """Call a part's build function; an unexpected error names the part and its plugin."""
    part = chosen.entry.part
    try:
        return part.build(chosen.config, context)
    except PegboardError as error:
        error.part = error.part or chosen.path
        raise
    except Exception as error:
        error.add_note(f"while building {part.kind} {chosen.key!r} of {chosen.entry.plugin.dist}")
        raise


@contextmanager
def private_rng(seed: int, *key: object, device: str = "cpu") -> Iterator[None]:
    """Draws inside come from a stream of their own, and the streams outside do not notice."""
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(key_seed(seed, *key))
        yield


@dataclass
class PlayerKit:
    """A player with what moves its parameters."""

    player: Player
    optimizer: Optimizer
    groups: list[dict[str, Any]]  # as the tricks left them, with the names of the parameters
    schedule: Callable[[int], float] | None
    closure: bool
    functional: Callable[[Optimizer, bool], Update | None] | None = None  # as the optimizer's record has it
    eval_weights: tuple[str, EvalWeights] | None = None  # kept beside its own, and the key of their trick
    followed: dict[str, nn.Parameter] = field(default_factory=dict)  # those that they follow, by name


@dataclass
class Assembly:
    """The objects of a plan on one device."""

    plan: Plan
    device: str
    model: nn.Module
    objective: Objective
    tricks: dict[str, Trick]
    kits: list[PlayerKit]
    hung: list[tuple[str, pegs.Peg, list[str]]]  # name of a peg, the peg, keys of what hangs on it
    generators: dict[str, torch.Generator] = field(default_factory=dict)
    stepping: Stepping = field(default_factory=Stepping)  # what makes the updates
    channels_last: bool = False  # images have their channels innermost in memory

    def linked(self, stage: str, player: str) -> list[tuple[str, Callable[..., Any]]]:
        """The methods of a stage that act on a player, in order, with the keys of their tricks."""
        return [
            (placed.key, getattr(self.tricks[placed.key], stage))
            for placed in self.plan.order.get(stage, ())
            if overrides(self.tricks[placed.key], stage)
            and player in (self.plan.settings.regularizers[placed.key].players or (player,))
        ]


def begin_eval_weights(assembly: Assembly) -> None:
    """Let weights that tricks keep for evaluation begin where those of the model are."""
    for kit in assembly.kits:
        own = {id(p) for group in kit.optimizer.param_groups for p in group["params"] if p.requires_grad}
        for key, keep in assembly.linked("eval_weights", kit.player.name):
            kit.followed = {n: p for n, p in assembly.model.named_parameters() if id(p) in own}
            kit.eval_weights = key, keep({name: p.detach() for name, p in kit.followed.items()})


def overrides(trick: Trick, stage: str) -> bool:
    return getattr(type(trick), stage) is not getattr(Trick, stage)


def assemble(plan: Plan, device: str, folder: Path | None = None, kind: type[Context] = Context) -> Assembly:
    """Build every object of a plan on a device, tricks hung and optimizers made."""
    with as_config_errors(plan.settings, plan.path_of):
        return _assembled(plan, device, folder, kind)


def _assembled(plan: Plan, device: str, folder: Path | None, kind: type[Context]) -> Assembly:
    settings = plan.settings
    generators: dict[str, torch.Generator] = {}

    told = plan.told
    shared: dict[str, Any] = {
        "outputs": plan.outputs,
        "device": device,
        "seed": settings.seed,
        "steps": plan.steps,
        "epochs": plan.epochs,
        "samples": None if plan.splits is None else len(plan.splits.train),
        "folder": folder,
        "generators": generators,
    }

    def context(key: str) -> Context:
        return kind(key=key, spec=told if key in settings.regularizers else plan.spec, **shared)

    objective: Objective = build(plan.objective, context("objective"))
    model, tricks, hung = build_network(plan, context, objective)
    model.to(device)
    assembly = Assembly(plan, device, model, objective, tricks, [], hung, generators)
    if settings.stepper is not None:
        assembly.stepping = build(settings.stepper, context("stepper"))
    if channels_last(settings, plan.spec, device, model, assembly.stepping.hides == "step"):
        assembly.channels_last = True
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    players = objective.players(model)
    check_players(settings, players)
    assembly.kits = [_kit(assembly, player, context) for player in players]
    return assembly


def build_network(
    plan: Plan, context: Callable[[str], Context], objective: Objective | None = None
) -> tuple[nn.Module, dict[str, Trick], list[tuple[str, pegs.Peg, list[str]]]]:
    """The model with its initial weights and with all that tricks change in it or hang on it."""
    model = _build_model(plan, context("model"))
    owners = _owners(plan, model, lambda: objective or build(plan.objective, context("objective")))
    tricks = _build_tricks(plan, context)
    for placed in plan.order.get("edit_model", ()):
        if overrides(tricks[placed.key], "edit_model"):
            with private_rng(plan.settings.seed, "edit_model", placed.key):
                tricks[placed.key].edit_model(model)
    with torch.device("meta" if context("").device == "meta" else "cpu"):
        return model, tricks, _hang(plan, model, tricks, owners)


def _build_model(plan: Plan, context: Context) -> nn.Module:
    """The model with its initial weights, the same on every device, before any trick."""
    settings = plan.settings

    def built(where: str) -> nn.Module:
        with private_rng(settings.seed, "model"), torch.device(where):
            return build(settings.model, context)  # type: ignore[no-any-return]

    try:
        model = built("meta" if context.device == "meta" else "cpu")
    except Exception as error:
        if context.device != "meta" or not no_numbers(error):
            raise
        model = built("cpu").to("meta")  # it reads numbers while it is built, which no step waits for
    if not isinstance(model, nn.Module):
        name, plugin = settings.model.entry.part.name, settings.model.entry.plugin.dist
        raise PegboardError(
            f"model {name!r} of {plugin} built a {type(model).__name__}, expected an nn.Module"
        )
    if settings.infer_pegs and not any(True for _ in pegs.find(model)):
        pegs.infer(model, *(s.example(2, "meta") for s in plan.spec.inputs))
    return model


def _build_tricks(plan: Plan, context: Callable[[str], Context]) -> dict[str, Trick]:
    tricks = {}
    for key, chosen in plan.settings.regularizers.items():
        with private_rng(plan.settings.seed, "trick", key):
            trick: Trick = build(chosen, context(key))
        part: Any = chosen.entry.part
        for stage in ROLES:
            if overrides(trick, stage) and stage not in part.stages:
                raise PegboardError(
                    f"regularizer {part.name!r} of {chosen.entry.plugin.dist} overrides {stage} "
                    f"but its record does not declare it: add it to `stages`"
                )
        if overrides(trick, "edit_grads"):
            adapt_trick(chosen.entry.plugin, part.name, trick)
        tricks[key] = trick
    return tricks


def _owners(plan: Plan, model: nn.Module, objective: Callable[[], Objective]) -> dict[str, str]:
    """The player that each peg belongs to, by the parameters beside it; nothing where no trick asks."""
    hanging = [plan.settings.regularizers[placed.key].players for placed in plan.order.get("hang", ())]
    if not any(hanging):
        return {}
    players = objective().players(model)
    check_players(plan.settings, players)
    homes = {p.name: [name.split(".") for name, _ in p.parameters] for p in players}

    def near(peg: Sequence[str], player: str) -> int:
        """How many modules around the peg are around a parameter of the player too."""
        found = 0
        for name in homes[player]:
            alike = takewhile(lambda pair: pair[0] == pair[1], zip(peg, name, strict=False))
            found = max(found, sum(1 for _ in alike))
        return found

    found = ((name, name.split(".")) for name, _ in pegs.find(model))
    return {name: max(homes, key=lambda player: near(parts, player)) for name, parts in found}


def _hang(
    plan: Plan, model: nn.Module, tricks: Mapping[str, Trick], owners: Mapping[str, str]
) -> list[tuple[str, pegs.Peg, list[str]]]:
    """Fill the model's pegs; a trick that can only hang and found no peg is an error."""
    found = [(name, peg, list[str]()) for name, peg in pegs.find(model)]
    used, hanging = set(), plan.order.get("hang", ())
    hanging = [placed for placed in hanging if overrides(tricks[placed.key], "hang")]
    players_of = {placed.key: plan.settings.regularizers[placed.key].players for placed in hanging}
    for name, peg, keys in found:
        for placed in hanging:
            players = players_of[placed.key]
            if players and owners[name] not in players:
                continue
            with private_rng(plan.settings.seed, "hang", placed.key, name):
                module = tricks[placed.key].hang(peg)
            if module is not None:
                if placed.role == "normalize":
                    pegs.make_way(peg, module)
                peg.add_module(placed.key, module)
                keys.append(placed.key)
                used.add(placed.key)
    for key, trick in tricks.items():
        acts = [s for s in ROLES if overrides(trick, s)]
        if acts == ["hang"] and key not in used:
            sites = sorted({peg.site for _, peg, _ in found})
            wanted = ", ".join(getattr(plan.settings.regularizers[key].config, "sites", ()))
            raise PegboardError(
                f"regularizers.{key} found nothing to act on: it hangs on {wanted or 'no site'}, and model "
                f"{plan.settings.model.entry.part.name!r} has pegs at {', '.join(sites) or 'no site at all'}"
                + (f"\n  choose from them: regularizers.{key}.sites=[{sites[0]}]" if sites else "")
            )
    return found


def _kit(assembly: Assembly, player: Player, context: Callable[[str], Context]) -> PlayerKit:
    settings = assembly.plan.settings
    groups: list[dict[str, Any]] = [
        {"params": [p for _, p in player.parameters], "names": [n for n, _ in player.parameters]}
    ]
    for _, edit in assembly.linked("edit_groups", player.name):
        groups = edit(groups)
    if not any(group["params"] for group in groups):
        raise PegboardError(_nothing_to_train(assembly, player))
    optimizer, schedule = settings.player_optimizers.get(player.name, (settings.optimizer, settings.schedule))
    factory = build(optimizer, context("optimizer"))
    made = factory(_merged(groups, [p for _, p in player.parameters]))
    for group in made.param_groups:
        group.setdefault("initial_lr", group["lr"])
    factor = None
    if schedule is not None and assembly.plan.steps is not None:
        factor = build(schedule, context("optimizer.schedule"))
    part: Any = optimizer.entry.part
    return PlayerKit(player, made, groups, factor, part.closure, part.functional)


def _nothing_to_train(assembly: Assembly, player: Player) -> str:
    """What to say of a player without parameters that may change."""
    part, count = assembly.plan.settings.model.entry.part, sum(1 for _ in assembly.model.parameters())
    why = f"all of its {count} parameters are fixed" if count else "it has no parameters"
    if len(assembly.objective.players(assembly.model)) > 1:
        return f"player {player.name!r} of model {part.name!r} has nothing to train"
    return (
        f"model {part.name!r} has nothing to train: {why}\n"
        f"choose a model that learns, or fields with which this one does: pegboard show {part.name}"
    )


def _merged(groups: list[dict[str, Any]], order: list[nn.Parameter]) -> list[dict[str, Any]]:
    """Groups for the optimizer: those that differ only in what is the core's own are one.

    Every group costs an optimizer dozens of Python calls a step, and the decay is not its work.
    """
    place = {id(p): i for i, p in enumerate(order)}
    merged: list[dict[str, Any]] = []
    for group in (g for g in groups if g["params"]):
        settings = {k: v for k, v in group.items() if k not in ("params", "names", "decoupled_decay")}
        same = next((m for m in merged if {k: v for k, v in m.items() if k != "params"} == settings), None)
        if same is None:
            merged.append(settings | {"params": list(group["params"])})
        else:
            same["params"] += group["params"]
    for group in merged:
        group["params"].sort(key=lambda p: place.get(id(p), len(place)))
    return merged
