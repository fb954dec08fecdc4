"""Accelerate: one's own loop over model, optimizer and loader that it prepared."""

from pathlib import Path

from accelerate import Accelerator
from workloads import Workload

from . import Trained, adam, loader, updates


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    accelerator = Accelerator(cpu=True)
    model = work.network()
    wrapped, optimizer, batches = accelerator.prepare(model, adam(work, model), loader(work))
    for _ in range(work.epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss = work.criterion(wrapped(x), y)
            accelerator.backward(loss)
            optimizer.step()
    return Trained(model, updates(optimizer))
