"""A plain script, as a good engineer writes it: tensors in memory, one gather a batch, fused Adam."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from waits.tasks import Pair, Task, measure, tell


@torch.no_grad()
def outputs(model: nn.Module, x: Tensor, batch: int) -> Tensor:
    model.eval()
    found = torch.cat([model(part) for part in x.split(batch)])
    model.train()
    return found


def save(state: object, path: Path) -> None:
    """Whole or not at all."""
    torch.save(state, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)


def train(task: Task, kept: Path, folder: Path) -> None:
    torch.manual_seed(0)
    splits = task.load(kept)
    (x, y), total = splits.train, task.updates(len(splits.train[0]))
    model, batch = task.network(splits), task.batch or len(splits.train[0])
    optimizer = task.optimizer(model)
    schedule = task.schedule(optimizer, len(x))
    sign = 1 if task.monitor == "loss" else -1

    def evaluate(pair: Pair) -> dict[str, float]:
        return measure(outputs(model, pair[0], 1024 if task.batch else len(x) * 1000), pair[1])

    step, best, rows = 0, float("inf"), list[dict[str, float]]()
    while step < total:
        losses = []
        for index in torch.randperm(len(x)).split(batch)[: total - step]:
            optimizer.zero_grad()
            loss = task.loss(model(x[index]), y[index])
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
            step += 1
        rows.append({"train_loss": torch.stack(losses).mean().item(), **evaluate(splits.val)})
        print(f"step {step}", *(f"{name} {value:.4f}" for name, value in rows[-1].items()))
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        save(state, folder / "last.pt")
        if sign * rows[-1][task.monitor] < best:
            best = sign * rows[-1][task.monitor]
            save(state, folder / "best.pt")
    model.load_state_dict(torch.load(folder / "best.pt")["model"])
    tell(folder, rows, evaluate(splits.test), step)
