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

from ..errors import PegboardError


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
        self.skipped = 0
        fused = all(group.get("fused") for group in optimizer.param_groups)
        kind = device.partition(":")[0]
        self.waits = kind not in ("cpu", "meta") and (not fused or mode == "skip")
        self.reads = kind == "cpu" or self.waits
        if not self.reads and kind != "meta":
            optimizer.found_inf = self.found  # type: ignore[attr-defined]

    def refuses(self, loss: Tensor, params: Sequence[nn.Parameter], step: int) -> bool:
        """Whether this update must not be applied; in mode "stop" that ends the run."""
        grads = [p.grad for p in params if p.grad is not None]
        torch._amp_foreach_non_finite_check_and_unscale_([loss, *grads], self.found, self.one)
        if not self.reads:
            self.clean += self.found == 0
            return False
        if not self.found:
            return False
        self.found.zero_()
        if self.mode == "skip":
            self.skipped += 1
            return True
        raise NotFinite(self.describe(loss, params, step + 1))

    def describe(self, loss: Tensor, params: Sequence[nn.Parameter], step: int) -> str:
        """Which number was not finite, in one sentence."""
        where = f"at step {step}, in the update of player {self.player!r}"
        if not torch.isfinite(loss):
            return f"the loss was {float(loss)} {where}"
        bad = [self.names[id(p)] for p in params if p.grad is not None and not torch.isfinite(p.grad).all()]
        shown = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        return f"the gradient of {shown or 'some parameter'} was not finite {where}"

    def shrink(self, tensors: list[Tensor], factor: float) -> None:
        """Multiply weights by a factor, unless the update that it belongs to is refused."""
        if self.reads:
            torch._foreach_mul_(tensors, factor)
        else:
            torch._foreach_mul_(tensors, torch.where(self.found == 0, factor, 1.0))

    def good_updates(self) -> int | None:
        """How many updates since `base` came before one that the device refused; None while all is well."""
        return None if self.reads or not bool(self.found) else int(self.clean)
