"""The work: for each task its data, network, optimizer and length, as a config of Pegboard and in torch.

Every program reads the same files, evaluates loss, accuracy and F1 on val after each epoch, keeps the newest
and the best checkpoint, measures the best weights on test and draws the curves. What it would keep to begin
sooner next time it may keep in a folder, which is empty in a cold run.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

Pair = tuple[Tensor, Tensor]
QUIET = "trainer.diagnose=false"  # the other programs do not judge themselves


class Splits(NamedTuple):
    """Inputs and classes; the network reads what else there is of the data from `extra`."""

    train: Pair
    val: Pair
    test: Pair
    extra: Any = None


@dataclass(frozen=True)
class Task:
    config: str  # what Pegboard trains, below the repository
    words: tuple[str, ...]
    load: Callable[[Path], Splits]  # takes the folder of what is kept
    network: Callable[[Splits], nn.Module]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    batch: int | None  # None for all rows at once
    epochs: int
    reach: float  # accuracy on test that training must reach
    steps: int | None = None  # instead of whole epochs
    warmup: int | None = None  # steps, before a cosine; None for a constant rate
    smoothing: float = 0.0
    monitor: str = "accuracy"
    needs: str = ""  # folder below PEGBOARD_DATA

    def updates(self, rows: int) -> int:
        return self.steps or self.epochs * math.ceil(rows / (self.batch or rows))

    def factor(self, total: int, step: int) -> float:
        """Of the learning rate."""
        if self.warmup is None:
            return 1.0
        if step < self.warmup:
            return (step + 1) / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (step - self.warmup) / max(total - self.warmup, 1)))

    def schedule(self, optimizer: torch.optim.Optimizer, rows: int) -> torch.optim.lr_scheduler.LambdaLR:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, partial(self.factor, self.updates(rows)))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            output.flatten(0, -2), target.flatten(), label_smoothing=self.smoothing
        )


def measure(output: Tensor, target: Tensor) -> dict[str, float]:
    """Loss, accuracy and macro F1 of all outputs of a split."""
    output, target = output.flatten(0, -2), target.flatten()
    classes = output.shape[-1]
    table = (target * classes + output.argmax(-1)).bincount(minlength=classes**2).view(classes, classes)
    hits = table.diagonal().double()
    f1 = 2 * hits / (table.sum(0) + table.sum(1)).clamp(min=1)
    return {
        "loss": functional.cross_entropy(output, target).item(),
        "accuracy": (hits.sum() / table.sum()).item(),
        "f1": f1.mean().item(),
    }


def draw(rows: Sequence[Mapping[str, float]], path: Path) -> None:
    """The curves of a run: what was measured on val after each epoch, and the training loss."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    epochs = range(1, len(rows) + 1)
    for name in ("train_loss", "loss"):
        left.plot(epochs, [row.get(name, math.nan) for row in rows], label=name)
    for name in ("accuracy", "f1"):
        right.plot(epochs, [row[name] for row in rows], label=name)
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.legend()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def tell(folder: Path, rows: Sequence[Mapping[str, float]], test: Mapping[str, float], steps: int) -> None:
    """Draw, print and write what came of a run."""
    draw(rows, folder / "curves.png")
    print({name: round(value, 4) for name, value in test.items()})
    result = {"steps": steps, "epochs": len(rows), "test": dict(test)}
    (folder / "result.json").write_text(json.dumps(result))


def data(*names: str) -> Path:
    return Path(os.environ["PEGBOARD_DATA"]).joinpath(*names)


def digits(kept: Path) -> Splits:
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    bunch = load_digits()
    x, y = torch.from_numpy(bunch.data).float() / 16, torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    train, val, test = order.split([len(y) - 629, 270, 359])
    return Splits(*((x[part], y[part]) for part in (train, val, test)))


def mnist(kept: Path) -> Splits:
    """The pictures are unpacked once, and kept as tensors."""
    file = kept / "mnist.pt"
    if file.exists():
        xs, ys, test_x, test_y = torch.load(file)
    else:
        (xs, ys), (test_x, test_y) = unpacked("train"), unpacked("test")
        kept.mkdir(parents=True, exist_ok=True)
        torch.save((xs, ys, test_x, test_y), file)
    order = torch.randperm(len(ys), generator=torch.Generator().manual_seed(0))
    train, val = order[6000:], order[:6000]
    xs, test_x = xs.float().flatten(1) / 255, test_x.float().flatten(1) / 255
    return Splits((xs[train], ys[train]), (xs[val], ys[val]), (test_x, test_y))


def unpacked(split: str) -> Pair:
    import io

    import numpy as np
    import pyarrow.parquet as pq  # type: ignore[import-untyped]
    from PIL import Image

    table = pq.read_table(data("hub", "ylecun", "mnist", "data", f"{split}-00000-of-00001.parquet"))
    pictures = [
        np.asarray(Image.open(io.BytesIO(cell["bytes"]))) for cell in table.column("image").to_pylist()
    ]
    return torch.from_numpy(np.stack(pictures)), torch.tensor(table.column("label").to_pylist())


def cora(kept: Path) -> Splits:
    """PyG's own reader, which keeps what it made of the files."""
    import shutil

    from torch_geometric.datasets import Planetoid  # type: ignore[import-untyped]
    from torch_geometric.transforms import NormalizeFeatures  # type: ignore[import-untyped]

    if not (raw := kept / "Cora" / "raw").exists():
        shutil.copytree(data("planetoid", "Cora", "raw"), raw)
    graph = Planetoid(str(kept), "Cora", transform=NormalizeFeatures())[0]
    parts = [mask.nonzero().squeeze(1) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    return Splits(*((nodes, graph.y[nodes]) for nodes in parts), extra=(graph.x, graph.edge_index))


def shakespeare(kept: Path) -> Splits:
    """Pieces of 128 characters, and for each place the character that follows."""
    import pyarrow.parquet as pq

    folder = data("hub", "karpathy", "tiny_shakespeare", "data")
    texts = [
        "".join(pq.read_table(folder / f"{split}-00000-of-00001.parquet").column("text").to_pylist())
        for split in ("train", "validation", "test")
    ]
    number = {letter: i for i, letter in enumerate(sorted(set(texts[0])))}

    def pieces(text: str) -> Pair:
        codes = torch.tensor([number.get(letter, 0) for letter in text])
        count = (len(codes) - 1) // 128
        return codes[: count * 128].view(-1, 128), codes[1 : count * 128 + 1].view(-1, 128)

    return Splits(*map(pieces, texts), extra=len(number))


def tricked(_: Splits) -> nn.Module:
    """The network of configs/quickstart.yaml."""

    def hidden(inputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2)]

    return nn.Sequential(*hidden(64), *hidden(256), nn.Linear(256, 10))


def mlp(_: Splits) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(784, 256), nn.ReLU()), *(nn.Linear(256, 256), nn.ReLU()), nn.Linear(256, 10)
    )


def gcn(splits: Splits) -> nn.Module:
    from torch_geometric.nn import GCNConv  # type: ignore[import-untyped]

    class Gcn(nn.Module):
        """Two convolutions; it is asked about nodes."""

        def __init__(self) -> None:
            super().__init__()
            x, edges = splits.extra
            self.register_buffer("x", x, persistent=False)
            self.register_buffer("edges", edges, persistent=False)
            self.first = GCNConv(x.shape[1], 16, cached=True)
            self.second = GCNConv(16, 7, cached=True)

        def forward(self, nodes: Tensor) -> Tensor:
            drop = partial(functional.dropout, p=0.5, training=self.training)
            hidden = self.first(drop(self.x), self.edges).relu()
            found: Tensor = self.second(drop(hidden), self.edges)[nodes]
            return found

    return Gcn()


def decoder(splits: Splits) -> nn.Module:
    from networks import transformer

    return transformer(splits.extra, 128, 128, 4, 4)


def adam(lr: float, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr, fused=True)


def adamw(lr: float, decay: float, model: nn.Module) -> torch.optim.Optimizer:
    """Decay of matrices alone."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr, fused=True)


def adam_of_gcn(model: Any) -> torch.optim.Optimizer:
    groups = [
        {"params": list(model.first.parameters()), "weight_decay": 5e-4},
        {"params": list(model.second.parameters())},
    ]
    return torch.optim.Adam(groups, lr=0.01, fused=True)


ZOO = "zoo/src/pegboard_zoo/recipes"
TASKS = {
    "quickstart": Task(
        *("configs/quickstart.yaml", (QUIET,), digits, tricked, partial(adamw, 3e-3, 0.01), 64, 30, 0.93),
        warmup=20,
        smoothing=0.05,
        monitor="loss",
    ),
    "mnist": Task(
        *(f"{ZOO}/mnist/mlp/recipe.yaml", ("trainer.epochs=3", QUIET), mnist, mlp, partial(adam, 1e-3)),
        *(128, 3, 0.95),
        warmup=400,
        needs="hub/ylecun/mnist",
    ),
    "cora": Task(
        *(f"{ZOO}/cora/gcn/recipe.yaml", (QUIET,), cora, gcn, adam_of_gcn, None, 200, 0.76),
        needs="planetoid/Cora",
    ),
    "shakespeare": Task(
        "configs/shakespeare.yaml",
        ("trainer.steps=500", "trainer.epochs=null", "trainer.monitor=val/loss", "regularizers.dropout=null",
         "regularizers.clip=null", "trainer.threads=1", QUIET),
        *(shakespeare, decoder, partial(adamw, 1e-3, 0.1), 32, 3, 0.3),
        steps=500,
        warmup=100,
        monitor="loss",
        needs="hub/karpathy/tiny_shakespeare",
    ),
}  # fmt: skip
