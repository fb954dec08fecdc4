"""Lightning: a module and a Trainer, with its own checkpoints, its CSV log, and the curves drawn from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from peers import Rows, as_it_is
from torch import Tensor
from torch.utils.data import DataLoader

from waits.tasks import Pair, Splits, Task, measure, tell


class Module(lightning.LightningModule):
    def __init__(self, task: Task, splits: Splits) -> None:
        super().__init__()
        self.task, self.size, self.network = task, len(splits.train[0]), task.network(splits)
        self.seen: list[Pair] = []
        self.rows: list[dict[str, float]] = []
        self.tested: dict[str, float] = {}

    def training_step(self, batch: Pair, index: int) -> Tensor:
        loss = self.task.loss(self.network(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Pair, index: int) -> None:
        self.seen.append((self.network(batch[0]), batch[1]))

    test_step = validation_step

    def measured(self) -> dict[str, float]:
        found = measure(*(torch.cat(parts) for parts in zip(*self.seen, strict=True)))
        self.seen = []
        return found

    def on_validation_epoch_end(self) -> None:
        row = self.measured()
        self.log_dict({f"val_{name}": value for name, value in row.items()})
        self.rows.append(row)

    def on_test_epoch_end(self) -> None:
        self.tested = self.measured()
        self.log_dict({f"test_{name}": value for name, value in self.tested.items()})

    def configure_optimizers(self) -> Any:
        optimizer = self.task.optimizer(self.network)
        schedule = self.task.schedule(optimizer, self.size)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(task: Task, kept: Path, folder: Path) -> None:
    lightning.seed_everything(0, verbose=False)
    splits = task.load(kept)
    module = Module(task, splits)

    def loader(pair: Pair, size: int, shuffle: bool = False) -> DataLoader[Any]:
        return DataLoader(Rows(*pair), size, shuffle=shuffle, collate_fn=as_it_is)

    size = task.batch or len(splits.train[0])
    length: dict[str, int] = {"max_steps": task.steps} if task.steps else {"max_epochs": task.epochs}
    best = ModelCheckpoint(
        folder / "checkpoints",
        monitor=f"val_{task.monitor}",
        mode="min" if task.monitor == "loss" else "max",
        save_last=True,
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        default_root_dir=folder,
        callbacks=[best],
        logger=CSVLogger(folder),
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        **length,
    )
    val = loader(splits.val, 1024)
    trainer.fit(module, loader(splits.train, size, shuffle=True), val)
    steps = trainer.global_step
    trainer.test(module, loader(splits.test, 1024), ckpt_path="best", verbose=False)
    tell(folder, module.rows, module.tested, steps)
