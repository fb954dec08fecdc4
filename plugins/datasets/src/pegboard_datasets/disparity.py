"""How differently a model treats two groups."""

from __future__ import annotations

import torch
from pegboard import Context, Probe, Splits
from torch import Tensor, nn

from .mistakes import mistake
from .study_options import GroupDisparity


def disparity(right: Tensor, group: Tensor) -> dict[str, float]:
    """The accuracy in each group and how far they are apart; both (samples,), true in the second group."""
    first, second = (float(right[mine].double().mean()) for mine in (~group, group))
    return {"first": first, "second": second, "disparity": abs(first - second)}


class GroupDisparityProbe(Probe):
    """Accuracy by group, where a feature says the group: the second is above the middle of its range."""

    def __init__(self, config: GroupDisparity, context: Context) -> None:
        self.config = config

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        source = getattr(splits, self.config.split)
        if source is None:
            raise mistake(f"there is no split {self.config.split!r}", "a split that the data has")
        batch = source.to("cpu").gather(torch.arange(len(source)))
        column = batch.inputs[0][:, self.config.column]
        group = column > (column.min() + column.max()) / 2
        if not group.any():
            raise mistake(f"feature {self.config.column} is the same in all samples", "one with two values")
        with torch.no_grad():
            output = model.to(device).eval()(*[x.to(device) for x in batch.inputs]).cpu()
        found = output[:, 0] > 0 if output.shape[1] == 1 else output.argmax(1)
        return disparity(found.long() == batch.target, group)
