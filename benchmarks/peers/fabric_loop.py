"""Fabric: one's own loop over model, optimizer and loader that it set up."""

from pathlib import Path

from lightning.fabric import Fabric
from workloads import Workload

from . import Trained, adam, loader, updates


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    fabric = Fabric() if defaults else Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    model = work.network()
    wrapped, optimizer = fabric.setup(model, adam(work, model))
    batches = fabric.setup_dataloaders(loader(work))
    for _ in range(work.epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss = work.criterion(wrapped(x), y)
            fabric.backward(loss)
            optimizer.step()
    return Trained(model, updates(optimizer))
