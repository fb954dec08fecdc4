"""Who samples a trained model: the core where it generates samples, else a plugin, by a method of it."""

from __future__ import annotations

from typing import Any

from ..base.errors import PegboardError
from ..contract.sampling import SampleMethod, SampleRequest
from .sample_files import write_samples
from .trained import Trained


def choose_method(trained: Trained, request: SampleRequest) -> SampleMethod:
    """How a model is sampled; its own plugin is asked before others."""
    entry, registry = trained.plan.settings.model.entry, trained.plan.settings.registry
    part: Any = entry.part
    if part.samples:
        return SampleMethod("sample", write_samples)
    if request.kind is not None:
        raise PegboardError(
            f"--kind is for models that generate samples, and {part.name!r} of {trained.ref} does not"
        )
    assert registry is not None
    offered = sorted(registry.sample_methods(), key=lambda found: found[0].dist != entry.plugin.dist)
    for _, method in offered:
        if hasattr(trained.model, method.name):
            return method
    if missing := [named for named in registry.known_methods() if hasattr(trained.model, named[0])]:
        name, dist = missing[0]
        raise PegboardError(
            f"the model {part.name!r} of {trained.ref} has a method {name!r}, and what samples models by it "
            f"is part of {dist}, which is not installed or not ready\n"
            f"pip install {dist}, or see: pegboard plugins list"
        )
    raise nothing_to_sample(trained)


def nothing_to_sample(trained: Trained) -> PegboardError:
    """The mistake that a model generates nothing."""
    spec, name = trained.plan.spec, trained.plan.settings.model.entry.part.name
    return PegboardError(
        f"the model {name!r} of {trained.ref} writes no text: it predicts "
        f"{spec.target or 'nothing'} from {', '.join(map(str, spec.inputs)) or 'nothing'}\n"
        "what it answers to given samples: pegboard predict"
    )
