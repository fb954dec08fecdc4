"""Clipping in runs: the old fields of the trainer, players, and a run of before that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pegboard
import points
import pytest
import torch
import yaml
from pegboard.cli import main
from pegboard.engine.loop import Loop
from pegboard.testing.runs import lean
from pegboard_constraints.functional import clip_norm
from torch import nn


def config(**more: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(24, 3)
    given = points.given(
        x, values=x.sum(1, keepdim=True) * 5, model={"name": "mlp", "hidden": [8]},
        optimizer={"name": "sgd", "lr": 0.1},
    )  # fmt: skip
    given["data"] |= {"batch_size": 8}
    given["trainer"] = {"steps": 12, "device": "cpu", "diagnose": False, **more.pop("trainer", {})}
    return given | more


def weights(folder: Path) -> bytes:
    return (folder / "checkpoints" / "last" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("by", ["norm", "value"])
def test_the_old_fields_train_to_the_same_bits(by: str, tmp_path: Path) -> None:
    new = points.run(config(regularizers={"clip": {"bound": 0.05, "by": by}}), tmp_path)
    with pytest.warns(FutureWarning, match="write regularizers: {clip: {bound: 0.05"):
        old = points.run(config(trainer={"clip": 0.05, "clip_by": by}), tmp_path)
    assert weights(old.folder) == weights(new.folder)
    assert weights(old.folder) != weights(points.run(config(), tmp_path).folder)
    saved = yaml.safe_load((old.folder / "config.yaml").read_text())
    assert saved["regularizers"]["clip"] == {"bound": 0.05, "by": by} and "clip" not in saved["trainer"]


def test_a_command_says_in_one_line_where_an_old_field_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump(config(trainer={"clip": 0.05})))
    for words in (["explain", str(file)], ["train", str(file), "--quiet", "--root", str(tmp_path)]):
        assert main(words) == 0
        (line,) = (text for text in capsys.readouterr().err.splitlines() if text)
        assert line.startswith(f"warning: {file}:") and "write regularizers: {clip:" in line


def test_a_run_that_was_begun_with_the_old_fields_goes_on_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(regularizers={"clip": {"bound": 0.05}})
    whole = points.run(given, tmp_path)
    half = points.run(config(regularizers={"clip": {"bound": 0.05}}, trainer={"steps": 6}), tmp_path)
    path = half.folder / "config.yaml"  # as a run of 0.2 left it, with nothing of the trick in its state
    saved = yaml.safe_load(path.read_text())
    saved["trainer"] |= {"clip": 0.05, "clip_by": "norm", "steps": 12}
    del saved["regularizers"]["clip"]
    path.write_text(yaml.safe_dump(saved))
    load, states = Loop.load_state_dict, list[dict[str, Any]]()

    def load_old(loop: Loop, state: dict[str, Any]) -> None:
        assert state["tricks"].pop("clip") == {}
        states.append(state)
        load(loop, state)

    monkeypatch.setattr(Loop, "load_state_dict", load_old)
    with lean():
        pegboard.resume(half.folder, quiet=True, local=[points.__file__])
    assert len(states) == 1
    assert weights(half.folder) == weights(whole.folder)


def test_an_update_is_the_clipped_gradient_times_the_rate(tmp_path: Path) -> None:
    given = config(regularizers={"clip": {"bound": 0.05}}, trainer={"steps": 1})
    given["data"] |= {"batch_size": 24, "shuffle": False}
    plan = pegboard.plan(given)
    from pegboard.planning.plan import assemble

    start = [p.detach().clone() for p in assemble(plan, "cpu").model.parameters()]
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        for p, value in zip(model.parameters(), start, strict=True):
            p.copy_(value)
    x = torch.tensor(given["data"]["x"])
    loss = nn.functional.mse_loss(model(x), torch.tensor(given["data"]["values"]))
    grads = clip_norm(torch.autograd.grad(loss, list(model.parameters())), 0.05)
    ends = pegboard.load(points.run(given, tmp_path), which="last").parameters()
    for p, value, g in zip(ends, start, grads, strict=True):
        assert g is not None
        torch.testing.assert_close(p.detach(), value - 0.1 * g, rtol=0, atol=1e-6)
