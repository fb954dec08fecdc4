"""Runs a program until its first training step begins, and says how long that took; used by start.py.

    python benchmarks/first_step.py REPORT BEGAN pegboard CONFIG RUNS
    python benchmarks/first_step.py REPORT BEGAN same TORCH,NUMPY,...
    python benchmarks/first_step.py REPORT BEGAN usual

BEGAN is when the process was started, by the clock of the machine. A step begins when the first linear
layer sees its first batch; a step on the meta device, with which a plan is explained, does not count. The
layer is watched from the moment torch has defined it, which costs nothing that could be measured.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

LAYER = "torch.nn.modules.linear"


class Watch:
    """Wraps the forward pass of linear layers as soon as they are defined."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if name != LAYER:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None
        define = spec.loader.exec_module

        def defined(module: ModuleType) -> None:
            define(module)
            forward = module.Linear.forward

            def watched(layer: Any, x: Any) -> Any:
                if x.device.type != "meta":
                    report()
                return forward(layer, x)

            module.Linear.forward = watched

        spec.loader.exec_module = defined  # type: ignore[method-assign]
        return spec


def report() -> None:
    """Write what it took until now, and end the process."""
    wall, used = time.time() - float(sys.argv[2]), os.times()
    outside = {name.partition(".")[0] for name, module in sys.modules.items() if installed(module)}
    taken = {
        "wall": wall,
        "cpu": used.user + used.system + used.children_user + used.children_system,
        "libraries": sorted(name for name in outside if not name.startswith(("pegboard", "_", "sitecustom"))),
        "compiler": hasattr(sys.modules.get("torch._dynamo"), "__file__"),
    }
    Path(sys.argv[1]).write_text(json.dumps(taken))
    os._exit(0)


def installed(module: ModuleType) -> bool:
    return "site-packages" in str(getattr(module, "__file__", None) or "")


def train(x: Any, y: Any) -> None:
    """The network of configs/quickstart.yaml and its loop, as a person writes them."""
    import torch
    from torch import nn
    from torch.nn import functional

    def hidden(inputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2)]

    model = nn.Sequential(nn.Flatten(), *hidden(64), *hidden(256), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01, fused=True)
    for index in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x[index]), y[index], label_smoothing=0.05)
        loss.backward()
        optimizer.step()


def same_libraries(names: Sequence[str]) -> None:
    """A script that imports what Pegboard had imported, and reads the same file."""
    for name in names:
        importlib.import_module(name)
    import numpy
    import torch

    sklearn = PathFinder.find_spec("sklearn")
    assert sklearn is not None and sklearn.origin is not None
    rows = torch.from_numpy(
        numpy.loadtxt(Path(sklearn.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    )
    train(rows[:, :-1].float() / 16, rows[:, -1].long())


def usual() -> None:
    """A script that loads the data and will measure it with the libraries most people take."""
    import torch
    from sklearn.datasets import load_digits
    from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

    measured = [MulticlassAccuracy(10), MulticlassF1Score(10)]
    assert measured
    bunch = load_digits()
    train(torch.from_numpy(bunch.data).float() / 16, torch.from_numpy(bunch.target).long())


def main() -> None:
    sys.meta_path.insert(0, Watch())  # type: ignore[arg-type]
    what, rest = sys.argv[3], sys.argv[4:]
    if what == "pegboard":
        from pegboard.cli import main

        sys.exit(main(["train", rest[0], "--root", rest[1]]))
    elif what == "same":
        same_libraries(rest[0].split(","))
    else:
        usual()


if __name__ == "__main__":
    main()
