"""Sound parts of unusual form: weights used twice, gradients that cancel, samples that come again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pegboard import (
    Batch,
    Classes,
    Context,
    Dataset,
    DataSpec,
    Ge,
    Image,
    Lt,
    Model,
    Objective,
    ObjectivePart,
    Optimizer,
    Probe,
    ProbePart,
    Regularizer,
    Schedule,
    Site,
    Splits,
    Tokens,
    Trick,
    Values,
    Vector,
    hookimpl,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True)
class OddAttention:
    """Attention over symbols, whose key bias a softmax cancels."""

    width: Annotated[int, Ge(1)] = 8  # units


def build_attention(config: OddAttention, context: Context) -> nn.Module:
    import torch
    from pegboard import Peg
    from torch import nn

    (spec,) = context.spec.inputs

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            w = config.width
            self.table = nn.Embedding(spec.vocab, w, padding_idx=spec.padding if spec.padding >= 0 else None)
            self.embedding = Peg("embedding", w, "NLC")
            self.q, self.k, self.v = nn.Linear(w, w), nn.Linear(w, w), nn.Linear(w, w)
            self.norm = nn.LayerNorm(w)
            self.frozen = nn.Parameter(torch.ones(w), requires_grad=False)
            self.last = nn.Linear(w, context.outputs or 1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.embedding(self.table(x)) * self.frozen
            a = (self.q(h) @ self.k(h).mT / config.width**0.5).softmax(-1)
            return self.last(self.norm(h + a @ self.v(h)).mean(1))

    return Net()


@dataclass(frozen=True)
class OddCnn:
    """A convolution that keeps channels last between, with a weight that is used twice."""

    channels: Annotated[int, Ge(2)] = 4  # channels
    extra: bool = True  # a second use of the same weight


def build_cnn(config: OddCnn, context: Context) -> nn.Module:
    from pegboard import Peg
    from torch import nn

    (spec,) = context.spec.inputs
    c = config.channels

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(spec.channels, c, 3, padding=1, bias=False)
            self.twice = nn.Conv2d(c, c, 3, padding=1)
            self.again = self.twice if config.extra else nn.Identity()
            self.norm = nn.GroupNorm(2, c) if c % 2 == 0 else nn.Identity()
            self.affine = Peg("affine", c, "NHWC")
            self.hidden = Peg("hidden", c, "NCHW")
            self.pooled = Peg("pooled", c)
            self.last = nn.Linear(c, context.outputs or 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.affine(self.twice(self.stem(x)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            x = self.hidden(self.norm(self.again(x)).relu())
            return self.last(self.pooled(x.mean((2, 3))))

    return Net()


@dataclass(frozen=True)
class OddSign:
    """Steps by the sign of a mean gradient, in a flat list."""

    lr: Annotated[float, Ge(0)] = 0.01  # length
    beta: Annotated[float, Ge(0), Lt(1)] = 0.9  # memory


def build_sign(config: OddSign, context: Context) -> Callable[..., torch.optim.Optimizer]:
    import torch

    class Sign(torch.optim.Optimizer):
        def __init__(self, groups: Any) -> None:
            super().__init__(groups, {"lr": config.lr, "beta": config.beta})

        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                ps = [p for p in group["params"] if p.grad is not None]
                gs = [p.grad for p in ps]
                ms = [self.state[p].setdefault("mean", torch.zeros_like(p)) for p in ps]
                if not ps:
                    continue
                torch._foreach_lerp_(ms, gs, 1 - group["beta"])
                for p, m in zip(ps, ms, strict=True):
                    p.sub_(m.sign() * group["lr"])
            return loss

    return Sign


@dataclass(frozen=True)
class OddFlip:
    """Weigh samples by a random number in training."""

    spread: Annotated[float, Ge(0), Lt(1)] = 0.2  # of the weights


def build_flip(config: OddFlip, context: Context) -> Trick:
    import torch

    class Flip(Trick):
        def __init__(self) -> None:
            self.random = context.generator()

        def edit_batch(self, batch: Batch) -> Batch:
            if not config.spread:
                return batch
            x = batch.inputs[0]
            draw = torch.rand(batch.samples, generator=self.random, device=x.device)
            draw = 1 + config.spread * (2 * draw - 1)
            return batch.replace(weight=draw if batch.weight is None else batch.weight * draw)

    return Flip()


@dataclass(frozen=True)
class OddScale:
    """A learned factor for every feature, which begins at one."""

    sites: tuple[Site, ...] = ("affine", "hidden")  # where


def build_scale(config: OddScale, context: Context) -> Trick:
    import torch
    from torch import nn

    class Scale(nn.Module):
        def __init__(self, features: int, axis: int, dims: int) -> None:
            super().__init__()
            self.by = nn.Parameter(torch.ones(features))
            self.shape = [1] * dims
            self.shape[axis] = features
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.steps.add_(1)
            return x * self.by.view(self.shape).to(x.dtype)

    class ScaleTrick(Trick):
        def hang(self, peg: Any) -> nn.Module | None:
            return Scale(peg.features, peg.axis, len(peg.layout)) if peg.site in config.sites else None

    return ScaleTrick()


@dataclass(frozen=True)
class OddBits:
    """Parity of three bits, drawn with replacement: samples of one split come again in another."""

    count: Annotated[int, Ge(16)] = 64  # samples


def bits_spec(config: OddBits) -> DataSpec:
    return DataSpec((Vector(3),), Classes(2))


def build_bits(config: OddBits, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    x = torch.randint(0, 2, (config.count, 3), generator=torch.Generator().manual_seed(context.seed)).float()
    y = x.sum(1).long() % 2
    h = config.count // 4
    return Splits(
        spec=bits_spec(config),
        train=Resident([x[2 * h :]], y[2 * h :]),
        val=Resident([x[h : 2 * h]], y[h : 2 * h]),
        test=Resident([x[:h]], y[:h]),
    )


@dataclass(frozen=True)
class OddAlone:
    """A line, all of it to train on."""

    slope: float = 2.0  # of the line


def build_alone(config: OddAlone, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    x = torch.linspace(-1, 1, 40)[:, None]
    return Splits(spec=DataSpec((Vector(1),), Values(1)), train=Resident([x], config.slope * x))


@dataclass(frozen=True)
class OddPair:
    """Two heads: a class and its certainty."""


def build_pair(config: OddPair, context: Context) -> nn.Module:
    from torch import nn

    (spec,) = context.spec.inputs

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.c = nn.Linear(spec.features, 5), nn.Linear(5, 1)
            self.b = nn.Linear(5, context.outputs or 1)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            h = self.a(x).tanh()
            return {"logits": self.b(h), "sure": self.c(h).squeeze(1)}

    return Net()


@dataclass(frozen=True)
class OddSure:
    """Cross entropy by certainty."""

    by: Annotated[float, Ge(0)] = 0.1  # price of no certainty


def build_sure(config: OddSure, context: Context) -> Objective:
    from torch.nn import functional

    class Loss(Objective):
        formula = "by certainty"

        def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
            sure = output["sure"].sigmoid()
            ce = functional.cross_entropy(output["logits"], target, reduction="none")
            each = sure * ce + config.by * (1 - sure)
            return each.mean() if weight is None else (each * weight).sum() / weight.sum()

        def predict(self, output: Any) -> dict[str, Tensor]:
            return {"class": output["logits"].argmax(-1), "sure": output["sure"].sigmoid()}

    return Loss()


@dataclass(frozen=True)
class OddSaw:
    """A saw: up in so many steps, then again from zero."""

    period: Annotated[int, Ge(2)] = 8  # steps


def build_saw(config: OddSaw, context: Context) -> Callable[[int], float]:
    return lambda step: (step % config.period) / (config.period - 1)


@dataclass(frozen=True)
class OddProbe:
    """How far a copy moves in three steps of training."""

    steps: Annotated[int, Ge(1)] = 3  # of training


class Far(Probe):
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        import torch

        with torch.enable_grad():
            twin = copy.deepcopy(model).train()
            params = [p for p in twin.parameters() if p.requires_grad]
            start = [p.detach().clone() for p in params]
            opt = torch.optim.SGD(params, 0.01)
            batch = splits.train.gather(torch.arange(min(8, len(splits.train))))
            for _ in range(self.steps):
                out = twin(*(x.to(device) for x in batch.inputs))
                opt.zero_grad()
                out.square().mean().backward()
                opt.step()
            return {
                "far": float(
                    sum((p.detach() - s).square().sum() for p, s in zip(params, start, strict=True)) ** 0.5
                )
            }


@dataclass(frozen=True)
class OddSpectral:
    """A layer whose weight is normalised by a power iteration, held in parametrizations."""

    width: Annotated[int, Ge(1)] = 6  # units


def build_spectral(config: OddSpectral, context: Context) -> nn.Module:
    import torch
    from torch import nn
    from torch.nn.utils.parametrizations import spectral_norm

    (spec,) = context.spec.inputs

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = spectral_norm(nn.Linear(spec.features, config.width))
            self.log_scale = nn.Parameter(torch.zeros(()))
            self.last = nn.Linear(config.width, context.outputs or 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.a(x).sin() * self.log_scale.exp())

    return Net()


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [
        Model(
            "odd_attention",
            OddAttention,
            build_attention,
            inputs=(Tokens,),
            targets=(Classes, Values),
            pegs=("embedding",),
        ),
        Model(
            "odd_cnn",
            OddCnn,
            build_cnn,
            inputs=(Image,),
            targets=(Classes, Values),
            pegs=("affine", "hidden", "pooled"),
        ),
        Model("odd_pair", OddPair, build_pair, inputs=(Vector,), targets=(Classes,), objective="odd_sure"),
        Model("odd_spectral", OddSpectral, build_spectral, inputs=(Vector,), targets=(Classes, Values)),
    ]


@hookimpl
def pegboard_optimizers() -> list[Optimizer[Any] | Schedule[Any]]:
    return [Optimizer("odd_sign", OddSign, build_sign), Schedule("odd_saw", OddSaw, build_saw)]


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [
        Regularizer("odd_flip", OddFlip, build_flip, stages={"edit_batch": "mix"}, neutral={"spread": 0.0}),
        Regularizer("odd_scale", OddScale, build_scale, stages={"hang": "normalize"}),
    ]


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [
        Dataset("odd_bits", OddBits, build_bits, spec=bits_spec),
        Dataset("odd_alone", OddAlone, build_alone, spec=lambda c: DataSpec((Vector(1),), Values(1))),
    ]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [ObjectivePart("odd_sure", OddSure, build_sure, targets=(Classes,))]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [ProbePart("odd_probe", OddProbe, lambda config, context: Far(config.steps))]
