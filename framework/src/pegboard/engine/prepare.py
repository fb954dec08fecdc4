"""What tricks may do once instead of in every step."""

from __future__ import annotations

from ..contracts import Source
from ..data import Resident
from ..planning import Assembly, overrides, private_rng


def prepare(assembly: Assembly, train: Source) -> None:
    """Show the training samples to tricks that ask, where steps get the same ones more than once.

    They do where the samples are in memory, nobody edits a batch and the run is longer than an epoch.
    """
    plan = assembly.plan
    asking = {key: trick for key, trick in assembly.tricks.items() if overrides(trick, "prepare")}
    if not asking or not isinstance(train, Resident) or plan.sampler is None:
        return
    players = [kit.player for kit in assembly.kits]
    edited = any(p.target is not None or assembly.linked("edit_batch", p.name) for p in players)
    if edited or (plan.steps or 0) <= plan.sampler.updates(0):
        return
    for key, trick in asking.items():
        with private_rng(plan.settings.seed, "prepare", key, device=assembly.device):
            trick.prepare(train, plan.settings.batches.eval_size)
