"""The trick contract, and the order in which tricks act. No torch at import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..base.nearest import nearest
from .records import Problem, Regularizer, Role, Stage

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..data import Resident
    from ..planning.pegs import Peg
    from .results import Batch


# The stages of a step in the order they act, and in each its roles in order. Inside a role that is
# `by_name` the order cannot matter, so names decide it; elsewhere two tricks that meet must say it.
ROLES: dict[Stage, tuple[Role, ...]] = {
    "edit_model": (Role("initialize", "edit_model"), Role("reparametrize", "edit_model")),
    "hang": (Role("normalize", "hang"), Role("drop", "hang")),
    "edit_groups": (
        Role("rate", "edit_groups", by_name=True),
        Role("decay", "edit_groups", by_name=True),
    ),
    "edit_batch": (Role("augment", "edit_batch"), Role("mix", "edit_batch"), Role("attack", "edit_batch")),
    "edit_target": (Role("mix", "edit_target"), Role("smooth", "edit_target")),
    "edit_loss": (Role("mix", "edit_loss"), Role("term", "edit_loss", by_name=True)),
    "edit_grads": (Role("noise", "edit_grads"), Role("clip", "edit_grads")),
    "after_step": (Role("constrain", "after_step"), Role("average", "after_step")),
    "eval_weights": (Role("average", "eval_weights", single=True),),
    "after_eval": (Role("stop", "after_eval", by_name=True),),
}


class Stop(str):
    """Returned by `after_eval` to end the run; the text says why."""


@dataclass(kw_only=True)
class EvalWeights:
    """Another set of weights of a player, for evaluation and for the weights of checkpoints.

    What is trained stays in the model and goes on from checkpoints as it was. `weights` may have buffers too,
    and places that `weights` has not are those of the model.
    """

    weights: Mapping[str, Tensor]  # by their names in the model, always the same tensors
    # Called after every update with the weights that are trained, in the order in which `eval_weights` was
    # given them; changes tensors in place, and in a compiled step becomes part of the graph.
    follow: Callable[[list[Tensor]], None] | None = None
    state: Sequence[Tensor] = ()  # what else `follow` changes; a graph takes both back with a refused update
    # Called after every epoch, before its evaluation, with the model and the training samples in batches.
    after_epoch: Callable[[nn.Module, Iterable[Batch]], None] | None = None
    use: bool = True  # False: the trained weights are evaluated, and those here only kept


class Trick:
    """A regularizer at work. Every method is optional; the core links only those overridden.

    The record's `stages` names the methods that a class overrides and the role of each. All but
    `hang`, `edit_model` and `edit_groups`, which act once, are part of the training step: they
    must not wait for the device (`.item()`, indexing by a mask), unless the record's `synchronizes`
    says why they do, and must not draw from the global random stream of another device.
    """

    def hang(self, peg: Peg) -> nn.Module | None:
        """A module for this peg, or None to leave it alone."""
        raise NotImplementedError

    def edit_model(self, model: nn.Module) -> None:
        """Change the built model before its optimizer exists; may keep a reference to it."""
        raise NotImplementedError

    def edit_groups(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Parameter groups for the optimizer. Every group has `params` and the names in `names`."""
        raise NotImplementedError

    def prepare(self, train: Resident, size: int) -> None:
        """Look at the training samples before the first step, `size` at a time, for what stays the same.

        Called where every step gets them as they are there, `batch.rows` by number: they are in memory,
        no trick edits batches, and the run goes over them more than once. What is kept is no state: a
        resumed run looks again. Nothing may depend on whether this is called but time and rounding.
        """
        raise NotImplementedError

    def edit_batch(self, batch: Batch) -> Batch:
        """The batch to train on instead of this one."""
        raise NotImplementedError

    def edit_target(self, target: Tensor) -> Tensor:
        """The target to compare with instead of this one; metrics still see the original.

        What counts stays what it was: a place that was left out is left out, and no other.
        """
        raise NotImplementedError

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        """The loss to descend instead of this one; `batch` is the edited one."""
        raise NotImplementedError

    def edit_grads(self, grads: list[Tensor | None], params: list[nn.Parameter]) -> list[Tensor | None]:
        """The gradients to move by instead of these, in the order of the parameters; None stays None.

        Called after the last backward of an update and before it. None is changed in place: two parameters
        may have got the same tensor.
        """
        raise NotImplementedError

    def after_step(self, model: nn.Module) -> None:
        """Called after every update."""
        raise NotImplementedError

    def eval_weights(self, weights: Mapping[str, Tensor]) -> EvalWeights:
        """Another set of weights for evaluation and checkpoints, as an average of those that are trained.

        Called once for each player when a run begins or goes on, with the weights that it trains, by name;
        what it keeps is copies of them. They are in checkpoints, and need not be in `state_dict`.
        """
        raise NotImplementedError

    def after_eval(self, metrics: Mapping[str, float]) -> Stop | None:
        """Called after every evaluation with a row of figures (`val/loss`); `Stop("why")` ends the run."""
        raise NotImplementedError

    def formula(self, loss: str) -> str:
        """How the trick changes the written formula of the loss; for `explain`."""
        return loss

    def state_dict(self) -> dict[str, torch.Tensor | int | float | str]:
        """What a resumed run needs besides the modules that hang on pegs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""


@dataclass(frozen=True)
class Use:
    """A regularizer as a config uses it."""

    part: Regularizer[Any]
    config: Any
    players: tuple[str, ...] = ()  # () is all


@dataclass(frozen=True)
class Placed:
    """A trick in its place in a stage, and the rule that put it there."""

    key: str
    role: str
    rule: str


def order(
    tricks: Mapping[str, Use], sites: Sequence[str] = ()
) -> tuple[dict[str, list[Placed]], list[Problem]]:
    """For every stage, the tricks in the order in which they act; and what is wrong with them.

    The order depends on what the records declare and on names, never on the order of `tricks`.
    `sites` are those of the model's pegs, where they are known: tricks whose sites the model does
    not have cannot meet. The `field` of a problem is the key of a trick.
    """
    problems = [*_conflicts(tricks)]
    stages: dict[str, list[Placed]] = {}
    for stage in ROLES:
        roles: dict[str, Role] = {role.name: role for role in _roles(stage, tricks)}
        members: dict[str, list[str]] = {name: [] for name in roles}
        for key in sorted(tricks):
            role = tricks[key].part.stages.get(stage)
            if role in members:
                members[role].append(key)
            elif role is not None:
                problems.append(_unknown_role(key, stage, role, roles))
        stages[stage] = []
        for name, keys in members.items():
            placed, wrong = _order_role(stage, roles[name], keys, tricks, sites, " < ".join(roles))
            stages[stage] += placed
            problems += wrong
        problems += _contradictions(stages[stage], tricks)
    for key, use in sorted(tricks.items()):
        for stage in use.part.stages:
            if stage not in ROLES:
                near = nearest(stage, ROLES)
                hint = f"did you mean {near[0]!r}?" if near else ""
                problems.append(Problem(f"declares an unknown stage {stage!r}", key, ", ".join(ROLES), hint))
    return {stage: placed for stage, placed in stages.items() if placed}, problems


def _roles(stage: Stage, tricks: Mapping[str, Use]) -> list[Role]:
    """The roles of a stage in order, with those that the tricks add."""
    roles = list(ROLES[stage])
    added = {role for use in tricks.values() for role in use.part.roles if role.stage == stage}
    for role in sorted(added, key=lambda role: role.name):
        names: list[str] = [r.name for r in roles]
        roles.insert(names.index(role.after) + 1 if role.after in names else 0, role)
    return roles


def _unknown_role(key: str, stage: str, role: str, roles: Iterable[str]) -> Problem:
    return Problem(f"has an unknown role {role!r} in {stage}", key, f"one of {', '.join(roles)}")


def _conflicts(tricks: Mapping[str, Use]) -> Iterable[Problem]:
    for key, use in sorted(tricks.items()):
        for other, there in sorted(tricks.items()):
            if other != key and there.part.name in use.part.conflicts:
                hint = f"leave one out: {key}: null or {other}: null"
                yield Problem(
                    f"{key!r} cannot stand beside {other!r}, as {use.part.name} declares", key, "", hint
                )


def _before(first: str, second: str, tricks: Mapping[str, Use]) -> bool:
    """Whether a record says that `first` acts before `second`."""
    a, b = tricks[first].part, tricks[second].part
    return a.name != b.name and (b.name in a.before or a.name in b.after)


def _meet(stage: str, first: Use, second: Use, sites: Sequence[str]) -> bool:
    """Whether two tricks act on the same thing."""
    if first.players and second.players and not set(first.players) & set(second.players):
        return False
    if stage != "hang":
        return True
    shared = set(getattr(first.config, "sites", ())) & set(getattr(second.config, "sites", ()))
    declared = hasattr(first.config, "sites") and hasattr(second.config, "sites")
    return not declared or bool(shared & set(sites) if sites else shared)


def _order_role(
    stage: str, role: Role, keys: list[str], tricks: Mapping[str, Use], sites: Sequence[str], roles: str
) -> tuple[list[Placed], list[Problem]]:
    """Members of one role: by what they declare, then by name; a meeting without an order is a problem."""
    reach = {k: {o for o in keys if _before(k, o, tricks)} for k in keys}  # key -> those after it
    for middle in keys:
        for k in keys:
            if middle in reach[k]:
                reach[k] |= reach[middle]
    problems = []
    cycle = [k for k in keys if k in reach[k]]
    if cycle:
        text = f"the declared order of {', '.join(map(repr, cycle))} in {stage} runs in a circle"
        problems.append(Problem(text, cycle[0], "", "one of their plugins must drop an after or before"))
    for i, first in enumerate(keys):
        for second in keys[i + 1 :]:
            free = first not in reach[second] and second not in reach[first]
            if role.single and _meet(stage, tricks[first], tricks[second], sites):
                problems.append(_two_of_one(stage, role, first, second))
            elif free and not role.by_name and _meet(stage, tricks[first], tricks[second], sites):
                problems.append(_ambiguous(stage, role, first, second, tricks))
    ordered = sorted(keys, key=lambda k: (sum(k in reach[o] for o in keys), k))
    placed = []
    for k in ordered:
        earlier = [o for o in ordered if _before(o, k, tricks)]
        rule = f"role {role.name} of {roles}"
        rule += f", after {', '.join(earlier)}" if earlier else ", by name" if len(keys) > 1 else ""
        placed.append(Placed(k, role.name, rule))
    return placed, problems


def _ambiguous(stage: str, role: Role, first: str, second: str, tricks: Mapping[str, Use]) -> Problem:
    if stage == "hang":
        hint = "give them different sites, or leave one out"
    else:
        hint = f"leave one out: {first}: null or {second}: null"
    a, b = tricks[first].part.name, tricks[second].part.name
    if a != b:
        hint += f"; their authors can declare an order: after=({b!r},) on {a}"
    text = f"{first!r} and {second!r} both {stage} as {role.name!r} and nothing says which comes first"
    return Problem(text, second, "", hint)


def _two_of_one(stage: str, role: Role, first: str, second: str) -> Problem:
    text = f"{first!r} and {second!r} both {stage} as {role.name!r}, and a player has one such trick at most"
    return Problem(text, second, "", f"leave one out: {first}: null or {second}: null")


def _contradictions(placed: Sequence[Placed], tricks: Mapping[str, Use]) -> Iterable[Problem]:
    """Declared orders that the order of roles forbids."""
    for i, first in enumerate(placed):
        for second in placed[i + 1 :]:
            if first.role != second.role and _before(second.key, first.key, tricks):
                text = (
                    f"{second.key!r} is declared to act before {first.key!r}, "
                    f"but role {first.role!r} comes before role {second.role!r}"
                )
                yield Problem(text, second.key)
