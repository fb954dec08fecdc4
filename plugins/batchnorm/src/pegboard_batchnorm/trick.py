"""What hangs on a peg for batch normalisation."""

from __future__ import annotations

from typing import Any

from pegboard import Peg, PegboardError, Trick
from torch import Tensor, nn

from . import BatchNorm as Config
from .functional import batch_norm

_Base: Any = nn.BatchNorm1d.__base__  # what those of torch have in common, under a private name


class BatchNorm(_Base):  # type: ignore[misc]
    """Batch normalisation over the axis that `layout` marks with C.

    Parameters and buffers are those of `nn.BatchNorm1d`. Unlike it, the average with equal weights
    (`momentum` None) never waits for the device, and a tensor with other axes than `layout` is an
    error, where torch would take the wrong axis if the sizes happen to fit. With a mask (batch, length)
    places where it is false are normalised like all, and count in no statistic.
    """

    masked = True  # a peg of sequences tells which steps are there

    def __init__(self, features: int, layout: str, eps: float, momentum: float | None, affine: bool) -> None:
        super().__init__(features, eps, momentum, affine)
        self.layout, self.axis = layout, layout.index("C")

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        if input.dim() != len(self.layout):
            raise PegboardError(
                f"batchnorm hangs on a peg with layout {self.layout!r} and got a tensor of shape "
                f"{tuple(input.shape)}. Give the peg the layout of its tensor; for a model without pegs "
                "of its own, pegs.infer(model, example) reads layouts from an example input."
            )
        kept = self._buffers  # past nn.Module.__getattr__, which would cost a call for each
        mean, var, count = kept["running_mean"], kept["running_var"], kept["num_batches_tracked"]
        assert mean is not None and var is not None and count is not None
        momentum: float | Tensor | None = self.momentum
        if self.training:
            count.add_(1)
        if momentum is None:
            momentum = count.to(mean.dtype).reciprocal()
        try:
            return batch_norm(
                input,
                self.weight,
                self.bias,
                mean,
                var,
                training=self.training,
                momentum=momentum,
                eps=self.eps,
                axis=self.axis,
                mask=mask,
            )
        except ValueError as error:
            raise PegboardError(
                f"batchnorm cannot train on a single value for each feature: it got shape "
                f"{tuple(input.shape)} in layout {self.layout!r}. A last batch of one sample is the usual "
                "cause: set data.drop_last: true, or another data.batch_size."
            ) from error


class BatchNorm1d(BatchNorm, nn.BatchNorm1d):
    """`nn.BatchNorm1d` on a peg."""


class BatchNorm2d(BatchNorm, nn.BatchNorm2d):
    """`nn.BatchNorm2d` on a peg."""


class BatchNorm3d(BatchNorm, nn.BatchNorm3d):
    """`nn.BatchNorm3d` on a peg."""


_CLASSES: dict[str, type[BatchNorm]] = {
    "NC": BatchNorm1d,
    "NCL": BatchNorm1d,
    "NCHW": BatchNorm2d,
    "NCDHW": BatchNorm3d,
}


class BatchNormTrick(Trick):
    """Hangs a batch normalisation on every peg of the sites it is given."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def hang(self, peg: Peg) -> nn.Module | None:
        config = self.config
        if peg.site not in config.sites:
            return None
        if "C" not in peg.layout:
            raise PegboardError(
                f"batchnorm cannot hang on the {peg.site!r} peg: its layout {peg.layout!r} has no feature "
                "axis (C). Leave the site out of sites."
            )
        kind = _CLASSES.get(peg.layout, BatchNorm)
        return kind(peg.features, peg.layout, config.eps, config.momentum, config.affine)
