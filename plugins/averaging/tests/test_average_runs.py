"""Averages in runs: the old field of the trainer, resume, players, graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pegboard
import points
import pytest
import torch
import yaml
from pegboard.cli import main
from pegboard.config.check import ConfigError, check
from pegboard.engine.loop import Loop
from pegboard.testing.runs import lean
from pegboard_averaging.functional import ema
from safetensors.torch import load_file
from torch import Tensor


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


def weights(folder: Path, which: str = "last") -> dict[str, Tensor]:
    return load_file(folder / "checkpoints" / which / "model.safetensors")


def bits(folder: Path) -> bytes:
    return (folder / "checkpoints" / "last" / "model.safetensors").read_bytes()


def test_the_average_is_that_of_all_the_weights_on_the_way(tmp_path: Path) -> None:
    every = {"save_every": 1, "keep": 13}
    plain = points.run(config(trainer=every), tmp_path)
    expected = list(weights(plain.folder, "step-00000000").values())
    for step in range(1, 13):
        ema(expected, list(weights(plain.folder, f"step-{step:08d}").values()), 0.8)
    averaged = points.run(config(regularizers={"ema": {"decay": 0.8}}), tmp_path)
    for ours, theirs in zip(weights(averaged.folder).values(), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_the_old_field_trains_to_the_same_bits(tmp_path: Path) -> None:
    new = points.run(config(regularizers={"ema": {"decay": 0.8}}), tmp_path)
    with pytest.warns(FutureWarning, match="write regularizers: {ema: {decay: 0.8}}"):
        old = points.run(config(trainer={"ema": 0.8}), tmp_path)
    assert bits(old.folder) == bits(new.folder)
    assert bits(old.folder) != bits(points.run(config(), tmp_path).folder)
    saved = yaml.safe_load((old.folder / "config.yaml").read_text())
    assert saved["regularizers"]["ema"]["decay"] == 0.8 and "ema" not in saved["trainer"]


def test_a_command_says_in_one_line_where_the_old_field_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump(config(trainer={"ema": 0.8})))
    assert main(["explain", str(file)]) == 0
    (line,) = (text for text in capsys.readouterr().err.splitlines() if text)
    assert line.startswith(f"warning: {file}:") and "write regularizers: {ema:" in line


def test_a_run_that_was_begun_with_the_old_field_goes_on_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tricks = {"ema": {"decay": 0.8}}
    whole = points.run(config(regularizers=tricks), tmp_path)
    half = points.run(config(regularizers=tricks, trainer={"steps": 6}), tmp_path)
    path = half.folder / "config.yaml"  # as a run of 0.2 left it, with nothing of the trick in its state
    saved = yaml.safe_load(path.read_text())
    saved["trainer"] |= {"ema": 0.8, "steps": 12}
    del saved["regularizers"]["ema"]
    path.write_text(yaml.safe_dump(saved))
    load = Loop.load_state_dict

    def load_old(loop: Loop, state: dict[str, Any]) -> None:
        assert state["tricks"].pop("ema") == {} and state.pop("eval_weights") == {} and state["trained"]
        load(loop, state)

    monkeypatch.setattr(Loop, "load_state_dict", load_old)
    with lean():
        pegboard.resume(half.folder, quiet=True, local=[points.__file__])
    assert bits(half.folder) == bits(whole.folder)


def test_what_is_evaluated_may_be_what_is_trained(tmp_path: Path) -> None:
    plain = points.run(config(), tmp_path)
    idle = points.run(config(regularizers={"ema": {"decay": 0.8, "evaluate": "trained"}}), tmp_path)
    averaged = points.run(config(regularizers={"ema": {"decay": 0.8}}), tmp_path)
    assert bits(idle.folder) == bits(plain.folder) and idle.history == plain.history
    state = torch.load(idle.folder / "checkpoints" / "last" / "state.pt", weights_only=True)
    for name, kept in weights(averaged.folder).items():
        assert torch.equal(state["eval_weights"][name], kept)


def test_a_player_has_averages_of_its_own_weights(tmp_path: Path) -> None:
    def game(**tricks: Any) -> pegboard.Run:
        given = {
            "seed": 1,
            "data": {"name": "ring", "samples": 160, "noise": 0.1, "batch_size": 16},
            "model": {"name": "gan", "latent": 2, "hidden": [8]},
            "objective": {"name": "adversarial", "steps": 2},
            "optimizer": {"name": "adam", "lr": 1e-3},
            "regularizers": tricks,
            "trainer": {"steps": 6, "device": "cpu", "diagnose": False},
        }
        return pegboard.train(given, root=tmp_path, quiet=True)

    with lean():
        plain, both, one = (
            weights(run.folder)
            for run in (
                game(),
                game(ema={"decay": 0.8}),
                game(ema={"decay": 0.8, "players": ["generator"]}),
            )
        )
    for name, w in one.items():
        assert torch.equal(w, (both if "generator" in name else plain)[name])
        assert not torch.equal(both[name], plain[name])


def test_two_averages_of_one_player_are_refused() -> None:
    with pytest.raises(ConfigError, match="'ema' and 'slow' both eval_weights as 'average'"):
        check(config(regularizers={"ema": {}, "slow": {"name": "ema", "decay": 0.99}}))


@pytest.mark.parametrize("warmup", [False, True])
def test_an_average_in_graphs_is_that_of_steps(
    warmup: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **options: graph)
    torch.compiler.reset()
    ends = []
    for compiled in ("off", "step"):
        given = config(regularizers={"ema": {"decay": 0.8, "warmup": warmup}}, trainer={"compile": compiled})
        with lean():
            run = points.run(given, tmp_path / compiled)
        ends.append(run)
    made = ends[1].summary["compiled"]
    assert (made["level"], made["why"], made["recompiled"]) == ("step", "", [])
    for name, w in weights(ends[0].folder).items():
        torch.testing.assert_close(weights(ends[1].folder)[name], w, rtol=1e-5, atol=1e-5)
