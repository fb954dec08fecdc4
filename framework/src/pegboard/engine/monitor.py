"""The figure by which a run chooses its best checkpoint."""

from __future__ import annotations

from ..base.errors import PegboardError
from ..base.nearest import nearest
from ..contract.results import Splits
from ..planning.plan import Assembly


def loss_names(assembly: Assembly) -> list[str]:
    """What the training loss of each player is called in a row."""
    names = [kit.player.name for kit in assembly.kits]
    return ["train/loss"] if len(names) == 1 else [f"train/{name}/loss" for name in names]


def choose_monitor(assembly: Assembly, splits: Splits) -> tuple[str, bool]:
    """The figure that decides which checkpoint is best, and whether more of it is better."""
    trainer, objective = assembly.plan.settings.trainer, assembly.objective
    metrics, (own, mode), losses = objective.metrics(), objective.monitor, loss_names(assembly)
    known = {*losses} | ({f"val/{name}" for name in ("loss", *metrics)} if splits.val else set())
    name = trainer.monitor or (f"val/{own}" if splits.val else losses[0])
    if name not in known:
        near = nearest(name, known)
        raise PegboardError(
            f"trainer.monitor is {name!r}, which this run does not measure: expected one of "
            f"{', '.join(sorted(known))}" + (f"; did you mean {near[0]!r}?" if near else "")
        )
    if trainer.mode is not None:
        mode = trainer.mode
    elif name != f"val/{own}":
        metric = metrics.get(name.removeprefix("val/"))
        higher = getattr(metric, "higher_is_better", None) if metric is not None else False  # of a loss
        if higher is None:  # a wrong guess would keep the worst checkpoint as the best
            raise PegboardError(
                f"trainer.monitor is {name!r}, which does not say whether more of it is better: "
                "set trainer.mode to min or max"
            )
        mode = "max" if higher else "min"
    return name, mode == "max"
