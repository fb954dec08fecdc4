"""Pegs: named places in a model where tricks hang modules."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import no_numbers
from ..contract.records import SITES, Site, known_site

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_AFFINE = (nn.Linear, *_CONVOLUTIONS)


class Peg(nn.Module):
    """A place where something may hang; the identity while nothing does.

    `site` says where in a model it is, one of `SITES` or a plugin's own with a prefix
    (`Prefixed("acme:gate")`); `features` how many features the tensor has there; `layout` its axes, with
    `C` for the features: "NC", "NLC", "NCL", "NCHW", "NCDHW", "NHLL" for attention weights. `norm` is
    the normalisation that the model has here by itself; one that a trick hangs takes its place.

    A model of sequences calls it with a mask (batch, length), true where a sample still lasts; what hangs
    here gets it if it has an attribute `masked` that is true.
    """

    site: Site
    features: int
    layout: str

    def __init__(self, site: Site, features: int, layout: str = "NC", norm: nn.Module | None = None) -> None:
        super().__init__()
        if not known_site(site):
            raise ValueError(
                f"unknown peg site {site!r}: expected one of {', '.join(SITES)}, or a name with a prefix, "
                "as 'acme:gate'"
            )
        self.site, self.features, self.layout = site, features, layout
        if norm is not None:
            self.norm = norm

    @property
    def axis(self) -> int:
        """The axis that holds the features."""
        return self.layout.index("C") if "C" in self.layout else len(self.layout) - 1

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for module in self._modules.values():
            if mask is not None and getattr(module, "masked", False):
                x = module(x, mask)  # type: ignore[misc]
            else:
                x = module(x)  # type: ignore[misc]
        return x

    # Called directly, past the machinery for hooks: an empty peg costs one Python call.
    __call__ = forward

    def extra_repr(self) -> str:
        return f"{self.site}, {self.features}, {self.layout}"


def find(model: nn.Module) -> Iterator[tuple[str, Peg]]:
    """The pegs of a model with their names, in the order of its modules."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, Peg))


def make_way(peg: Peg, module: nn.Module) -> None:
    """Take off the model's own normalisation for another one, which starts with its scales and shifts."""
    own = dict(peg.named_children()).get("norm")
    if own is not None:
        del peg.norm
    starts = {} if own is None else dict(own.named_parameters())
    with torch.no_grad():
        for name, value in module.named_parameters():
            if name in starts and starts[name].shape == value.shape:
                value.copy_(starts[name])


class _Before:
    """A forward pre-hook that sends the first input through a peg. A class, so that it deep-copies."""

    def __init__(self, peg: Peg) -> None:
        self.peg = peg

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.peg(inputs[0]), *inputs[1:])


class _After:
    """A forward hook that sends the output through a peg."""

    def __init__(self, peg: Peg) -> None:
        self.peg = peg

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return self.peg(output)


def infer(module: nn.Module, *example: Tensor) -> nn.Module:
    """Give pegs to a model that has none, in place, without changing the names of its parameters.

    Every linear or convolution layer but the last gets an `affine` peg behind it, every one but
    the first a `hidden` peg before it (behind the nonlinearity, wherever that is written), the
    first one an `input` peg, and every embedding an `embedding` peg. With `example` inputs the
    layers are taken in the order in which a forward pass on the meta device calls them; without
    them, or where it cannot run there, as registered.
    A layer called more than once is left alone.
    """
    if any(True for _ in find(module)):
        return module
    calls = _calls(module, example) if example else _registered(module)
    affine = [c for c in calls if isinstance(module.get_submodule(c[0]), _AFFINE)]
    for name, _, _ in calls:
        layer = module.get_submodule(name)
        if isinstance(layer, nn.Embedding):
            _attach(layer, "peg_out", Peg("embedding", layer.embedding_dim, "NLC"), after=True)
    for place, (name, before, after) in enumerate(affine):
        layer = module.get_submodule(name)
        if isinstance(layer, nn.Linear):
            inputs, outputs = layer.in_features, layer.out_features
        else:
            assert isinstance(layer, _CONVOLUTIONS)
            inputs, outputs = layer.in_channels, layer.out_channels
        _attach(layer, "peg_in", Peg("hidden" if place else "input", inputs, before), after=False)
        if place < len(affine) - 1:
            _attach(layer, "peg_out", Peg("affine", outputs, after), after=True)
    return module


def _attach(layer: nn.Module, name: str, peg: Peg, *, after: bool) -> None:
    layer.add_module(name, peg)
    if after:
        layer.register_forward_hook(_After(peg))
    else:
        layer.register_forward_pre_hook(_Before(peg))


def _layout(layer: nn.Module, dimensions: int | None) -> str:
    if isinstance(layer, nn.Linear):
        return {2: "NC", 3: "NLC", 4: "NHWC"}.get(dimensions or 2, "NC")
    if isinstance(layer, nn.Embedding):
        return "NLC"
    if isinstance(layer, nn.Conv1d):
        return "NCL"
    return "NCHW" if isinstance(layer, nn.Conv2d) else "NCDHW"


def _registered(module: nn.Module) -> list[tuple[str, str, str]]:
    layers = [(n, m) for n, m in module.named_modules() if isinstance(m, (*_AFFINE, nn.Embedding))]
    return [(n, _layout(m, None), _layout(m, None)) for n, m in layers]


def _calls(module: nn.Module, example: Sequence[Tensor]) -> list[tuple[str, str, str]]:
    """Name, input layout and output layout of each layer called once in a forward pass on meta."""
    twin = copy.deepcopy(module).to("meta").eval()
    seen: list[tuple[str, str, str]] = []
    for name, layer in twin.named_modules():
        if isinstance(layer, (*_AFFINE, nn.Embedding)):

            def note(layer: nn.Module, inputs: Any, output: Any, name: str = name) -> None:
                seen.append((name, _layout(layer, inputs[0].dim()), _layout(layer, output.dim())))

            layer.register_forward_hook(note)
    try:
        with torch.no_grad():
            twin(*(x.to("meta") for x in example))
    except Exception as error:
        if not no_numbers(error):
            raise
        return _registered(module)  # it needs numbers, which its first step will tell
    names = [name for name, _, _ in seen]
    return [call for call in seen if names.count(call[0]) == 1]
