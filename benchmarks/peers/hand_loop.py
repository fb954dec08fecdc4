"""The loop a good engineer writes: data as resident tensors, one gather a batch, fused Adam."""

from pathlib import Path

import torch
from torch.nn import functional
from workloads import Workload

from . import Trained, adam, updates


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    model, (xs, ys) = work.network(), work.data()
    optimizer = adam(work, model, fused=True)
    for _ in range(work.epochs):
        for index in torch.randperm(len(xs)).split(work.batch):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(xs[index]), ys[index])
            loss.backward()
            optimizer.step()
    return Trained(model, updates(optimizer))
