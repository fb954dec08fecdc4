"""What hangs on a peg for dropout."""

from __future__ import annotations

from pegboard import Peg, PegboardError, Trick
from torch import Tensor, nn

from . import Dropout
from .functional import dropout


class FeatureDropout(nn.Dropout):
    """Dropout of whole features: every position of a sample loses the same ones."""

    def __init__(self, p: float, axis: int) -> None:
        super().__init__(p)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, training=self.training, axis=self.axis)

    def extra_repr(self) -> str:
        return f"p={self.p}, axis={self.axis}"


USUAL = {"input": 0.2}  # share dropped where none is given; 0.5 at every other site


class DropoutTrick(Trick):
    """Hangs a dropout module on every peg of the sites it is given."""

    def __init__(self, config: Dropout) -> None:
        self.config = config

    def hang(self, peg: Peg) -> nn.Module | None:
        if peg.site not in self.config.sites:
            return None
        p = USUAL.get(peg.site, 0.5) if self.config.p is None else self.config.p
        # A feature of an "NC" tensor is a single number, so both forms are the same there.
        if self.config.form == "element" or peg.layout == "NC":
            return nn.Dropout(p)
        if "C" not in peg.layout:
            raise PegboardError(
                f"dropout with form: feature cannot hang on the {peg.site!r} peg: its layout {peg.layout!r} "
                "has no feature axis (C). Use form: element there, or leave the site out of sites."
            )
        return FeatureDropout(p, peg.axis)
