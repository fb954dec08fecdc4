"""The loops that are compared. Each is a function `train(work, defaults, folder) -> Trained` in a file
of its own: it makes a new model, trains it for `work.epochs` epochs and hands it back.

With `defaults` off, whatever logs, saves, prints or measures is off as far as the framework lets it be.
With `defaults` on, the framework is given only model, data, optimizer, number of epochs and a folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from workloads import Workload


@dataclass(frozen=True)
class Trained:
    """What a turn left: the model, to measure its loss, and how many updates its optimizer counted."""

    model: nn.Module
    updates: int


@dataclass(frozen=True)
class Peer:
    """A row of the table."""

    title: str
    module: str
    function: str = "train"
    package: str = ""  # distribution whose version is shown, and key of what install.py reports
    environ: tuple[tuple[str, str], ...] = ()


STUBS = str(Path(__file__).resolve().parent.parent / "stubs")
PEERS = {
    "plain": Peer("plain DataLoader loop", "plain_loop"),
    "plain_fused": Peer("plain DataLoader loop, fused Adam", "plain_loop", "train_fused"),
    "hand": Peer("best hand-written loop", "hand_loop"),
    "pegboard": Peer("Pegboard", "pegboard_loop", package="pegboard"),
    "pegboard_steady": Peer("Pegboard, its hot loop alone", "pegboard_loop", "train_steady", "pegboard"),
    "pegboard_tricks": Peer("Pegboard, four tricks", "pegboard_loop", "train_tricks", "pegboard"),
    "ignite": Peer("Ignite", "ignite_loop", package="pytorch-ignite"),
    "fabric": Peer("Fabric", "fabric_loop", package="lightning"),
    "skorch": Peer("skorch", "skorch_loop", package="skorch"),
    "accelerate": Peer("Accelerate", "accelerate_loop", package="accelerate"),
    "lightning": Peer("Lightning", "lightning_loop", package="lightning"),
    "transformers": Peer("HF Trainer", "transformers_loop", package="transformers"),
    "fastai": Peer("fastai", "fastai_loop", package="fastai"),
    "composer": Peer("Composer", "composer_loop", package="mosaicml", environ=(("PYTHONPATH", STUBS),)),
    "keras": Peer("Keras on torch", "keras_loop", package="keras", environ=(("KERAS_BACKEND", "torch"),)),
}


def loader(work: Workload) -> DataLoader[Any]:
    """The data as most frameworks take it."""
    return DataLoader(TensorDataset(*work.data()), work.batch, shuffle=True, drop_last=True)


def adam(work: Workload, model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), work.lr, **options)


def updates(optimizer: Any) -> int:
    """How many updates a torch optimizer of the Adam kind made, by its own count."""
    while hasattr(optimizer, "optimizer"):  # out of what frameworks wrap around it
        optimizer = optimizer.optimizer
    return int(max(float(state["step"]) for state in optimizer.state.values()))
