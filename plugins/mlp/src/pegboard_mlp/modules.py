"""Linear models and multi-layer perceptrons as ordinary modules."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pegboard import Peg
from torch import Tensor, nn

from .activations import Shift, at_zero, make


class LinearInParameters(nn.Module):
    """A model that is affine in all it learns: `logits(head(features(x)))`.

    `features(x)` gives (batch, p) and has nothing to learn; `head` is one `nn.Linear` of them, with or
    without a bias, and holds every parameter; `logits` is the last peg, and others belong to `features`.
    Whoever knows a closed form needs no more than that: it solves for `head` on the features of all samples.
    """

    def __init__(
        self, inputs: int, features: int | None, outputs: int, *, bias: bool = True, init: str = "default"
    ) -> None:
        """`features` None: they are the inputs themselves."""
        super().__init__()
        if init not in ("default", "zeros"):
            raise ValueError(f"unknown init {init!r}: expected default or zeros")
        self.input = Peg("input", inputs)
        if features is not None:
            self.hidden = Peg("hidden", features)
        self.head = nn.Linear(inputs if features is None else features, outputs, bias=bias)
        self.logits = Peg("logits", outputs)
        if init == "zeros":
            for parameter in self.head.parameters():
                nn.init.zeros_(parameter)

    def expand(self, x: Tensor) -> Tensor:
        """Features of the flattened input (batch, inputs)."""
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        """What the head reads: (batch, p)."""
        return self.hidden(self.expand(self.input(x.flatten(1))))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.head(self.features(x)))


class LinearModel(LinearInParameters):
    """One affine map: `inputs` numbers a sample, of any shape, to (batch, outputs)."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, init: str = "default") -> None:
        super().__init__(inputs, None, outputs, bias=bias, init=init)

    def features(self, x: Tensor) -> Tensor:
        return self.input(x.flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim > 2:
            x = x.flatten(1)
        pegs = self._modules  # past nn.Module.__getattr__, which would cost each peg a second call
        return pegs["logits"](self.head(pegs["input"](x)))  # type: ignore[misc, no-any-return]


class Residual(nn.Module):
    """The input, projected where widths differ, plus a branch."""

    def __init__(self, branch: nn.Module, project: nn.Module | None) -> None:
        super().__init__()
        self.branch = branch
        self.project = project

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.branch(x)
        return (x if self.project is None else self.project(x)) + y


class Dense(nn.Module):
    """The input with a branch appended, so that later layers see everything before them."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.branch(x)), -1)


class Mlp(nn.Module):
    """A multi-layer perceptron: `inputs` numbers a sample, of any shape, to (batch, outputs).

    With `hidden` widths w and activation f, a layer is `h = f(W x + b)` (plain), `x + f(W x + b) - f(0)`
    with a bias-free projection of x where widths differ (residual: zero weights are the identity for
    any f), or x and h side by side (dense). The head is affine, and `output` an activation behind it.
    `alpha` and `polynomial` are the numbers of activations that have some; `output_bias` None is `bias`.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        activation: str = "relu",
        *,
        bias: bool = True,
        form: str = "plain",
        alpha: float | None = None,
        polynomial: Sequence[float] = (0.0, 0.0, 1.0),
        output: str = "identity",
        output_bias: bool | None = None,
    ) -> None:
        super().__init__()
        if form not in ("plain", "residual", "dense"):
            raise ValueError(f"unknown form {form!r}: expected plain, residual or dense")
        self.hidden, self.activation, self.form = tuple(hidden), activation, form
        self.alpha, self.polynomial = alpha, tuple(polynomial)
        layers: list[nn.Module] = [Peg("input", inputs)]
        width = inputs
        for b in hidden:
            # A gated unit halves the features it is given.
            affine = 2 * b if activation == "glu" else b
            layer: list[nn.Module] = [
                nn.Linear(width, affine, bias=bias),
                Peg("affine", affine),
                make(activation, alpha, polynomial),
            ]
            if form == "plain":
                layers += [*layer, Peg("hidden", b)]
                width = b
            elif form == "residual":
                if zero := at_zero(activation, affine, alpha, polynomial):
                    layer.append(Shift(-zero))
                branch = nn.Sequential(*layer, Peg("hidden", b), Peg("residual", b))
                project = None if width == b else nn.Linear(width, b, bias=False)
                layers.append(Residual(branch, project))
                width = b
            else:
                layers.append(Dense(nn.Sequential(*layer, Peg("hidden", b))))
                width += b
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, outputs, bias=bias if output_bias is None else output_bias)
        self.logits = Peg("logits", outputs)
        if output != "identity":
            self.output = make(output)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim > 2:
            x = x.flatten(1)
        pegs = self._modules  # past nn.Module.__getattr__, which would cost the peg a second call
        y: Tensor = pegs["logits"](self.head(self.body(x)))  # type: ignore[misc]
        output = pegs.get("output")
        return y if output is None else output(y)
