"""HF Trainer. Its defaults: progress bar, log and checkpoint every 500 steps, clipping, a linear schedule
and its own choice of optimizer, fused AdamW."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments
from workloads import Workload

from . import Rows, Trained, adam, as_it_is, updates

OFF = {
    "report_to": "none",
    "save_strategy": "no",
    "logging_strategy": "no",
    "logging_nan_inf_filter": False,
    "disable_tqdm": True,
    "max_grad_norm": 0.0,
    "lr_scheduler_type": "constant",
}


class Named(Rows):
    """Rows as the Trainer wants them."""

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        xs, ys = super().__getitems__(rows)
        return {"x": xs, "labels": ys}


class WithLoss(nn.Module):
    """A model as the Trainer wants it: it reads its labels and gives its loss."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.work, self.network = work, work.network()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.network(x)
        return {"loss": self.work.criterion(logits, labels), "logits": logits}


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    model = WithLoss(work)
    options: dict[str, Any] = {} if defaults else OFF
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=work.epochs,
        per_device_train_batch_size=work.batch,
        learning_rate=work.lr,
        dataloader_drop_last=True,
        remove_unused_columns=False,
        use_cpu=True,
        **options,
    )
    optimizers: tuple[torch.optim.Optimizer | None, None] = (None if defaults else adam(work, model), None)
    trainer = Trainer(
        model,
        arguments,
        data_collator=as_it_is,
        train_dataset=Named(*work.data()),
        optimizers=optimizers,
    )
    trainer.train()
    return Trained(model.network, updates(trainer.optimizer))
