"""What can be wrong with configs beyond their types; no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pegboard import Context, Facts, Image, PegboardError, Problem, Spec

from .configs import Adversarial, Autoencoder, Capacity, Energy, Flow, Frechet, LatentCodes, Modes

OBJECTIVES = {
    "pca": "reconstruction",
    "autoencoder": "reconstruction",
    "vae": "elbo",
    "gan": "adversarial",
    "flow": "likelihood",
    "diffusion": "denoising",
    "hopfield": "energy",
}


def check_model(model: str, config: Any, facts: Facts) -> Iterator[Problem]:
    """Another objective, several inputs, and pictures that convolutions cannot halve so often."""
    own = OBJECTIVES[model]
    if facts.objective is not None and facts.objective.name != own:
        yield Problem(
            f"{model} is trained by the objective {own!r}, and the config names {facts.objective.name!r}",
            "",
            f"objective: {own}",
            "leave the key 'objective' out",
        )
    if isinstance(config, Autoencoder) and config.corruption == "mask" and config.corrupt >= 1:
        yield Problem(
            f"a mask of {config.corrupt:g} leaves nothing of a sample",
            "corrupt",
            "a share of less than 1, or corruption: noise",
        )
    dense = getattr(config, "form", "dense") == "dense"
    if facts.smallest_batch == 1 and dense and getattr(config, "norm", "none") == "batch":
        yield Problem(
            "norm batch needs more than one value of a feature, and a training batch has one sample",
            "norm",
            "none, or batches of two samples at least",
            "A last batch of one sample is the usual cause: data.drop_last=true",
        )
    if facts.spec is None:
        return
    if len(facts.spec.inputs) != 1:
        yield Problem(f"{model} reads one input, and the data has {len(facts.spec.inputs)}", "", "one input")
        return
    (spec,) = facts.spec.inputs
    if getattr(config, "form", "dense") == "convolutional":
        if not isinstance(spec, Image):
            yield Problem(f"{spec} is no picture to convolve", "form", "dense, or data of pictures")
        elif smallest(spec) < 2 ** len(config.channels):
            found = f"pictures of {spec.height}x{spec.width} cannot be halved {len(config.channels)} times"
            yield Problem(found, "channels", "fewer layers")
    if model == "diffusion" and isinstance(spec, Image) and smallest(spec) < 2 ** (len(config.levels) - 1):
        found = f"pictures of {spec.height}x{spec.width} cannot be halved {len(config.levels) - 1} times"
        yield Problem(found, "levels", "fewer levels")
    if isinstance(config, Flow) and spec.size == 1:
        yield Problem("a coupling needs two numbers, and samples have one", "", "samples of at least two")


def smallest(spec: Image) -> float:
    """The shorter side of a picture; without end where that is not known yet."""
    return min(math.inf if n is None else n for n in (spec.height, spec.width))


def shape_of(model: str, config: Any, context: Context) -> tuple[int, ...]:
    """The shape of a sample; what only the data showed is refused here."""
    found = list(check_model(model, config, Facts(spec=context.spec)))
    if found:
        problem = found[0]
        expected = f"; expected {problem.expected}" if problem.expected else ""
        raise PegboardError(f"{model}: {problem.message}{expected}")
    (spec,) = context.spec.inputs
    return sizes(spec)


def sizes(spec: Spec) -> tuple[int, ...]:
    """Of a picture (channels, height, width), of any other sample its one size."""
    known = (spec.channels, spec.height, spec.width) if isinstance(spec, Image) else (spec.size,)
    if any(size is None for size in known):
        raise PegboardError(f"the sizes of a sample must be known, and {spec} does not say them")
    return tuple(size for size in known if size is not None)


def check_objective(objective: str, config: Any, facts: Facts) -> Iterator[Problem]:
    """A model that gives something else than the objective reads."""
    if facts.model is not None and facts.model.objective != objective:
        models = [name for name, own in OBJECTIVES.items() if own == objective]
        yield Problem(
            f"the objective {objective!r} reads what only {' or '.join(models)} gives, and the model is "
            f"{facts.model.name!r}",
            "",
            f"model: {models[-1]}, or another objective",
        )


def check_adversarial(config: Adversarial, facts: Facts) -> Iterator[Problem]:
    """A model that is no game, and labels where there are none."""
    yield from check_objective("adversarial", config, facts)
    if config.variant in ("wasserstein", "hinge") and "label_smoothing" in facts.tricks:
        yield Problem(
            f"the discriminator of {config.variant} is told no labels that label smoothing could soften",
            "variant",
            "non_saturating or minimax, or no label smoothing",
        )


def check_energy(config: Energy, facts: Facts) -> Iterator[Problem]:
    yield from check_objective("energy", config, facts)


def check_frechet(config: Frechet, facts: Facts) -> Iterator[Problem]:
    """A classifier must be named, and the model must generate."""
    yield from generates("frechet", facts)
    if not config.classifier.strip():
        yield Problem(
            "frechet has no classifier",
            "classifier",
            "a run folder, a checkpoint folder or zoo:name",
            "name one that was trained on the same inputs, as classifier=zoo:mnist/mlp",
        )


def generates(probe: str, facts: Facts) -> Iterator[Problem]:
    if facts.model is not None and not facts.model.samples:
        yield Problem(
            f"{probe} measures samples, and {facts.model.name!r} generates none", "", "a vae, a gan"
        )


def check_modes(config: Modes, facts: Facts) -> Iterator[Problem]:
    yield from generates("modes", facts)


def of_model(probe: str, model: str, facts: Facts) -> Iterator[Problem]:
    """A probe of one model alone."""
    if facts.model is not None and facts.model.name != model:
        yield Problem(f"{probe} measures a {model}, and the model is {facts.model.name!r}", "", f"a {model}")


def check_codes(config: LatentCodes, facts: Facts) -> Iterator[Problem]:
    """A model without codes."""
    coders = ("vae", "autoencoder", "pca")
    if facts.model is not None and facts.model.name not in coders:
        expected = " or ".join(coders)
        yield Problem(
            f"latent_codes measures codes of samples, and {facts.model.name!r} has none", "", expected
        )


def check_capacity(config: Capacity, facts: Facts) -> Iterator[Problem]:
    yield from of_model("capacity", "hopfield", facts)
