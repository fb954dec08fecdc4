"""Generative models for Pegboard: autoencoders, games, flows, diffusion, memories. No torch at import."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard import (
    Context,
    Image,
    Labels,
    Model,
    Objective,
    ObjectivePart,
    Probe,
    ProbePart,
    Site,
    Spec,
    Vector,
    hookimpl,
)

from . import checks
from .configs import (
    Adversarial,
    Autoencoder,
    Capacity,
    Denoising,
    Diffusion,
    Elbo,
    Energy,
    Entropy,
    Flow,
    Frechet,
    Gan,
    Hopfield,
    ImportanceWeighted,
    LatentCodes,
    Likelihood,
    Modes,
    Pca,
    PrincipalComponents,
    Reconstruction,
    Vae,
)

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "Adversarial",
    "Autoencoder",
    "Capacity",
    "Denoising",
    "Diffusion",
    "Elbo",
    "Energy",
    "Entropy",
    "Flow",
    "Frechet",
    "Gan",
    "Hopfield",
    "ImportanceWeighted",
    "LatentCodes",
    "Likelihood",
    "Modes",
    "Pca",
    "PrincipalComponents",
    "Reconstruction",
    "Vae",
]


def build_pca(config: Pca, context: Context) -> nn.Module:
    from .autoencoder import Pca as Module

    return Module(checks.shape_of("pca", config, context), config.latent)


def build_autoencoder(config: Autoencoder, context: Context) -> nn.Module:
    from .autoencoder import Autoencoder as Module

    return Module(checks.shape_of("autoencoder", config, context), **vars(config))


def build_vae(config: Vae, context: Context) -> nn.Module:
    from .vae import Vae as Module

    return Module(checks.shape_of("vae", config, context), **vars(config))


def build_gan(config: Gan, context: Context) -> nn.Module:
    from .gan import Gan as Module

    return Module(checks.shape_of("gan", config, context), **vars(config))


def build_flow(config: Flow, context: Context) -> nn.Module:
    from .flow import Flow as Module

    return Module(checks.shape_of("flow", config, context), **vars(config))


def build_diffusion(config: Diffusion, context: Context) -> nn.Module:
    from .diffusion import Diffusion as Module

    return Module(checks.shape_of("diffusion", config, context), **vars(config))


def build_hopfield(config: Hopfield, context: Context) -> nn.Module:
    from .hopfield import Hopfield as Module

    return Module(checks.shape_of("hopfield", config, context), **vars(config))


def _fields(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Fields to try a part with, which need no files."""
    return given


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    """All of them learn samples, whatever their target."""
    sites: tuple[Site, ...] = ("input", "affine", "hidden")
    small = {"latent": 2, "hidden": [8]}
    made: list[tuple[str, Any, Any, tuple[Site, ...], dict[str, Any]]] = [
        ("pca", Pca, build_pca, (), {"latent": 2}),
        ("autoencoder", Autoencoder, build_autoencoder, sites, small),
        ("vae", Vae, build_vae, sites, small),
        ("gan", Gan, build_gan, sites, small),
        ("flow", Flow, build_flow, sites, {"layers": 2, "hidden": [8]}),
        (
            "diffusion",
            Diffusion,
            build_diffusion,
            (*sites, "residual"),
            {"width": 8, "steps": 20, "sample_steps": 4},
        ),
        ("hopfield", Hopfield, build_hopfield, (), {"sweeps": 2}),
    ]
    return [
        Model(
            name,
            config,
            build,
            check=partial(checks.check_model, name),
            inputs=(Vector, Image),
            pegs=pegs,
            samples=True,
            objective=checks.OBJECTIVES[name],
            trial=partial(_fields, fields),
        )
        for name, config, build, pegs, fields in made
    ]


def build_reconstruction(config: Reconstruction, context: Context) -> Objective:
    from .objectives import ReconstructionLoss

    return ReconstructionLoss(config)


def build_elbo(config: Elbo, context: Context) -> Objective:
    from .objectives import ElboLoss

    return ElboLoss(config, context.spec.inputs[0].size or 1)


def build_adversarial(config: Adversarial, context: Context) -> Objective:
    from .objectives import AdversarialLoss

    return AdversarialLoss(config)


def build_likelihood(config: Likelihood, context: Context) -> Objective:
    from .objectives import LikelihoodLoss

    return LikelihoodLoss(config, context.spec.inputs[0].size or 1)


def build_denoising(config: Denoising, context: Context) -> Objective:
    from .objectives import DenoisingLoss

    return DenoisingLoss(config)


def build_energy(config: Energy, context: Context) -> Objective:
    from .objectives import EnergyLoss

    return EnergyLoss(config)


_METRICS = {
    "reconstruction": ("error", "sparsity"),
    "elbo": ("elbo", "log_likelihood", "kl", "bits_per_dim"),
    "adversarial": ("discriminator_loss", "generator_loss", "discriminator_accuracy", "energy_distance"),
    "likelihood": ("log_likelihood", "bits_per_dim"),
    "denoising": (),
    "energy": ("retrieval", "overlap", "energy"),
}


def _metrics(name: str, config: Any, target: Spec | None) -> tuple[str, ...]:
    return _METRICS[name]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    def part(name: str, config: Any, build: Any, check: Any = None, **more: Any) -> ObjectivePart[Any]:
        check = check or partial(checks.check_objective, name)
        more = {"players": ("model",)} | more
        return ObjectivePart(name, config, build, check=check, metrics=partial(_metrics, name), **more)

    return [
        part("reconstruction", Reconstruction, build_reconstruction),
        part("elbo", Elbo, build_elbo),
        part(
            "adversarial",
            Adversarial,
            build_adversarial,
            checks.check_adversarial,
            soft=True,
            target=Labels(1, ("real",)),
            players=("discriminator", "generator"),
        ),
        part("likelihood", Likelihood, build_likelihood),
        part("denoising", Denoising, build_denoising),
        part("energy", Energy, build_energy),
    ]


def build_components(config: PrincipalComponents, context: Context) -> Probe:
    from .probes import ComponentsReference

    return ComponentsReference(config)


def build_weighted(config: ImportanceWeighted, context: Context) -> Probe:
    from .probes import WeightedProbe

    return WeightedProbe(config, context.seed)


def build_codes(config: LatentCodes, context: Context) -> Probe:
    from .codes import LatentCodesProbe

    return LatentCodesProbe(config)


def build_modes(config: Modes, context: Context) -> Probe:
    from .probes import ModesProbe

    return ModesProbe(config, context.seed)


def build_entropy(config: Entropy, context: Context) -> Probe:
    from .probes import EntropyProbe

    return EntropyProbe()


def build_frechet(config: Frechet, context: Context) -> Probe:
    from .probes import FrechetProbe

    return FrechetProbe(config, context.seed)


def trial_frechet(folder: Path) -> dict[str, Any]:
    """A short run of a classifier."""
    from pegboard.testing import partner_run

    return {"classifier": str(partner_run(folder)), "samples": 40}


def build_capacity(config: Capacity, context: Context) -> Probe:
    from .probes import CapacityProbe

    return CapacityProbe(config, context.seed)


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [
        ProbePart(
            "principal_components",
            PrincipalComponents,
            build_components,
            check=lambda config, facts: checks.of_model("principal_components", "pca", facts),
            reference=True,
        ),
        ProbePart(
            "importance_weighted",
            ImportanceWeighted,
            build_weighted,
            check=lambda config, facts: checks.of_model("importance_weighted", "vae", facts),
        ),
        ProbePart("latent_codes", LatentCodes, build_codes, check=checks.check_codes),
        ProbePart("modes", Modes, build_modes, check=checks.check_modes),
        ProbePart(
            "entropy",
            Entropy,
            build_entropy,
            check=lambda config, facts: checks.of_model("entropy", "flow", facts),
        ),
        ProbePart("frechet", Frechet, build_frechet, check=checks.check_frechet, trial=trial_frechet),
        ProbePart("capacity", Capacity, build_capacity, check=checks.check_capacity),
    ]
