"""skorch: a NeuralNetClassifier fitted to tensors. Its defaults: a fifth of the data held out and measured
every epoch, which is off in both turns because it would change the number of steps, and a printed line
each epoch."""

from pathlib import Path
from typing import Any

import torch
from skorch import NeuralNetClassifier
from torch import Tensor, nn
from workloads import Workload

from . import Rows, Trained, as_it_is, updates


class Criterion(nn.Module):
    """The workload's loss in the form that skorch takes."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.work = work

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return self.work.criterion(output, target)


OFF = {"verbose": 0, "callbacks": "disable"}


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    options: dict[str, Any] = {} if defaults else OFF
    net = NeuralNetClassifier(
        work.network,
        criterion=Criterion,
        criterion__work=work,
        optimizer=torch.optim.Adam,
        optimizer__fused=True,
        dataset=Rows,
        lr=work.lr,
        max_epochs=work.epochs,
        batch_size=work.batch,
        train_split=None,
        iterator_train__shuffle=True,
        iterator_train__collate_fn=as_it_is,
        iterator_train__drop_last=True,
        **options,
    )
    net.fit(*work.data())
    return Trained(net.module_, updates(net.optimizer_))
