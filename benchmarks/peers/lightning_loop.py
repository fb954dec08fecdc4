"""Lightning: a LightningModule and a Trainer. Its defaults: progress bar, summary, CSV or TensorBoard
log, a checkpoint every epoch; the module then logs its loss, as the documentation's does."""

from pathlib import Path

import lightning
import torch
from torch import Tensor
from workloads import Workload

from . import Trained, adam, loader, updates

OFF = {"barebones": True}  # Lightning's own switch for measuring its loop


class Module(lightning.LightningModule):
    def __init__(self, work: Workload, logs: bool) -> None:
        super().__init__()
        self.work, self.logs, self.network = work, logs, work.network()

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = batch
        loss = self.work.criterion(self.network(x), y)
        if self.logs:
            self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return adam(self.work, self.network)


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    module = Module(work, defaults)
    options = {} if defaults else OFF
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=work.epochs, default_root_dir=folder, **options
    )
    trainer.fit(module, loader(work))
    return Trained(module.network, updates(trainer.optimizers[0]))
