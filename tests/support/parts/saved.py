"""A data set of numbers that a test saved in a file, for `plugins: {local: [saved.__file__]}`.

As `points`, for more of them than a config should hold: all are the training split, and the test split too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard import Context, Dataset, DataSpec, Splits, Vector, hookimpl

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Saved:
    """Numbers in a file of torch, a row for each sample, without targets."""

    path: str  # the file


def build(config: Saved, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    x = torch.load(config.path)
    whole = Resident([x])
    return Splits(spec=DataSpec((Vector(x.shape[1]),)), train=whole, test=whole)


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [Dataset("saved", Saved, build)]


def learned(
    root: Path,
    x: Tensor,
    steps: int,
    model: dict[str, Any],
    lr: float = 0.01,
    seed: int = 0,
    objective: dict[str, Any] | None = None,
) -> nn.Module:
    """What a run on whole batches of `x` ends with, by Adam at a rate that falls to zero."""
    import pegboard
    import torch
    from pegboard.testing.runs import lean

    root.mkdir(parents=True, exist_ok=True)
    torch.save(x, root / "x.pt")
    config = {
        "seed": seed,
        "data": {"name": "saved", "path": str(root / "x.pt"), "batch_size": "all"},
        "model": model,
        "optimizer": {"name": "adam", "lr": lr, "schedule": "linear"},
        "trainer": {"epochs": steps, "eval_every": steps, "device": "cpu", "threads": 1, "diagnose": False},
        "plugins": {"local": [__file__]},
        **({} if objective is None else {"objective": objective}),
    }
    with lean():
        run = pegboard.train(config, root=root, quiet=True)
    return pegboard.load(run, which="last")
