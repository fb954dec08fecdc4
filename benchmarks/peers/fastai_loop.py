"""fastai: a Learner with torch's Adam. Its defaults: a recorder of losses and a progress bar; they are
removed in the other turn. Validation, of which it has none here, is skipped in both."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from fastai.callback.progress import ProgressCallback
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner, Recorder
from fastai.optimizer import OptimWrapper
from torch.utils.data import TensorDataset
from workloads import Workload

from . import Trained, updates


class TrainsOnly(Learner):  # type: ignore[misc]
    """A callback that cancels validation would be asked about every event of every step."""

    def _do_epoch_validate(self, *args: Any, **options: Any) -> None: ...


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    batches = DataLoader(TensorDataset(*work.data()), bs=work.batch, shuffle=True, drop_last=True)
    learner = TrainsOnly(
        DataLoaders(batches, batches, device="cpu"),
        work.network(),
        loss_func=work.criterion,
        opt_func=partial(OptimWrapper, opt=torch.optim.Adam),
        lr=work.lr,
        path=folder,
    )
    if not defaults:
        learner.remove_cbs([ProgressCallback, Recorder])
    learner.fit(work.epochs)
    return Trained(learner.model, updates(learner.opt.opt))
