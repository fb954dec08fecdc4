"""Whether pictures lie in memory with their channels innermost, which changes how fast a step is, not what it
computes."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ..base.errors import PegboardError
from ..config.nodes import Settings
from ..contract.results import Splits
from ..contract.specs import DataSpec

LAYOUT = torch.channels_last


def channels_last(settings: Settings, spec: DataSpec, device: str, model: nn.Module, graph: bool) -> bool:
    """As the config says; where it says nothing, on the CPU for convolutions that take it.

    There it is faster, by `benchmarks/layout.py`, but not beside the normalisation of groups unless a `graph`
    is made of both, which would copy pictures at each change of layout.
    """
    asked = settings.trainer.channels_last
    if asked is False or device == "meta":
        return False
    if asked is None:
        if device != "cpu":
            return False
        groups = any(isinstance(m, nn.GroupNorm) for m in model.modules())
        if not any(isinstance(m, nn.Conv2d) for m in model.modules()) or (groups and not graph):
            return False
    why = _refusal(model, spec, device)
    if asked and "view size" in why:
        name = settings.model.entry.part.name
        raise PegboardError(
            f"trainer.channels_last: model {name!r} takes pictures in the usual layout only: {why}\n"
            "its `view` has to be a `reshape`; without the field it trains as it is"
        )
    return bool(asked) or not why


def lay_out(splits: Splits) -> None:
    """Let the pictures of data in memory lie so."""
    for name in ("train", "val", "test"):
        if (source := getattr(splits, name)) is not None:
            setattr(splits, name, source.channels_last())


def _refusal(model: nn.Module, spec: DataSpec, device: str) -> str:
    """What a copy of a model says to two samples that lie so, "" where it takes them."""
    inputs = (s.example(2, device) for s in spec.inputs)
    try:
        with torch.random.fork_rng([device] if device.startswith("cuda") else []), torch.no_grad():
            twin = copy.deepcopy(model).eval().to(memory_format=LAYOUT)  # type: ignore[call-overload]
            twin(*(x.contiguous(memory_format=LAYOUT) if x.dim() == 4 else x for x in inputs))
    except Exception as error:  # whatever it is, training in the usual layout tells it better
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""
