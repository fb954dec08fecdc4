"""Measurements of trained generative models."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from pegboard import Batch, Classes, DataSpec, PegboardError, Probe, Reference, Source, Splits
from torch import Tensor, nn

from . import configs
from .autoencoder import Pca, squared_error
from .flow import Flow
from .functional import frechet_distance, mixture_log_density
from .hopfield import Hopfield, crosstalk, flip_probability
from .vae import Vae

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIECE = 500  # samples that are in memory at a time
LEAST = 4  # samples of which two halves have a covariance
STEPS = 10_000  # of power iteration for one axis
NEAR = 1e-12  # length of a step of power iteration that ends it
NOTHING = 1e-14  # share of all spread that is rounding


def held_out(splits: Splits) -> Source:
    """The test split, or what there is of held-out samples, or the training split."""
    return splits.test or splits.val or splits.train


def inputs_of(source: Source, count: int | None, device: torch.device) -> Tensor:
    """The first input of the first samples, on the device."""
    rows = torch.arange(min(len(source), count or len(source)))
    try:
        return source.to("cpu").gather(rows).inputs[0].to(device)
    finally:
        source.close()


def generated(model: Any, count: int, seed: int, device: torch.device) -> Tensor:
    """New samples, the same for the same seed."""
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        sizes = [PIECE] * (count // PIECE) + ([count % PIECE] if count % PIECE else [])
        return torch.cat([model.sample(size, generator) for size in sizes])


def top_eigenvectors(x: Tensor, count: int) -> Tensor:
    """The axes (features, count) along which centred samples (samples, features) spread most."""
    vectors: Tensor = torch.linalg.eigh(x.T @ x).eigenvectors
    return vectors[:, -count:].flip(1)


def deflated(x: Tensor, count: int) -> Tensor:
    """The same one by one, each by power iteration on what the ones before it leave of the samples.

    Without the matrix of covariances. Axes along which the spread is nearly the same may come out mixed.
    """
    generator = torch.Generator().manual_seed(0)
    axes = x.new_zeros(x.shape[1], 0)
    for _ in range(count):
        w = torch.randn(x.shape[1], dtype=x.dtype, generator=generator).to(x.device)
        w = _apart(w, axes)
        for _ in range(STEPS):
            moved = x.T @ (x @ w)
            if moved.norm() <= NOTHING * x.square().sum():
                break  # the samples do not spread any further
            before, w = w, _apart(moved, axes)
            if (w - before).norm() < NEAR:
                break
        axes = torch.cat((axes, w.unsqueeze(1)), 1)
    return axes


def _apart(w: Tensor, axes: Tensor) -> Tensor:
    """What a vector has across all axes, of length 1; twice, as the first time leaves rounding."""
    for _ in range(2):
        w = w - axes @ (axes.T @ w)
        w = w / w.norm()
    return w


class ComponentsReference(Reference):
    """The best linear autoencoder, by the eigenvectors of the covariance of the training samples."""

    formula = "mean((x' - x)^2), x' = m + V V^T (x - m)"

    def __init__(self, config: configs.PrincipalComponents) -> None:
        self.axes = deflated if config.method == "deflation" else top_eigenvectors

    def solve(self, model: nn.Module, train: Batch) -> nn.Module:
        best = copy.deepcopy(model)
        assert isinstance(best, Pca)
        x = train.inputs[0].flatten(1).double()
        mean = x.mean(0)
        axes = self.axes(x - mean, best.encoder.out_features)
        with torch.no_grad():
            best.mean.copy_(mean)
            best.encoder.weight.copy_(axes.T)
            best.decoder.weight.copy_(axes)
        return best

    def value(self, model: nn.Module, train: Batch) -> float:
        assert isinstance(model, Pca)
        with torch.no_grad():
            x = train.inputs[0]
            return float(squared_error(model.decode(model.encode(x)), x).mean())

    def gap(self, model: nn.Module, best: nn.Module, train: Batch) -> dict[str, float]:
        assert isinstance(model, Pca) and isinstance(best, Pca)
        return {**super().gap(model, best, train), "angle_cosine": span_cosine(model, best)}


def span_cosine(one: Pca, two: Pca) -> float:
    """The least cosine of an angle between the spaces that two decoders span; 1 where they are the same."""
    with torch.no_grad():
        a, b = (torch.linalg.qr(m.decoder.weight.double())[0] for m in (one, two))
        return float(torch.linalg.svdvals(a.T @ b).min())


class WeightedProbe(Probe):
    """log p(x) by importance weights."""

    def __init__(self, config: configs.ImportanceWeighted, seed: int) -> None:
        self.codes, self.samples, self.seed = config.draws, config.samples, seed

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        assert isinstance(model, Vae)
        x, found, bound = inputs_of(held_out(splits), self.samples, device), 0.0, 0.0
        generator = torch.Generator(device).manual_seed(self.seed)
        with torch.no_grad():
            for part in torch.split(x, PIECE):
                found += float(model.importance_weighted(part, self.codes, generator).sum())
                bound += float(model.importance_weighted(part, 1, generator).sum())
        return {"log_likelihood": found / len(x), "elbo": bound / len(x)}


def modes_of(splits: Splits) -> tuple[Tensor, float]:
    """Centres and deviation of the clouds that the data says it is made of."""
    noted = splits.notes.get("modes")
    if not isinstance(noted, dict):
        raise PegboardError(
            "the data does not say around which points its samples lie: expected a mixture, as ring"
        )
    return torch.tensor(noted["centres"]), float(noted["deviation"])


def clouds_of(splits: Splits) -> tuple[Tensor, float]:
    """The same, or of any other data the mean of each class and their deviation from it."""
    if "modes" in splits.notes or not isinstance(splits.spec.target, Classes):
        return modes_of(splits)
    batch = splits.train.to("cpu").gather(torch.arange(len(splits.train)))
    assert batch.target is not None
    x, y = batch.inputs[0].flatten(1), batch.target
    x = x if splits.invert is None else splits.invert(batch.inputs[0]).flatten(1)
    centres = torch.stack([x[y == k].mean(0) for k in range(int(y.max()) + 1) if bool((y == k).any())])
    near = torch.cdist(x, centres).amin(1)
    return centres, float((near.square().mean() / x.shape[1]).sqrt())


class ModesProbe(Probe):
    """Samples of a model on a mixture in the plane, each counted at its nearest centre."""

    def __init__(self, config: configs.Modes, seed: int) -> None:
        self.count, self.within, self.seed = config.samples, config.within, seed
        self.seen: tuple[Tensor, Tensor] | None = None

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        centres, deviation = clouds_of(splits)
        x = generated(model, self.count, self.seed, device).cpu()
        x = x if splits.invert is None else splits.invert(x)
        x = x.flatten(1)
        self.seen = (x, centres)
        away, nearest = torch.cdist(x, centres).min(1)
        good = away <= self.within * deviation * (x.shape[1] / 2) ** 0.5  # as far as in the plane
        counts = torch.bincount(nearest[good], minlength=len(centres)).double()
        share = counts / counts.sum().clamp(min=1)
        even = 1 / len(centres)
        return {
            "modes": float((counts >= 0.2 * even * len(x)).sum()),  # of those there are
            "of": float(len(centres)),
            "coverage": float((counts > 0).double().mean()),
            "quality": float(good.double().mean()),
            "unevenness": float((share - even).abs().sum() / 2),
        }

    def plot(self, figure: Figure) -> None:
        assert self.seen is not None
        (x, centres), axes = self.seen, figure.add_subplot()
        across, up = x[:, 0].tolist(), x[:, 1].tolist()
        axes.scatter(across, up, s=4, alpha=0.5, label="samples")
        across, up = centres[:, 0].tolist(), centres[:, 1].tolist()
        axes.scatter(across, up, s=60, marker="+", color="black", label="centres")
        axes.set_aspect("equal")
        axes.legend(fontsize=8)


class EntropyProbe(Probe):
    """The log-likelihood of held-out samples by a flow and by the true density."""

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        assert isinstance(model, Flow)
        centres, deviation = modes_of(splits)
        x = inputs_of(held_out(splits), None, device)
        plain = x.cpu() if splits.invert is None else splits.invert(x.cpu())
        if not torch.allclose(plain, x.cpu(), atol=1e-5):
            raise PegboardError("the density is known of samples that are not scaled: data.normalize=none")
        with torch.no_grad():
            found = float(model(x).log_likelihood.double().mean())
        true = float(mixture_log_density(plain.double(), centres.double(), deviation).mean())
        return {"log_likelihood": found, "true_log_likelihood": true, "gap": true - found}


class FrechetProbe(Probe):
    """Samples of the model and of the data as a classifier sees them."""

    def __init__(self, config: configs.Frechet, seed: int) -> None:
        self.reference, self.count, self.seed = config.classifier, config.samples, seed

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        classifier, read = self._classifier(splits.spec, device)
        own = splits.invert or (lambda x: x)
        real = own(inputs_of(held_out(splits), self.count, device).cpu())
        if len(real) < LEAST:
            raise PegboardError(
                f"frechet compares covariances, also of two halves of the data: found {len(real)} samples of "
                f"it, expected at least {LEAST}"
            )
        fake = own(generated(model, self.count, self.seed, device).cpu()).clamp(real.min(), real.max())
        (a, _), (b, logits) = (seen(classifier, read(x), device) for x in (real, fake))
        half = len(a) // 2
        share = torch.bincount(logits.argmax(1), minlength=logits.shape[1]).double() / len(logits)
        return {
            "frechet": float(frechet_distance(a, b)),
            "frechet_of_data": float(frechet_distance(a[:half], a[half:])),  # what two halves of it have
            "least_class": float(share.min()),
            "most_class": float(share.max()),
            "confidence": float(logits.softmax(1).amax(1).mean()),
        }

    def _classifier(self, data: DataSpec, device: torch.device) -> tuple[nn.Module, Any]:
        """The trained classifier, and what makes its inputs of samples as they were before scaling."""
        from pegboard.inference.trained import Trained

        trained = Trained(self.reference, device=str(device))
        spec, part = trained.plan.spec, trained.plan.settings.model.entry.part
        if getattr(part, "samples", False) or not isinstance(spec.target, Classes):
            raise PegboardError(
                f"{self.reference} is no classifier: its model {part.name!r} "
                + ("generates samples" if getattr(part, "samples", False) else f"predicts {spec.target}")
            )
        if [one.size for one in spec.inputs] != [one.size for one in data.inputs]:
            found, wanted = (", ".join(map(str, of.inputs)) for of in (spec, data))
            raise PegboardError(
                f"the classifier {self.reference} reads {found}, and samples are {wanted}: expected one that "
                "was trained on the same inputs"
            )
        return trained.model, scaling_of(trained)


def scaling_of(trained: Any) -> Any:
    """The affine map from samples to the inputs of a trained model, found by its inverse."""
    codec = trained.codec
    (spec,) = trained.plan.spec.inputs
    zero = spec.example(1, "cpu")
    if codec is None or codec.invert is None:
        return lambda x: x.view(-1, *zero.shape[1:])
    shift, scale = codec.invert(zero), codec.invert(zero + 1) - codec.invert(zero)
    return lambda x: (x.view(-1, *zero.shape[1:]) - shift) / scale


def seen(classifier: nn.Module, x: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """What the last linear layer of a classifier reads and gives: (count, features), (count, classes)."""
    last = [m for m in classifier.modules() if isinstance(m, nn.Linear)]
    if not last:
        raise PegboardError(f"a {type(classifier).__name__} has no linear layer whose inputs are features")
    read: list[Tensor] = []
    hook = last[-1].register_forward_pre_hook(lambda module, given: read.append(given[0].flatten(1)))
    try:
        with torch.no_grad():
            logits = torch.cat([classifier.eval()(part.to(device)) for part in torch.split(x, PIECE)])
    finally:
        hook.remove()
    return torch.cat(read), logits


class CapacityProbe(Probe):
    """The training patterns in a memory: what they add to each other, and whether they stay."""

    def __init__(self, config: configs.Capacity, seed: int) -> None:
        self.flips, self.count, self.seed = config.flips, config.patterns, seed

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        assert isinstance(model, Hopfield)
        with torch.no_grad():
            patterns = model.state(inputs_of(splits.train, None, device))
            s, n = patterns.shape
            some = patterns[: self.count]
            generator = torch.Generator(device).manual_seed(self.seed)
            changed = torch.rand(some.shape, generator=generator, device=device) < self.flips
            start = torch.where(changed, -some, some)
            found = model.recall(start.view(-1, *model.shape)).flatten(1)
            overlap = nn.functional.cosine_similarity(found, some, 1)
            figures = {
                "load": s / n,
                "overlap": float(overlap.mean()),
                "retrieval": float((overlap > 1 - 1e-4).double().mean()),
            }
            if model.kind == "binary":
                told = crosstalk(patterns.cpu().double())
                figures["crosstalk_variance"] = float(told.var())
                figures["unstable"] = float((patterns.cpu() * told < -1 + 1 / n).double().mean())
                figures["unstable_expected"] = flip_probability(s / n)
        return figures
