"""Ignite: an Engine made by `create_supervised_trainer`. It shows and saves nothing by itself."""

from pathlib import Path

from ignite.engine import create_supervised_trainer
from workloads import Workload

from . import Trained, adam, loader, updates


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    model = work.network()
    optimizer = adam(work, model)
    engine = create_supervised_trainer(model, optimizer, work.criterion)
    engine.run(loader(work), max_epochs=work.epochs)
    return Trained(model, updates(optimizer))
