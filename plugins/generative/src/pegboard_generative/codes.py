"""What the codes of an autoencoder hold: which numbers are in use, and what they tell of the target."""

from __future__ import annotations

import torch
from pegboard import Batch, Classes, PegboardError, Probe, Source, Splits, Values
from torch import Tensor, nn

from . import configs
from .autoencoder import Autoencoder, Pca
from .functional import gaussian_kl
from .vae import Vae

UNUSED = 0.01  # nats, or deviation, below which a number of a code says nothing


class LatentCodesProbe(Probe):
    """Codes of a split: numbers in use, classes by the nearest codes, mutual information gap."""

    def __init__(self, config: configs.LatentCodes) -> None:
        self.config = config

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        assert isinstance(model, (Vae, Autoencoder, Pca))
        asked = getattr(splits, self.config.split)
        if asked is None:
            raise PegboardError(f"there is no split {self.config.split!r}: expected one that the data has")
        batch = _first(asked, self.config.samples)
        x = batch.inputs[0].to(device)
        code = encoded(model, x)
        figures = {}
        if isinstance(model, Vae):
            with torch.no_grad():
                divergence = gaussian_kl(*model.posterior(x)).mean(0)
            figures["kl"] = float(divergence.sum())
            figures["active"] = float((divergence >= UNUSED).sum())
        else:
            figures["active"] = float((code.std(0) >= UNUSED).sum())
        target, spec = batch.target, splits.spec.target
        if target is None:
            return figures
        if isinstance(spec, Classes):
            train = splits.train if asked is not splits.train else None
            known = batch if train is None else _first(train, self.config.samples)
            assert known.target is not None
            others = code if train is None else encoded(model, known.inputs[0].to(device))
            near = _nearest(code, others, self.config.neighbours, itself=train is not None)
            figures["neighbour_accuracy"] = float(
                (known.target[near].mode(1).values == target).double().mean()
            )
        if isinstance(spec, (Classes, Values)) and code.shape[1] > 1:
            factors = target.reshape(len(target), -1)
            if isinstance(spec, Values):
                factors = torch.stack([binned(f, self.config.bins) for f in factors.unbind(1)], 1)
            read = torch.stack([binned(c, self.config.bins) for c in code.unbind(1)], 1)
            figures["information_gap"] = information_gap(factors, read)
        return figures


def encoded(model: Vae | Autoencoder | Pca, x: Tensor) -> Tensor:
    """The codes of samples, in evaluation: (samples, latent), on the CPU."""
    with torch.no_grad():
        return model.eval().encode(x).float().cpu()


def _first(source: Source, count: int) -> Batch:
    try:
        return source.to("cpu").gather(torch.arange(min(count, len(source))))
    finally:
        source.close()


def _nearest(code: Tensor, others: Tensor, count: int, *, itself: bool) -> Tensor:
    """Rows of the nearest other codes; without `itself` row i is not its own neighbour: (samples, count)."""
    away = torch.cdist(code, others)
    if not itself:
        away.fill_diagonal_(torch.inf)
    return away.topk(min(count, away.shape[1]), largest=False).indices


def binned(values: Tensor, bins: int) -> Tensor:
    """The bin of each value (samples,), of so many bins with as many samples each."""
    edges = torch.quantile(values.double(), torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1])
    return torch.bucketize(values.double(), edges.unique())  # type: ignore[no-untyped-call]


def mutual_information(a: Tensor, b: Tensor) -> float:
    """Of two discrete variables, by how often values occur together, in nats; both (samples,)."""
    a, b = (v.unique(return_inverse=True)[1] for v in (a, b))  # type: ignore[no-untyped-call]
    joint = torch.bincount(a * (int(b.max()) + 1) + b, minlength=int((a.max() + 1) * (b.max() + 1)))
    p = joint.double().reshape(int(a.max()) + 1, -1) / len(a)
    apart = p.sum(1, keepdim=True) * p.sum(0)
    return float((torch.xlogy(p, p) - torch.xlogy(p, apart)).sum())


def information_gap(factors: Tensor, code: Tensor) -> float:
    """Mutual information gap (MIG) of discrete factors (samples, f) and numbers of a code (samples, latent).

    How much more the number that tells most of a factor tells of it than the next one does, as a share of
    the factor's entropy, in the mean over factors: 1 where each is in one number, 0 where two tell as much.
    """
    gaps = []
    for factor in factors.unbind(1):
        entropy = mutual_information(factor, factor)
        best = sorted((mutual_information(factor, c) for c in code.unbind(1)), reverse=True)
        if entropy > 0:
            gaps.append((best[0] - best[1]) / entropy)
    return sum(gaps) / len(gaps) if gaps else 0.0
