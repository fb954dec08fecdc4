"""Configs that are right in all the ways they may be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pegboard.config.dump import to_yaml

RIGHT = [
    ("", ""),
    ("seed: 0\n", ""),
    ("seed: 0", "# nothing but a comment\nseed: 0"),
    ("seed: 0", "name: run-1.b_c"),
    ("seed: 0", "seed: 3.0"),
    ("seed: 0", "objective: margin"),
    ("seed: 0", "objective: {name: entropy}"),
    ("seed: 0", "objective: null"),
    ("seed: 0", "trackers: {board: {project: demo}}"),
    ("seed: 0", "trackers: {board: true}"),
    ("seed: 0", "trackers:"),
    ("seed: 0", "plugins: {}"),
    ("seed: 0", "extends: []"),
    ("name: spots", "name: pegboard-fakes:spots"),
    ("name: spots", "name: fakes:spots"),
    ("name: spots, batch_size: 64", "name: pictures"),
    ("name: spots, batch_size: 64", "name: prices"),
    ("name: spots, batch_size: 64", "name: table, path: x.csv, columns: {a: input, b: target}"),
    ("batch_size: 64", "shuffle: no, drop_last: on, eval_batch_size: null"),
    ("[32, 16]", "[]"),
    ("[32, 16]", "[32.0, 1e2]"),
    ("[32, 16]", "\n  - 32\n  - 16"),
    ("  activation: relu", "  bias: false"),
    ("  activation: relu", "  weights: runs/a/latest\n  infer_pegs: true"),
    ("lr: 1e-3", "lr: 1"),
    ("lr: 1e-3", "lr: 1E-3"),
    ("lr: 1e-3", "lr: .5"),
    ("lr: 1e-3", "lr: ${trainer.epochs}"),
    ("lr: 1e-3", 'lr: "${trainer.epochs}"'),
    ("lr: 1e-3", "lr: 1e-3, schedule: wave"),
    ("lr: 1e-3", "lr: 1e-3, schedule: null"),
    ("lr: 1e-3", "lr: 1e-3, schedule: {name: wave, warmup: 3}"),
    ("lr: 1e-3", "lr: 1e-3, players: {critic: {lr: 0.1}, other: {name: adaptive, betas: [0, 0.5]}}"),
    ("{p: 0.2}", "{}"),
    ("{p: 0.2}", "true"),
    ("{p: 0.2}", "yes"),
    ("{p: 0.2}", "off"),
    ("{p: 0.2}", "null"),
    ("{p: 0.2}", "false"),
    ("{p: 0.2}", "{p: 0, players: [critic]}"),
    ("  drop: {p: 0.2}", "  drop: {}\n  norm: {}\n  soften: {amount: 0.5}\n  teach: {teacher: x}"),
    ("  drop: {p: 0.2}", "  first: {name: drop, sites: [input]}\n  second: {name: drop}"),
    ("  drop: {p: 0.2}", ""),
    ("{epochs: 2}", "{steps: 1e4, device: 'cuda:1', precision: bf16, monitor: val/accuracy, mode: max}"),
    ("{epochs: 2}", ""),
    ("{epochs: 2}", "{epochs: &n 2, steps: *n}"),
    ("{epochs: 2}", "{<<: {epochs: 3}, steps: 4}"),
]


@pytest.mark.parametrize(("old", "new"), RIGHT)
def test_a_right_config_is_accepted_and_repeats_itself(
    accept: Callable[..., Any], save_run: Callable[[str], None], base: str, old: str, new: str
) -> None:
    assert old in base
    save_run("runs/a/latest")
    settings = accept(base.replace(old, new, 1))
    again = accept(to_yaml(settings.plain))
    assert again.plain == settings.plain
    assert (again.data, again.model, again.optimizer) == (settings.data, settings.model, settings.optimizer)
    assert again.regularizers == settings.regularizers
