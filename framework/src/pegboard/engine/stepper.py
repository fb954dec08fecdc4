"""Who makes the next updates of a run: a stepper. The loop decides when to stop and look, and knows no more.

`EagerStepper` makes one update after the other, as Python runs them. Others may make several in one call, in
a graph, or on several devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from .loop import Loop

FLUSH = 512  # losses kept apart on the device before they are summed
Group = tuple[Tensor, ...]  # the sample numbers of the batches of one update


@dataclass
class Compilation:
    """Result of compilation, for the console and the summary."""

    asked: str = "off"  # trainer.compile
    level: str = "off"  # off, model or step; auto while it is not decided
    why: str = ""  # why it is not what was asked for, or what decided it
    seconds: float = 0.0  # spent on making graphs
    graphs: int = 0
    recompiled: list[str] = field(default_factory=list)  # why graphs were made again


class Stepper(Protocol):
    """Makes the updates of a run between two boundaries of its loop."""

    made: Compilation

    def begin(self) -> None:
        """Get ready for the first update of a run, or of what is left of it."""

    def advance(self, groups: Sequence[Group], until: int, last: int) -> None:
        """Make updates up to a position in the epoch.

        One that makes several in a call may go past `until`, never past `last`. A loop that is `full` is
        left at once.
        """


class EagerStepper:
    """One update after the other, and nothing else: the hot loop."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.made = loop, Compilation()

    def begin(self) -> None:
        """Nothing has to be got ready."""

    def advance(self, groups: Sequence[Group], until: int, last: int) -> None:
        """Make updates up to a position in the epoch."""
        loop = self.loop
        progress, gather, turns = loop.progress, loop.train.gather, loop.turns
        updates, losses, cycle = [step.update for step in loop.linked], loop.losses, len(turns)
        for at in range(progress.position, until):
            batches = [gather(index) for index in groups[at]]
            step = progress.step
            for player in turns[step % cycle]:
                losses[player].append(updates[player](batches, step))
            progress.step = step + 1
            progress.position = at + 1
            if loop.halt or len(losses[0]) >= FLUSH:
                break
        loop.flush_if_full()


def make_stepper(loop: Loop, made: Mapping[str, Any] | None = None) -> Stepper:
    """The stepper that the config asks for; `made` is what was compiled before a run was resumed."""
    if loop.settings.trainer.compile == "off":
        return EagerStepper(loop)
    from .compiled import CompiledStepper

    return CompiledStepper(loop, Compilation(**made) if made else None)
