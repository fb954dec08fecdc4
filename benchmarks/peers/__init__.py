"""The loops that are compared. Each is a function `train(work, defaults, folder) -> Trained` in a file
of its own: it makes a new model, trains it for `work.epochs` epochs and hands it back.

With `defaults` off, whatever logs, saves, prints or measures is off as far as the framework lets it be.
With `defaults` on, the framework is given only model, data, optimizer, number of epochs and a folder.
Either way it gets what who knows it well would give it: torch's fused Adam, and batches that are one gather
from tensors in memory. The plain loop has what a tutorial gives it: rows collated one by one, and plain Adam.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from workloads import Workload


@dataclass(frozen=True)
class Trained:
    """What a turn left: the model, to measure its loss, and how many updates its optimizer counted."""

    model: nn.Module
    updates: int
    note: str = ""  # what was not as the row says


@dataclass(frozen=True)
class Peer:
    """A row of the table."""

    title: str
    module: str
    function: str = "train"
    kind: str = "peer"  # or "hand", "ours"
    package: str = ""  # distribution whose version is shown, and key of what install.py reports
    environ: tuple[tuple[str, str], ...] = ()
    modes: tuple[str, ...] = ("off", "on")  # "off" alone where the defaults change nothing
    workloads: tuple[str, ...] = ()  # () for all
    compiled: bool = False


def hand(title: str, module: str, function: str = "train", **options: Any) -> Peer:
    return Peer(title, module, function, "hand", **{"modes": ("off",), **options})


def ours(title: str, function: str = "train", **options: Any) -> Peer:
    return Peer(title, "pegboard_loop", function, "ours", "pegboard", **options)


STUBS = str(Path(__file__).resolve().parent.parent / "stubs")
PEERS = {
    "plain": hand("plain DataLoader loop", "plain_loop", modes=("off", "on")),
    "plain_fused": hand("plain DataLoader loop, fused Adam", "plain_loop", "train_fused"),
    "hand": hand("best hand-written loop", "hand_loop"),
    "hand_usual": hand("  its pictures channels first", "hand_loop", "train_usual", workloads=("cnn",)),
    "hand_compiled": hand("  its model compiled", "hand_loop", "train_compiled", compiled=True),
    "hand_step": hand("  its whole step compiled", "hand_loop", "train_step", compiled=True),
    "hand_step_unguarded": hand("  the same, guards skipped", "hand_loop", "train_unguarded", compiled=True),
    "lean": hand("  past Optimizer.step", "hand_loop", "train_lean"),
    "pyg": hand("PyG's example", "pyg_loop", package="torch_geometric", workloads=("gcn",)),
    "pegboard": ours("Pegboard"),
    "pegboard_hot": ours("  its hot loop alone", "train_hot", modes=("off",)),
    "step": ours("Pegboard, compiled step", "train_step", compiled=True),
    "steps8": ours("  8 steps a call", "train_steps8", compiled=True),
    "steps32": ours("  32 steps a call", "train_steps32", compiled=True),
    "steps32_hot": ours("  32 a call, hot loop alone", "train_hot32", modes=("off",), compiled=True),
    "tricks": ours("Pegboard, five tricks", "train_tricks", workloads=("mlp",)),
    "tricks32": ours("  compiled, 32 steps a call", "train_tricks32", workloads=("mlp",), compiled=True),
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


class Rows(Dataset[Any]):
    """Tensors in memory, of which a loader takes a whole batch at once."""

    def __init__(self, xs: Tensor, ys: Tensor) -> None:
        self.xs, self.ys = xs, ys

    def __len__(self) -> int:
        return len(self.xs)

    def __getitem__(self, row: int) -> Any:
        return self.xs[row], self.ys[row]

    def __getitems__(self, rows: list[int]) -> Any:
        index = torch.tensor(rows)
        return self.xs.index_select(0, index), self.ys.index_select(0, index)


def as_it_is(batch: Any) -> Any:
    """Instead of collating: `Rows` gives batches."""
    return batch


def loader(work: Workload) -> DataLoader[Any]:
    """The data as most frameworks take it, in batches that are one gather each."""
    rows = Rows(*work.data())
    return DataLoader(rows, work.batch, shuffle=True, drop_last=True, collate_fn=as_it_is)


def plain_loader(work: Workload) -> DataLoader[Any]:
    """The data as a tutorial has it, collated row by row."""
    return DataLoader(TensorDataset(*work.data()), work.batch, shuffle=True, drop_last=True)


def adam(work: Workload, model: nn.Module, fused: bool = True) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), work.lr, fused=fused)


def updates(optimizer: Any) -> int:
    """How many updates a torch optimizer of the Adam kind made, by its own count."""
    while hasattr(optimizer, "optimizer"):  # out of what frameworks wrap around it
        optimizer = optimizer.optimizer
    return int(max(float(state["step"]) for state in optimizer.state.values()))
