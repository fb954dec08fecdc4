"""fastai: a Learner with torch's Adam. Its defaults: a recorder of losses and a progress bar; they are
removed in the other turn. Batches are one gather each. Validation, of which it has none here, is skipped in
both."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from fastai.callback.progress import ProgressCallback
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner, Recorder
from fastai.optimizer import OptimWrapper
from workloads import Workload

from . import Rows, Trained, updates


class TrainsOnly(Learner):  # type: ignore[misc]
    """A callback that cancels validation would be asked about every event of every step."""

    def _do_epoch_validate(self, *args: Any, **options: Any) -> None: ...


class Batches(DataLoader):  # type: ignore[misc]
    """Takes a batch of tensors at once, instead of its rows one by one."""

    def create_item(self, row: int) -> int:
        return row

    def create_batch(self, rows: list[int]) -> Any:
        return self.dataset.__getitems__(rows)

    def retain(self, batch: Any, rows: list[int]) -> Any:
        return batch


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    batches = Batches(Rows(*work.data()), bs=work.batch, shuffle=True, drop_last=True)
    learner = TrainsOnly(
        DataLoaders(batches, batches, device="cpu"),
        work.network(),
        loss_func=work.criterion,
        opt_func=partial(OptimWrapper, opt=partial(torch.optim.Adam, fused=True)),
        lr=work.lr,
        path=folder,
    )
    if not defaults:
        learner.remove_cbs([ProgressCallback, Recorder])
    learner.fit(work.epochs)
    return Trained(learner.model, updates(learner.opt.opt))
