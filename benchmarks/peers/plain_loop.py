"""The loop of the tutorials: a DataLoader and Adam."""

from pathlib import Path

from workloads import Workload

from . import Trained, adam, plain_loader, updates


def train(work: Workload, defaults: bool, folder: Path, fused: bool = False) -> Trained:
    model, batches = work.network(), plain_loader(work)
    optimizer = adam(work, model, fused)
    for _ in range(work.epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss = work.criterion(model(x), y)
            loss.backward()
            optimizer.step()
    return Trained(model, updates(optimizer))


def train_fused(work: Workload, defaults: bool, folder: Path) -> Trained:
    return train(work, defaults, folder, fused=True)
