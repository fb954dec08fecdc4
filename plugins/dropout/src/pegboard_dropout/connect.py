"""Dropout of weights: layers whose weights are read with some of them zero."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from pegboard import PegboardError, Trick
from torch import Tensor, nn
from torch.nn.utils import parametrize

from . import DropConnect
from .functional import dropout

Layer = tuple[str, nn.Module, list[str]]  # name, module, parameters that are dropped

# Private names of torch: how a convolution takes another weight, and how a recurrent layer takes its own.
CONVOLUTION = hasattr(nn.Conv2d, "_conv_forward")
RECURRENT = ("_flat_weights", "_flat_weights_names")
if not CONVOLUTION:
    warnings.warn(
        f"torch {torch.__version__} has no torch.nn.Conv2d._conv_forward: convolutions drop no weights in "
        "training without gradients",
        stacklevel=2,
    )


def weights(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, str]]:
    """Every matrix that a model multiplies with: name and module of its layer, parameter, kind of layer.

    A layer is a module with a parameter `weight` of two axes or more, whatever its class, but for embeddings
    and for normalisations, whose weights have the shape of their biases.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.RNNBase):
            for own, param in module.named_parameters(recurse=False):
                if param.dim() > 1:
                    yield name, module, own, "recurrent" if "_hh_" in own else "linear"
            continue
        parametrized = parametrize.is_parametrized(module, "weight")
        weight: Any = module.weight if parametrized else module._parameters.get("weight")
        if weight is None or weight.dim() < 2 or isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            continue
        bias = module._parameters.get("bias")
        if bias is None or bias.shape != weight.shape:
            yield name, module, "weight", "linear" if weight.dim() == 2 else "convolution"


class _Dropping:
    """What layers become whose weights are dropped; parameters keep their names.

    In training, a weight has a new mask whenever it is read to compute with it, also where a model reads it
    past the layer's `forward`. Who reads it without taking gradients, as a solver that sets it does, gets the
    parameter itself.
    """

    drop: tuple[float, tuple[str, ...]]  # share, and the parameters it is dropped of


def _linear(self: Any, x: Tensor) -> Tensor:
    return F.linear(x, dropout(self.whole, self.drop[0], training=self.training), self.bias)


def _convolution(self: Any, x: Tensor) -> Tensor:
    weight = dropout(self.whole, self.drop[0], training=self.training)
    result: Tensor = self._conv_forward(x, weight, self.bias)
    return result


def _weight(self: Any) -> Tensor:
    whole: Tensor = self.whole
    return dropout(whole, self.drop[0], training=self.training and torch.is_grad_enabled())


def _held(self: Any) -> Tensor:
    found: Tensor = self._parameters["weight"]
    return found


def _flat(self: Any) -> list[Tensor]:
    """The weights of a recurrent layer as its kernel takes them."""
    whole: list[Tensor] = vars(self)["_flat_weights"]
    share, names = self.drop
    if not self.training:
        return whole
    pairs = zip(self._flat_weights_names, whole, strict=True)
    return [dropout(param, share) if name in names else param for name, param in pairs]


def _keep(self: Any, whole: list[Tensor]) -> None:
    vars(self)["_flat_weights"] = whole


@cache
def dropping(kind: type[nn.Module]) -> type[nn.Module]:
    """A class of layers like `kind`, whose weights are dropped."""
    own = getattr(kind, "weight", None)
    read: dict[str, Any] = {"__module__": kind.__module__}
    if issubclass(kind, nn.RNNBase):
        read["_flat_weights"] = property(_flat, _keep)
    else:  # a parametrisation that is there already comes first
        read |= {"whole": own if isinstance(own, property) else property(_held), "weight": property(_weight)}
    if kind.forward is nn.Linear.forward:
        read["forward"] = _linear
    elif kind.forward in (nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward) and CONVOLUTION:
        read["forward"] = _convolution
    return type(f"DropConnect{kind.__name__}", (_Dropping, kind), read)


class DropConnectTrick(Trick):
    """Makes the layers of a model such whose weights are dropped."""

    def __init__(self, config: DropConnect) -> None:
        self.config = config

    def edit_model(self, model: nn.Module) -> None:
        found = list(self._chosen(model))
        if not found:
            raise PegboardError(self._nothing(model))
        if self.config.p == 0:
            return
        recurrent = [module for _, module, _ in found if isinstance(module, nn.RNNBase)]
        if missing := [name for name in RECURRENT for module in recurrent if not hasattr(module, name)]:
            raise PegboardError(
                f"torch {torch.__version__} has no torch.nn.RNNBase.{missing[0]}, by which dropconnect drops "
                "weights of recurrent layers: name the other layers in only"
            )
        for _, module, names in found:
            module.__class__ = dropping(type(module))  # type: ignore[arg-type]
            vars(module)["drop"] = (self.config.p, tuple(names))

    def _chosen(self, model: nn.Module) -> Iterator[Layer]:
        layers: dict[str, Layer] = {}
        for name, module, param, kind in weights(model):
            if kind in self.config.layers and self._fits(f"{name}.{param}".lstrip(".")):
                layers.setdefault(name, (name, module, []))[2].append(param)
        yield from layers.values()

    def _fits(self, name: str) -> bool:
        return not self.config.only or any(fnmatchcase(name, pattern) for pattern in self.config.only)

    def _nothing(self, model: nn.Module) -> str:
        there = [(f"{name}.{param}".lstrip("."), kind) for name, _, param, kind in weights(model)]
        kinds = sorted({kind for _, kind in there})
        return (
            f"dropconnect found no weight to drop in layers: {_listed(self.config.layers)}"
            f"{f', only: {_listed(self.config.only)}' if self.config.only else ''}. The model has "
            f"{', '.join(f'{name} ({kind})' for name, kind in there[:20]) or 'no layer with weights'}"
            f"{f' and {len(there) - 20} more' if len(there) > 20 else ''}."
            + (f"\n  choose from them: layers: {_listed(kinds)}" if kinds else "")
        )


def _listed(words: Sequence[str]) -> str:
    return f"[{', '.join(words)}]"
