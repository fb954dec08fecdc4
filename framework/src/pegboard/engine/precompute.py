"""What tricks may do once instead of in every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from torch import Tensor

from ..contract.results import Batch, Source
from ..contract.tricks import Trick
from ..data import Resident
from ..planning.plan import Assembly, Plan, overrides, private_rng

Working = Callable[[int, str], AbstractContextManager[Callable[[int], None]]]  # how much of what -> advance


def prepare(assembly: Assembly, source: Source, working: Working | None = None) -> None:
    """Show the training samples to tricks that ask, where steps get the same ones more than once.

    They do where the samples are in memory, nobody edits a batch and the run is longer than an epoch.
    With `working`, a person sees how far each has come.
    """
    plan = assembly.plan
    asking = _asking(assembly)
    if not asking or (train := source.resident) is None:
        return
    for key, trick in asking.items():
        with private_rng(plan.settings.seed, "prepare", key, device=assembly.device), _shown(train, working):
            trick.prepare(train, plan.settings.batches.eval_size)


def _asking(assembly: Assembly) -> dict[str, Trick]:
    players = [kit.player for kit in assembly.kits]
    edited = any(p.target is not None or assembly.linked("edit_batch", p.name) for p in players)
    if edited or not _again(assembly.plan):
        return {}
    return {key: trick for key, trick in assembly.tricks.items() if overrides(trick, "prepare")}


def _again(plan: Plan) -> bool:
    """Whether samples come more than once; of data that was not read only epochs say so."""
    return (plan.epochs or 0) > 1 if plan.sampler is None else (plan.steps or 0) > plan.sampler.updates(0)


@contextmanager
def _shown(train: Resident, working: Working | None) -> Iterator[None]:
    """Count samples as they are taken, for a progress bar; a trick that takes none needs no bar."""
    if working is None:
        yield
        return
    gather, seen, advance = train.gather, 0, None
    with ExitStack() as stack:

        def counted(index: Tensor) -> Batch:
            nonlocal seen, advance
            if advance is None:
                advance = stack.enter_context(working(len(train), "sample"))
            batch = gather(index)
            seen += len(index)
            advance(seen)
            return batch

        vars(train)["gather"] = counted
        try:
            yield
        finally:
            del vars(train)["gather"]
