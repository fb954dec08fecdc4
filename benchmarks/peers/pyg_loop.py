"""PyTorch Geometric's example of the same network, `gcn.py`: `GCNConv(cached=True)`, dense features, a mask
of the nodes that train, and a loop by hand. Its dropout and weight decay are left out: no other row has them.
"""

from pathlib import Path

import cora
import torch
from clock import CLOCK
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from workloads import Workload

from . import Trained, adam, updates


class Example(nn.Module):
    """The network of the example."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(inputs, hidden, cached=True)
        self.conv2 = GCNConv(hidden, outputs, cached=True)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        if self.training:
            CLOCK.tick()
        return self.conv2(self.conv1(x, edges).relu(), edges)


class Asked(nn.Module):
    """The example's network as the others are called, to measure its loss."""

    def __init__(self, model: Example, data: Data) -> None:
        super().__init__()
        self.model, self.data = model, data

    def forward(self, asked: Tensor) -> Tensor:
        return self.model(self.data.x, self.data.edge_index)[asked]


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    graph = cora.graph()
    mask = torch.zeros(len(graph.x), dtype=torch.bool).index_fill(0, graph.asked, True)
    data = Data(x=graph.x, edge_index=graph.edges, y=graph.y, train_mask=mask)
    model = Example(graph.x.shape[1], cora.HIDDEN, cora.CLASSES)
    optimizer = adam(work, model, fused=False)  # as in the example
    for _ in range(work.steps):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = functional.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        float(loss.detach())  # the example returns it
    return Trained(Asked(model, data), updates(optimizer))
