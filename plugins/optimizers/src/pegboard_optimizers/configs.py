"""The fields of every optimizer, with torch's names and defaults. No torch at import.

None has a field for weight decay, which is a trick of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pegboard import Ge, Gt, Le, Lt

Rate = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Lt(1)]
Small = Annotated[float, Ge(0)]

# How an update is computed: one kernel for everything, one for each operation, or tensor by tensor.
Kernels = Literal["auto", "foreach", "plain"]
FusedKernels = Literal["auto", "fused", "foreach", "plain"]
Adjust = Literal["match_rms_adamw", "original"]


@dataclass(frozen=True)
class Sgd:
    """SGD: stochastic gradient descent, with momentum or Nesterov's acceleration if wanted."""

    lr: Rate = 1e-3  # learning rate
    momentum: Share = 0.0  # share of the last update that is kept (heavy ball)
    dampening: Annotated[float, Ge(0), Le(1)] = 0.0  # share of the gradient that momentum leaves out
    nesterov: bool = False  # look ahead along the momentum; needs momentum, and no dampening
    kernels: FusedKernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class Gd:
    """Full-batch gradient descent that stops where the gradient is small, with line search if wanted."""

    lr: Rate = 1e-2  # learning rate; the first length that a line search tries
    tolerance: Small = 1e-6  # length of the gradient at which nothing moves any more and the run ends
    line_search: Literal["none", "exact", "backtracking"] = "none"  # how the length of a step is found
    armijo: Annotated[float, Gt(0), Lt(1)] = 1e-4  # share of the promised fall that backtracking asks for
    shrink: Annotated[float, Gt(0), Lt(1)] = 0.5  # factor of the length after a trial that fell too little
    max_eval: Annotated[int, Ge(1)] = 50  # lengths that a line search tries at most


@dataclass(frozen=True)
class Nesterov:
    """Nesterov's accelerated gradient, with the slope taken ahead of the weights that are kept."""

    lr: Rate = 1e-2  # learning rate
    momentum: Share | None = 0.9  # share of the last move to look ahead; None rises as for convex losses


@dataclass(frozen=True)
class Adam:
    """Adam: steps scaled by running means of the gradient and of its square."""

    lr: Rate = 1e-3  # learning rate
    betas: tuple[Share, Share] = (0.9, 0.999)  # memory of the mean and of the mean square
    eps: Small = 1e-8  # added to the root of the mean square
    amsgrad: bool = False  # divide by the largest mean square so far
    bias_correction: bool = True  # divide both means by what they lack while their memory fills
    kernels: FusedKernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class AdamW(Adam):
    """AdamW: Adam; a weight decay of its groups acts on the weights, not on the gradient."""


@dataclass(frozen=True)
class NAdam:
    """NAdam: Adam with Nesterov's look ahead."""

    lr: Rate = 2e-3  # learning rate
    betas: tuple[Share, Share] = (0.9, 0.999)  # memory of the mean and of the mean square
    eps: Small = 1e-8  # added to the root of the mean square
    momentum_decay: Small = 4e-3  # how fast the momentum rises to its full value
    kernels: Kernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class RAdam:
    """RAdam: Adam that waits with scaling until its mean square is worth trusting."""

    lr: Rate = 1e-3  # learning rate
    betas: tuple[Share, Share] = (0.9, 0.999)  # memory of the mean and of the mean square
    eps: Small = 1e-8  # added to the root of the mean square
    kernels: Kernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class Adamax:
    """Adamax: Adam scaled by the largest gradient in memory instead of the mean square."""

    lr: Rate = 2e-3  # learning rate
    betas: tuple[Share, Share] = (0.9, 0.999)  # memory of the mean and of the maximum
    eps: Small = 1e-8  # added to the maximum
    kernels: Kernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class Adadelta:
    """Adadelta: steps in the units of the parameters, from running means of gradients and updates."""

    lr: Rate = 1.0  # factor of the step
    rho: Annotated[float, Ge(0), Le(1)] = 0.9  # memory of both means
    eps: Small = 1e-6  # added under the roots
    kernels: Kernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class Adagrad:
    """Adagrad: steps divided by the root of the sum of all squared gradients."""

    lr: Rate = 1e-2  # learning rate
    lr_decay: Small = 0.0  # lr is divided by 1 + lr_decay * updates made
    initial_accumulator_value: Small = 0.0  # where the sum of squares starts
    eps: Small = 1e-10  # added to the root of the sum
    kernels: FusedKernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class Asgd:
    """Averaged SGD: its own decay of the rate; the average stays in the state of the optimizer."""

    lr: Rate = 1e-2  # learning rate at the start
    lambd: Small = 1e-4  # decay of the parameters, and of the rate
    alpha: Small = 0.75  # power with which the rate decays
    t0: Small = 1e6  # update after which averaging starts
    kernels: Kernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class RmsProp:
    """RMSprop: steps divided by the root of a running mean of squared gradients."""

    lr: Rate = 1e-2  # learning rate
    alpha: Annotated[float, Ge(0), Le(1)] = 0.99  # memory of the mean square
    eps: Small = 1e-8  # added to the root
    momentum: Share = 0.0  # share of the last update that is kept
    centered: bool = False  # divide by the deviation from the mean gradient instead
    kernels: Kernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class Rprop:
    """Rprop: a step size for each weight that follows the sign of its gradient; for full batches."""

    lr: Rate = 1e-2  # size of the first step; later ones depend on signs alone, so a schedule does nothing
    etas: tuple[Annotated[float, Gt(0), Lt(1)], Annotated[float, Gt(1)]] = (0.5, 1.2)  # shrink and grow by
    step_sizes: tuple[Annotated[float, Gt(0)], Annotated[float, Gt(0)]] = (1e-6, 50.0)  # smallest, largest
    kernels: Kernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class Adafactor:
    """Adafactor: Adam's scaling from row and column means, which take little memory."""

    lr: Rate = 1e-2  # largest relative step
    beta2_decay: Annotated[float, Le(0)] = -0.8  # power of the update number that the memory grows with
    eps1: Small | None = None  # least mean square; None is the precision of the numbers
    eps2: Small = 1e-3  # least size of a parameter that steps are relative to
    d: Annotated[float, Ge(1)] = 1.0  # updates with a larger root mean square are clipped to it
    kernels: Kernels = "auto"  # auto takes the fastest that the device has


@dataclass(frozen=True)
class Muon:
    """Muon for every matrix: momentum made orthogonal; AdamW for all other parameters."""

    lr: Rate = 1e-3  # learning rate of the matrices
    momentum: Share = 0.95  # memory of the mean gradient
    nesterov: bool = True  # look ahead along the momentum
    ns_steps: Annotated[int, Ge(1), Lt(100)] = 5  # iterations that make a matrix orthogonal
    eps: Annotated[float, Gt(0)] = 1e-7  # least norm to divide by
    adjust_lr_fn: Adjust = "match_rms_adamw"  # how lr follows the shape of a matrix
    adamw_lr: Rate | None = None  # learning rate of the rest; None is lr
    adamw_betas: tuple[Share, Share] = (0.9, 0.999)  # memory of AdamW's mean and mean square
    adamw_eps: Small = 1e-8  # added to the root of AdamW's mean square
    kernels: FusedKernels = "auto"  # of AdamW; auto takes the fastest that the device has


@dataclass(frozen=True)
class Lbfgs:
    """L-BFGS: curvature from past gradients; for full batches and few parameters."""

    lr: Rate = 1.0  # factor of each step
    max_iter: Annotated[int, Ge(1)] = 20  # iterations in one update
    max_eval: Annotated[int, Ge(1)] | None = None  # evaluations in one update; None is 1.25 max_iter
    tolerance_grad: Small = 1e-7  # an update ends when no gradient is larger
    tolerance_change: Small = 1e-9  # an update ends when nothing changes by more
    history_size: Annotated[int, Ge(1)] = 100  # past gradients that are kept
    line_search_fn: Literal["strong_wolfe"] | None = None  # how the length of a step is searched


@dataclass(frozen=True)
class Perceptron:
    """The perceptron's rule: add y x for every mistake, and end after a pass without one."""

    lr: Rate = 1.0  # size of a correction; from zero weights it changes their size and no decision
