"""What makes the updates of a run: a stepping. The loop decides when to stop and look, and knows no more.

`Stepping` as it is makes one update after the other, as Python runs them. A part of kind `stepper` builds one
that makes them otherwise: several in a call, in a graph, on several devices. No torch at import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from ..engine.loop import Loop
    from ..engine.precision import Precision
    from ..planning.plan import Assembly
    from .results import Batch

    Group = tuple[Tensor, ...]  # the sample numbers of the batches of one update

FLUSH = 512  # losses kept apart on the device before they are summed

# Gives a call the name under which a profile tells its time; the last says how many updates it makes by what.
Timer = Callable[[str, Callable[..., Any], Callable[[Any], int]], Callable[..., Any]]


class Stepping:
    """Makes the updates of a run between two boundaries of its loop: one after the other, as it is here.

    Subclass it to make them otherwise; `advance` is enough. Between two calls of `advance` a run has to be in
    the state in which as many updates of the ordinary step would leave it, for evaluations, rows and
    checkpoints are made there.

    `loop` is there from the beginning of a run: `loop.progress` says where it is, `loop.train.gather(rows)`
    gives a batch, `loop.turns` says which players move in an update, `loop.linked` has the step of each, and
    `loop.assembly` the model and the optimizers.
    """

    loop: Loop
    eager = True  # False: it means to make no update as Python runs them

    # Before a run.

    def preview(self, assembly: Assembly, precision: Precision, batch: Batch, waits: Sequence[str]) -> str:
        """A line of `explain`; `assembly` and `batch` are on the meta device, `precision` is that of the run.

        `waits` says why a step cannot run there, or would wait for the device.
        """
        return ""

    def around(self) -> AbstractContextManager[None]:
        """A context around all that a run computes; what it changes in the process is put back after it."""
        return nullcontext()

    def inexact(self, made: int, cut: bool) -> Iterable[str]:
        """In what a run that goes on after so many updates will not be as one of that length from the start.

        `cut`: it ended inside an epoch.
        """
        return ()

    # A run.

    def begin(self) -> None:
        """Get ready for the first update of a run, or of what is left of it."""

    def advance(self, groups: Sequence[Group], until: int, last: int) -> None:
        """Make updates up to a position in the epoch.

        One that makes several in a call may go past `until`, never past `last`. A loop that is `full` is
        left at once.
        """
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

    def update(self, batches: Sequence[Batch]) -> None:
        """Make the next update, with its batches at hand: for an `advance` of one's own."""
        loop = self.loop
        step = loop.progress.step
        for player in loop.turns[step % len(loop.turns)]:
            loop.losses[player].append(loop.linked[player].update(batches, step))
        loop.progress.step += 1
        loop.progress.position += 1
        loop.flush_if_full()

    # What is kept and told of it.

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on as it would have; under `spent` what differs from run to run."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""

    def summary(self) -> dict[str, Any]:
        """What summary.json says of it, by keys of its own."""
        return {}

    # For a profile.

    @property
    def hides(self) -> Literal["", "forward", "step"]:
        """What of an update is one call now, whose parts have no times: nothing, the forward pass, all."""
        return ""

    def timed(self, timer: Timer) -> None:
        """Let what makes updates in place of the ordinary step be called through what `timer` gives."""

    def set_up(self) -> Mapping[str, tuple[str, float, int]]:
        """Time that is not for updates, by name: in which call it was, seconds, how many times."""
        return {}

    def profile_notes(self) -> Iterable[str]:
        """What a person should know of the times."""
        return ()
