"""HF Trainer, with its own evaluations, checkpoints and log, and the curves drawn from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peers import Rows, as_it_is
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from waits.tasks import Splits, Task, measure, tell


class Named(Rows):
    """Rows as the Trainer wants them."""

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        xs, ys = super().__getitems__(rows)
        return {"x": xs, "labels": ys}


class WithLoss(nn.Module):
    """A model as the Trainer wants it: it reads its labels and gives its loss."""

    def __init__(self, task: Task, splits: Splits) -> None:
        super().__init__()
        self.task, self.network = task, task.network(splits)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.network(x)
        return {"loss": self.task.loss(logits, labels), "logits": logits}


def figures(found: Any) -> dict[str, float]:
    return measure(torch.from_numpy(found.predictions), torch.from_numpy(found.label_ids))


def train(task: Task, kept: Path, folder: Path) -> None:
    torch.manual_seed(0)
    splits = task.load(kept)
    model, size = WithLoss(task, splits), len(splits.train[0])
    optimizer = task.optimizer(model.network)
    arguments = TrainingArguments(
        output_dir=str(folder / "checkpoints"),
        num_train_epochs=task.epochs,
        max_steps=task.steps or -1,
        per_device_train_batch_size=task.batch or size,
        per_device_eval_batch_size=1024,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{'measured_loss' if task.monitor == 'loss' else task.monitor}",
        greater_is_better=task.monitor != "loss",
        max_grad_norm=0.0,
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
        seed=0,
    )

    def compute(found: Any) -> dict[str, float]:  # its own loss is that of training, smoothed
        row = figures(found)
        return {"measured_loss": row["loss"], "accuracy": row["accuracy"], "f1": row["f1"]}

    trainer = Trainer(
        model,
        arguments,
        data_collator=as_it_is,
        train_dataset=Named(*splits.train),
        eval_dataset=Named(*splits.val),
        compute_metrics=compute,
        optimizers=(optimizer, task.schedule(optimizer, size)),
    )
    trainer.train()
    steps, log = trainer.state.global_step, trainer.state.log_history
    rows = [
        {"loss": row["eval_measured_loss"], "accuracy": row["eval_accuracy"], "f1": row["eval_f1"]}
        for row in log
        if "eval_f1" in row
    ]
    losses = [row["loss"] for row in log if "loss" in row]
    for row, loss in zip(rows, losses, strict=False):
        row["train_loss"] = loss
    tell(folder, rows, figures(trainer.predict(Named(*splits.test))), steps)
