"""Numbers that are not finite: found before an update is applied, without waiting for the device.

One fused operation looks at the loss and all gradients. On the CPU its answer is read at once. On an
accelerator nothing is read in the step: the fused optimizers skip an update whose flag is set, and
the flag stays set, so the weights keep the last good update until the loop reads it, with the next row
and before every save. Other optimizers there have no such flag, and to skip an update leaves no trace
only where it is not begun: there the step waits for the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ..base.errors import PegboardError
from . import torch_private


class NotFinite(PegboardError):
    """A loss or a gradient became nan or infinite; the update was not applied."""


class Guard:
    """Watches the updates of one player."""

    def __init__(
        self,
        player: str,
        parameters: Sequence[tuple[str, nn.Parameter]],
        optimizer: torch.optim.Optimizer,
        device: str,
        mode: Literal["stop", "skip"],
    ) -> None:
        self.player, self.names, self.mode = player, {id(p): n for n, p in parameters}, mode
        self.found = torch.zeros((), device=device)  # 1 once something was not finite
        self.one = torch.ones((), device=device)
        self.clean = torch.zeros((), device=device, dtype=torch.long)  # updates before that
        self.base = 0  # the step after which `clean` began to count
        self.left_out = 0  # updates that were skipped
        self.undone = torch.zeros((), device=device, dtype=torch.long)  # and those a graph undid
        fused = all(group.get("fused") for group in optimizer.param_groups)
        kind = device.partition(":")[0]
        self.waits = kind not in ("cpu", "meta") and (not fused or mode == "skip")
        self.reads = kind == "cpu" or self.waits
        if not self.reads and kind != "meta":
            optimizer.found_inf = self.found  # type: ignore[attr-defined]

    def refuses(
        self, loss: Tensor, grads: Sequence[Tensor | None], params: Sequence[nn.Parameter], step: int
    ) -> bool:
        """Whether this update must not be applied; in mode "stop" that ends the run."""
        numbers = [loss, *[g for g in grads if g is not None]]
        try:
            torch_private.check_finite_(numbers, self.found, self.one)
        except RuntimeError:  # it writes, and takes only dense real numbers that lie apart
            numbers = [_dense(t) for t in numbers]
            torch_private.check_finite_(numbers, self.found, self.one)
        if not self.reads:
            self.clean += self.found == 0
            return False
        if not self.found:
            return False
        self.found.zero_()
        if self.mode == "skip":
            self.left_out += 1
            return True
        raise NotFinite(self.describe(loss, grads, params, step + 1))

    def refused(self, loss: Tensor, grads: Sequence[Tensor]) -> Tensor:
        """The same inside a graph, where nothing is read: a flag by which the update is undone."""
        nought = torch.stack([(t * 0).sum() for t in (loss, *grads)]).sum()  # nan where one is not finite
        bad = torch.isnan(nought)
        if self.mode == "skip":
            self.undone.add_(bad)  # not +=, which would be an assignment to hand over
            return bad
        self.found.copy_(torch.where(bad, self.one, self.found))
        self.clean.add_(self.found == 0)
        return self.found != 0

    def describe(
        self, loss: Tensor, grads: Sequence[Tensor | None], params: Sequence[nn.Parameter], step: int
    ) -> str:
        """Which number was not finite, in one sentence."""
        where = f"at step {step}, in the update of player {self.player!r}"
        if not torch.isfinite(loss):
            return f"the loss was {float(loss)} {where}"
        pairs = zip(params, grads, strict=True)
        bad = [self.names[id(p)] for p, g in pairs if g is not None and not torch.isfinite(_dense(g)).all()]
        shown = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        return f"the gradient of {shown or 'some parameter'} was not finite {where}"

    def shrink(self, tensors: list[Tensor], factor: float) -> None:
        """Multiply weights by a factor, unless the update that it belongs to is refused."""
        if self.reads:
            torch_private.foreach_mul_(tensors, factor)
        else:
            torch_private.foreach_mul_(tensors, torch.where(self.found == 0, factor, 1.0))

    def begin(self, step: int) -> None:
        """Count clean updates from this step on."""
        self.base = step
        self.clean.zero_()

    @property
    def skipped(self) -> int:
        """Updates that were not applied; waits for the device."""
        return self.left_out + int(self.undone)

    def good_updates(self) -> int | None:
        """How many updates since `base` came before one that was refused; None while all is well."""
        return None if not bool(self.found) else int(self.clean)


def _dense(numbers: Tensor) -> Tensor:
    """The same numbers where they are sparse, complex, or several at one place in memory."""
    if numbers.is_sparse:
        numbers = numbers.coalesce().values()
    return torch.view_as_real(numbers) if numbers.is_complex() else numbers.contiguous()
