"""The private names of torch that compiling needs: a compiled run ends well without each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.engine import torch_private as core
from pegboard.engine.torch_private import Private
from pegboard.testing.runs import lean
from pegboard_compile import torch_private
from safetensors.torch import load_file

LESS = {name.path for name in (*torch_private.STEPS, torch_private.KERNELS, *torch_private.MODEL)}
QUICK = torch_private.STEPS[0]  # the one that every change is tried without
CONFIG: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "iris", "batch_size": 16},
    "model": {"name": "mlp", "hidden": [8]},
    "optimizer": {"name": "adamw", "lr": 0.01},
    "regularizers": {"weight_decay": {"value": 0.1}, "clip": {"bound": 1.0}},
    "trainer": {"steps": 6, "accumulate": 2, "device": "cpu", "log_every": 1},
}


def outcome(folder: Path, quiet: bool = True, **trainer: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """Weights of a short run, and what came of compiling it."""
    run = pegboard.train({**CONFIG, "trainer": CONFIG["trainer"] | trainer}, root=folder, quiet=quiet)
    weights = load_file(run.folder / "checkpoints" / "last" / "model.safetensors")
    return weights, run.summary.get("compiled")


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return outcome(tmp_path_factory.mktemp("eager"))[0]


@pytest.mark.parametrize("name", torch_private.NAMES, ids=lambda name: name.path)
def test_every_name_is_there_in_the_torch_that_is_tested(name: Private) -> None:
    assert core.find(name.path) is not None
    assert core.gone([name]) == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=name.path, marks=() if name is QUICK else pytest.mark.sweep)
        for name in torch_private.NAMES
    ],
)
def test_a_compiled_run_without_a_name_ends_where_an_eager_one_does(
    name: Private,
    eager: dict[str, torch.Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Steps are traced whole and linked as graphs, and left uncompiled: a second instead of ten.
    torch.compiler.reset()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **options: graph)
    find = core.find
    monkeypatch.setattr(core, "find", lambda path: None if path == name.path else find(path))
    level = "model" if name in torch_private.MODEL else "step"
    with lean():
        weights, compilation = outcome(tmp_path, quiet=False, compile=level)
    assert weights.keys() == eager.keys()
    assert all(torch.allclose(value, eager[key], atol=1e-5) for key, value in weights.items())
    assert compilation["level"] == (
        "step" if name.path not in LESS else "off" if level == "model" else "model"
    )
    captured = capsys.readouterr()
    said = " ".join((captured.out + captured.err).split())
    assert f"has no {name.path}: {name.without}" in said
