"""Composer: a ComposerModel and a Trainer. Its defaults: a progress bar."""

from pathlib import Path

from composer import Trainer
from composer.models import ComposerModel
from torch import Tensor
from workloads import Workload

from . import Trained, adam, loader, updates

Pair = tuple[Tensor, Tensor]


class Model(ComposerModel):
    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.work, self.network = work, work.network()

    def forward(self, batch: Pair) -> Tensor:
        return self.network(batch[0])

    def loss(self, outputs: Tensor, batch: Pair) -> Tensor:
        return self.work.criterion(outputs, batch[1])


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    model = Model(work)
    optimizer = adam(work, model)
    trainer = Trainer(
        model=model,
        train_dataloader=loader(work),
        optimizers=optimizer,
        max_duration=f"{work.epochs}ep",
        device="cpu",
        progress_bar=defaults,
    )
    trainer.fit()
    trainer.close()
    return Trained(model.network, updates(optimizer))
