"""Objectives of the models: what they lose, and what an evaluation shows of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pegboard import Batch, Metric, Objective, PegboardError, Player, Splits
from torch import Tensor, nn

from . import configs
from .autoencoder import Autoencoder, Coded, jacobian_square
from .diffusion import Denoised
from .flow import Likely
from .functional import (
    bits_per_dimension,
    discriminator_loss,
    energy_distance,
    gaussian_kl,
    generator_loss,
    mean_of,
    wide,
)
from .gan import gradient_norms
from .hopfield import Hopfield, Stored, signs
from .metrics import Mean, Several
from .vae import Bounded, Vae

SEEN = 1024  # training samples that are looked at before a run


def first_inputs(splits: Splits) -> Tensor:
    """Some training samples, on the CPU."""
    train = splits.train
    try:
        return train.to("cpu").gather(torch.arange(min(SEEN, len(train)))).inputs[0]
    finally:
        train.close()


def between_0_and_1(splits: Splits, what: str, remedy: str) -> None:
    """Refuse samples with other numbers."""
    x = first_inputs(splits)
    low, high = float(x.min()), float(x.max())
    if low < 0 or high > 1:
        raise PegboardError(
            f"{what} expects samples with numbers from 0 to 1, and the data has {low:.4g} to {high:.4g}\n"
            f"data.normalize=none or minmax, where that gives such numbers, or {remedy}"
        )


class ReconstructionLoss(Objective):
    """The error of an autoencoder, with penalties on its codes."""

    def __init__(self, config: configs.Reconstruction) -> None:
        self.contractive, self.sparse = config.contractive, config.sparse
        self.penalties = f" + {config.sparse:g} mean |code|" if config.sparse else ""
        if config.contractive:
            self.penalties += f" + {config.contractive:g} |d code / dx|^2"
        self.formula = "mean((f(x) - x)^2)" + self.penalties
        self.bernoulli = False

    def loss(self, output: Coded, target: Any, weight: Tensor | None = None) -> Tensor:
        loss = mean_of(output.error, weight)
        if self.sparse:
            loss = loss + self.sparse * mean_of(wide(output.code).abs().mean(1), weight)
        return loss

    def evaluate(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Coded]:
        if not self.contractive or not torch.is_grad_enabled():
            output = model(*batch.inputs)
            return self.loss(output, batch.target, batch.weight), output
        (x,) = batch.inputs
        x = x.detach().requires_grad_().view_as(x)  # no leaf, which counters of operations cannot follow
        output = model(x)
        slopes = jacobian_square(output.code, x)
        loss = self.loss(output, batch.target, batch.weight)
        return loss + self.contractive * mean_of(slopes, batch.weight), output

    def players(self, model: nn.Module) -> list[Player]:
        self.bernoulli = isinstance(model, Autoencoder) and model.bernoulli
        if self.bernoulli:
            self.formula = "-mean(x log f(x) + (1 - x) log(1 - f(x)))" + self.penalties
        return super().players(model)

    def look(self, splits: Splits) -> None:
        if self.bernoulli:
            between_0_and_1(splits, "model.loss bernoulli", "model.loss=squared")

    def metrics(self) -> dict[str, Metric]:
        small = 0.01  # of a number of a code that says nothing
        return {
            "error": Mean(lambda o: o.error, False),
            "sparsity": Mean(lambda o: (o.code.abs() < small).float().mean(1), True),
        }

    def predict(self, output: Coded) -> dict[str, Tensor]:
        return {"error": output.error, "code": output.code}


class ElboLoss(Objective):
    """The negated bound, with its two terms apart."""

    def __init__(self, config: configs.Elbo, dimensions: int) -> None:
        self.beta, self.free, self.dimensions = config.beta, config.free_bits, dimensions
        self.likelihood = config.likelihood
        factor, share = ("" if f == 1 else f"{f:g} " for f in (config.beta, config.likelihood))
        divergence = "KL(q(z|x) || N(0, 1))"
        if config.free_bits:
            divergence = f"sum_j max({config.free_bits:g}, {divergence}_j)"
        self.formula = f"-{share}E log p(x|z) + {factor}{divergence}"
        self.bernoulli = False

    def loss(self, output: Bounded, target: Any, weight: Tensor | None = None) -> Tensor:
        divergence = gaussian_kl(output.mean, output.log_variance)  # (batch, latent)
        if self.free:
            each = divergence.mean(0)
            if weight is not None:
                each = weight @ divergence / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
            cost = each.clamp(min=self.free).sum()
        else:
            cost = mean_of(divergence.sum(1), weight)
        likelihood = mean_of(output.log_likelihood, weight)
        return self.beta * cost - (likelihood if self.likelihood == 1 else self.likelihood * likelihood)

    def players(self, model: nn.Module) -> list[Player]:
        self.bernoulli = isinstance(model, Vae) and model.bernoulli
        return super().players(model)

    def look(self, splits: Splits) -> None:
        if self.bernoulli:
            between_0_and_1(splits, "model.decoder bernoulli", "model.decoder=gaussian")

    def metrics(self) -> dict[str, Metric]:
        def bits(output: Bounded) -> Tensor:
            return bits_per_dimension(-elbo_of(output), self.dimensions)

        return {
            "elbo": Mean(elbo_of, True),
            "log_likelihood": Mean(lambda o: o.log_likelihood, True),
            "kl": Mean(lambda o: gaussian_kl(o.mean, o.log_variance).sum(1), False),
            "bits_per_dim": Mean(bits, False),
        }

    def predict(self, output: Bounded) -> dict[str, Tensor]:
        return {"elbo": elbo_of(output), "code": output.mean}


def elbo_of(output: Bounded) -> Tensor:
    """The bound for each sample: (batch,)."""
    return output.log_likelihood - gaussian_kl(output.mean, output.log_variance).sum(1)


class Judged(NamedTuple):
    """What an evaluation of the game sees."""

    real: Tensor  # scores of samples of the data: (batch,)
    fake: Tensor  # scores of generated ones: (batch,)
    samples: Tensor  # of the data
    generated: Tensor


class AdversarialLoss(Objective):
    """A player for each network: the discriminator first, with `steps` updates for each of the generator."""

    monitor = ("energy_distance", "min")

    def __init__(self, config: configs.Adversarial) -> None:
        self.variant, self.steps = config.variant, config.steps
        wasserstein = config.variant == "wasserstein"
        self.penalty = (10.0 if wasserstein else 0.0) if config.penalty is None else config.penalty
        self.formula = {
            "non_saturating": "discriminator: -log D(x) - log(1 - D(G(z))); generator: -log D(G(z))",
            "minimax": "discriminator: -log D(x) - log(1 - D(G(z))); generator: log(1 - D(G(z)))",
            "wasserstein": "discriminator: D(G(z)) - D(x); generator: -D(G(z))",
            "hinge": "discriminator: max(0, 1 - D(x)) + max(0, 1 + D(G(z))); generator: -D(G(z))",
        }[config.variant]
        if self.penalty:
            shown = "(|D'(mix)| - 1)^2" if wasserstein else "|D'(x)|^2 / 2"
            self.formula += f"; discriminator: + {self.penalty:g} {shown}"

    def players(self, model: nn.Module) -> list[Player]:
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        own = {
            name: [(n, p) for n, p in named if n.startswith(f"{name}.")]
            for name in ("discriminator", "generator")
        }
        told = self._labels if self.variant in ("non_saturating", "minimax") else None
        return [
            Player(
                "discriminator", own["discriminator"], self.discriminate, self.steps, told, told is not None
            ),
            Player("generator", own["generator"], self.generate, 1, learns=False),
        ]

    def _labels(self, batch: Batch) -> Tensor:
        """What samples of the data are said to be: real; smoothing makes it less."""
        return batch.inputs[0].new_ones(len(batch.inputs[0]), 1)

    def discriminate(self, model: Any, batch: Batch) -> tuple[Tensor, Any]:
        """What the discriminator loses, with generated samples that it does not change."""
        (x,) = batch.inputs
        with torch.no_grad():
            generated = model.sample(len(x))
        real, fake = model(x), model(generated)
        told = None if batch.target is None or self.variant in ("wasserstein", "hinge") else batch.target
        told = None if told is None else told.squeeze(1)
        loss = discriminator_loss(real, fake, self.variant, told, batch.weight)
        if self.penalty and torch.is_grad_enabled():
            loss = loss + self.penalty * self._slope(model, x, generated, batch.weight)
        return loss, Judged(real, fake, x, generated)

    def _slope(
        self, model: Callable[[Tensor], Tensor], x: Tensor, generated: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        if self.variant != "wasserstein":
            return 0.5 * mean_of(gradient_norms(model, x).square(), weight)
        share = torch.rand(len(x), *(1,) * (x.dim() - 1), device=x.device)
        return mean_of((gradient_norms(model, x.lerp(generated, share)) - 1).square(), weight)

    def generate(self, model: Any, batch: Batch) -> tuple[Tensor, Any]:
        """What the generator loses."""
        fake = model(model.sample(len(batch.inputs[0])))
        return generator_loss(fake, self.variant), fake

    def evaluate(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Judged]:
        sample: Any = model.sample
        (x,) = batch.inputs
        generated = sample(len(x))
        real, fake = model(x), model(generated)
        loss = discriminator_loss(real, fake, self.variant, weight=batch.weight)
        return loss, Judged(real, fake, x, generated)

    def metrics(self) -> dict[str, Metric]:
        variant = self.variant
        return {
            "discriminator_loss": Several(lambda o: discriminator_loss(o.real, o.fake, variant), False),
            "generator_loss": Several(lambda o: generator_loss(o.fake, variant), False),
            "discriminator_accuracy": Several(right_answers, True),
            "energy_distance": Several(lambda o: energy_distance(o.samples, o.generated), False, alike=True),
        }

    def predict(self, output: Tensor) -> dict[str, Tensor]:
        return {"score": output}


def right_answers(output: Judged) -> Tensor:
    """How often the discriminator is right; near 1 the generator learns nothing from it any more."""
    return 0.5 * ((output.real > 0).float().mean() + (output.fake < 0).float().mean())


class LikelihoodLoss(Objective):
    """The negated log-likelihood of a flow."""

    formula = "-log p(x)"

    def __init__(self, config: configs.Likelihood, dimensions: int) -> None:
        self.levels, self.dimensions = config.levels, dimensions

    def loss(self, output: Likely, target: Any, weight: Tensor | None = None) -> Tensor:
        return -mean_of(output.log_likelihood, weight)

    def evaluate(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Likely]:
        (x,) = batch.inputs
        if self.levels is not None:  # a value stands for all numbers up to the next
            x = (x * (self.levels - 1) + torch.rand_like(x)) / self.levels
        output = model(x)
        return self.loss(output, batch.target, batch.weight), output

    def look(self, splits: Splits) -> None:
        if self.levels is not None:
            between_0_and_1(splits, "objective.levels", "objective.levels=null")

    def metrics(self) -> dict[str, Metric]:
        more = 0.0 if self.levels is None else math.log2(self.levels)  # bits that the scale took away

        def bits(output: Likely) -> Tensor:
            return bits_per_dimension(-output.log_likelihood, self.dimensions) + more

        return {
            "log_likelihood": Mean(lambda o: o.log_likelihood, True),
            "bits_per_dim": Mean(bits, False),
        }

    def predict(self, output: Likely) -> dict[str, Tensor]:
        return {"log_likelihood": output.log_likelihood}


class DenoisingLoss(Objective):
    """The error of the noise that a diffusion model finds."""

    formula = "E_t,e mean((f(sqrt(a_t) x + sqrt(1 - a_t) e, t) - e)^2)"

    def __init__(self, config: configs.Denoising) -> None:
        self.draws = config.draws

    def loss(self, output: Denoised, target: Any, weight: Tensor | None = None) -> Tensor:
        return mean_of(output.error, weight)

    def evaluate(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Denoised]:
        found = [model(*batch.inputs) for _ in range(1 if model.training else self.draws)]
        output = found[0]
        if len(found) > 1:
            output = output._replace(error=torch.stack([o.error for o in found]).mean(0))
        return self.loss(output, batch.target, batch.weight), output

    def predict(self, output: Denoised) -> dict[str, Tensor]:
        return {"error": output.error}


class Recalled(NamedTuple):
    """What an evaluation sees of a memory."""

    energy: Tensor  # of each pattern: (batch,)
    state: Tensor  # the patterns, (batch, n)
    overlap: Tensor | None = None  # of what is recalled from changed patterns with the patterns: (batch,)


class EnergyLoss(Objective):
    """The energy of patterns, scaled so that one step of descent at a rate of 1 stores them."""

    monitor = ("retrieval", "max")

    def __init__(self, config: configs.Energy) -> None:
        self.flips, self.slots, self.kind = config.flips, math.inf, ""
        self.formula = "2/n sum_t energy(x_t)"

    def players(self, model: nn.Module) -> list[Player]:
        if isinstance(model, Hopfield):
            self.kind = model.kind
            if model.kind != "binary":
                self.slots = len(model.weight)
                self.formula = "-sum_t x_t m_t"
        return super().players(model)

    def look(self, splits: Splits) -> None:
        if len(splits.train) > self.slots:
            raise PegboardError(
                f"the memory has room for {self.slots} patterns, and there are {len(splits.train)} training "
                f"samples\nmodel.slots={len(splits.train)}, or fewer samples: data.limit={self.slots}"
            )
        patterns = signs(first_inputs(splits).flatten(1))
        if self.kind in ("binary", "dense") and len(patterns) > 1 and bool((patterns == patterns[0]).all()):
            raise PegboardError(
                f"a {self.kind} memory sees the signs of numbers, and all samples have the same, so that "
                "there is one pattern to store\ndata.normalize=standard, or other numbers on both sides of "
                "0, or model.kind=continuous"
            )

    def loss(self, output: Any, target: Any, weight: Tensor | None = None) -> Tensor:
        each: Tensor = output.energy if weight is None else output.energy * weight
        scale: int = output.state.shape[1]
        return each.sum() * (2 / scale)

    def mass(self, batch: Batch) -> float:
        return 1.0  # it is a sum over the samples of a batch

    def evaluate(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Any]:
        output = model(*batch.inputs)
        assert isinstance(model, Hopfield)
        if torch.is_grad_enabled():
            if model.kind == "binary":
                return self.loss(output, None, batch.weight), output
            return self._place(model, output, batch), output
        return self.loss(output, None, batch.weight), self.recalled(model, batch.inputs[0], output)

    def _place(self, model: Hopfield, output: Stored, batch: Batch) -> Tensor:
        """-sum x_t m_t, where every training sample has a slot: its gradient is the pattern itself."""
        assert batch.rows is not None
        slots = model.weight[batch.rows]
        overlap = (slots * output.state).sum(1)
        return -(overlap if batch.weight is None else overlap * batch.weight).sum()

    def recalled(self, model: Hopfield, x: Tensor, output: Stored) -> Recalled:
        """Patterns of which some places were changed, and how much of each comes back."""
        changed = torch.rand_like(output.state) < self.flips
        if model.kind == "continuous":
            start = torch.where(changed, torch.zeros_like(output.state), output.state)
        else:
            start = torch.where(changed, -output.state, output.state)
        found = model.recall(start.view(x.shape)).flatten(1)
        overlap = nn.functional.cosine_similarity(found, output.state, 1)
        return Recalled(output.energy, output.state, overlap)

    def metrics(self) -> dict[str, Metric]:
        return {
            "retrieval": Mean(lambda o: (o.overlap > 1 - 1e-4).float(), True),
            "overlap": Mean(lambda o: o.overlap, True),
            "energy": Mean(lambda o: o.energy, False),
        }

    def predict(self, output: Stored) -> dict[str, Tensor]:
        return {"energy": output.energy}
