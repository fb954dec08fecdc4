"""What depth does to nodes: they become alike, and what is far away hardly reaches them."""

from __future__ import annotations

import torch
from pegboard import Context, Probe, Splits
from torch import Tensor, nn

from .network import GraphNetwork
from .probe_configs import Smoothing
from .structure import coupled, dense


def coupling(edges: Tensor, nodes: int) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 as a matrix in double precision."""
    structure = coupled(edges, torch.ones(edges.shape[1], 1, dtype=torch.float64), nodes)
    return dense(structure)


def limit(edges: Tensor, nodes: int, x: Tensor) -> Tensor:
    """What many couplings make of signals on a connected graph: v v^T x, where v = D^1/2 1, of length 1."""
    degree = torch.bincount(edges[1], minlength=nodes).to(x.dtype) + 1
    v = degree.sqrt() / degree.sum().sqrt()
    return torch.outer(v, v @ x)


def likeness(x: Tensor) -> float:
    """The mean cosine between nodes (nodes, features) and their mean, 1 where all point the same way."""
    mean = x.mean(0, keepdim=True)
    return float(torch.nn.functional.cosine_similarity(x, mean, dim=1).mean())


class SmoothingProbe(Probe):
    """Looks at the nodes behind every layer."""

    def __init__(self, config: Smoothing, context: Context) -> None:
        self.config = config

    @torch.no_grad()
    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        assert isinstance(model, GraphNetwork)
        source = getattr(splits, self.config.split) or splits.train
        count = min(len(source), self.config.samples)
        inputs = source.gather(torch.arange(count, device="cpu")).inputs
        found: dict[str, float] = {"likeness_input": likeness(inputs[0].to(device))}
        seen: list[Tensor] = []
        handles = [
            block.register_forward_hook(lambda module, given, output: seen.append(output))
            for block in model.blocks
        ]
        try:
            model.eval()(*(x.to(device) for x in inputs))
        finally:
            for handle in handles:
                handle.remove()
        return found | {f"likeness_{number}": likeness(x) for number, x in enumerate(seen, 1)}
