"""Another set of weights that a trick keeps: for evaluation, in checkpoints, beside what is trained."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.config.check import ConfigError, check
from pegboard.inference.trained import Trained
from pegboard.store import checkpoint
from pegboard.testing.runs import cut_and_resumed, differences, lean, points, whole
from safetensors.torch import load_file
from torch import Tensor

Config = Callable[..., dict[str, Any]]
STEPS = 6
TOY = str(Path(__file__).parent.parent / "toy.py")


def run(given: dict[str, Any], root: Path) -> pegboard.Run:
    return pegboard.train(given, root=root, quiet=True)


def saved(run: pegboard.Run, step: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and state of a checkpoint."""
    place = run.folder / "checkpoints" / ("last" if step is None else f"step-{step:08d}")
    return load_file(place / checkpoint.WEIGHTS), checkpoint.read_state(place)


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_they_are_what_is_measured_and_saved_and_training_does_not_see_them(
    config: Config, root: Path
) -> None:
    trainer = {"epochs": None, "steps": STEPS, "save_every": 1, "keep": STEPS + 1}
    plain = run(config(trainer=trainer), root)
    given = config(regularizers={"halfway": {}}, trainer=trainer)
    kept = run(given, root)
    expected = dict(saved(plain, 0)[0])
    for step in range(1, STEPS + 1):
        trained = saved(plain, step)[0]
        expected = {name: own.lerp(trained[name], 0.5) for name, own in expected.items()}
        weights, state = saved(kept, step)
        assert same(weights, expected) and same(state["trained"], trained)
    assert not same(expected, saved(plain)[0])
    measured = Trained(kept.folder, which="last", device="cpu", local=[TOY]).evaluate("val")
    one, two = ([row for row in done.history if "val/loss" in row][-1] for done in (plain, kept))
    assert measured["loss"] == pytest.approx(two["val/loss"], rel=1e-5)
    assert one["val/loss"] != two["val/loss"] and one["train/loss"] == two["train/loss"]


def test_they_may_be_kept_without_being_used(config: Config, root: Path) -> None:
    plain, used, idle = (
        run(config(regularizers=tricks), root)
        for tricks in ({}, {"halfway": {}}, {"halfway": {"use": False}})
    )
    assert same(saved(idle)[0], saved(plain)[0]) and idle.history == plain.history
    weights, state = saved(used)
    assert same(saved(idle)[1]["eval_weights"], weights)
    assert state["eval_weights"] == {} and same(state["trained"], saved(plain)[0])


@pytest.mark.parametrize("use", [True, False])
def test_a_run_that_keeps_them_resumes_exactly(use: bool, config: Config, root: Path) -> None:
    given = config(
        objective={"name": "guess", "players": 2}, regularizers={"halfway": {"use": use}},
        trainer={"epochs": 3, "save_every": 2},
    )  # fmt: skip
    with lean():
        reference, events = whole(given, root / "whole")
        for cut in points(events, 3):
            assert not differences(reference, cut_and_resumed(given, root / str(cut), cut))


@pytest.mark.parametrize("use", [True, False])
def test_whether_they_are_used_may_change_while_a_run_rests(use: bool, config: Config, root: Path) -> None:
    def given(use: bool, epochs: int) -> dict[str, Any]:
        return config(regularizers={"halfway": {"use": use}}, trainer={"epochs": epochs})

    whole = saved(run(given(use, 2), root))
    half = run(given(not use, 1), root)
    file = half.folder / "config.yaml"
    text = file.read_text()
    before, after = (f"use: {str(word).lower()}" for word in (not use, use))
    assert before in text and "epochs: 1" in text
    file.write_text(text.replace(before, after).replace("epochs: 1", "epochs: 2"))
    weights, state = saved(pegboard.resume(half.folder, quiet=True, local=[TOY]))
    assert same(weights, whole[0])
    for name in ("trained", "eval_weights"):
        assert same(state[name], whole[1][name])


def test_after_an_epoch_all_training_samples_are_shown_once(config: Config, root: Path) -> None:
    done = run(config(regularizers={"halfway": {}}, trainer={"epochs": 3}), root)
    count = len(Trained(done.folder, local=[TOY]).source("train"))
    assert saved(done)[1]["tricks"]["halfway"] == {"seen": 3 * count}
    short = run(config(regularizers={"halfway": {}}, trainer={"epochs": None, "steps": 1}), root)
    assert saved(short)[1]["tricks"]["halfway"] == {"seen": 0}  # no epoch was made


def test_a_player_has_one_such_set_at_most(config: Config) -> None:
    twice = {"halfway": {}, "other": {"name": "halfway"}}
    with pytest.raises(ConfigError, match="both eval_weights as 'average'") as raised:
        check(config(regularizers=twice))
    (mistake,) = raised.value.mistakes
    assert mistake.hint == "leave one out: halfway: null or other: null"
    apart = {"halfway": {"players": ["one"]}, "other": {"name": "halfway", "players": ["two"]}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(config(objective={"name": "guess", "players": 2}, regularizers=apart))
