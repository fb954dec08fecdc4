"""A run does what a hand-written loop does, repeats, resumes, and tells the truth about its end."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from calls import count_calls
from pegboard import PegboardError
from pegboard.base.random_keys import key_seed
from pegboard.config.check import check
from pegboard.data import epoch_order
from pegboard.engine import loop as loops
from pegboard.planning.plan import assemble, make_plan
from sweeps import first_of_each
from torch.nn import functional

Config = Callable[..., dict[str, Any]]


def weights(run: pegboard.Run, which: str = "last") -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in pegboard.load(run, which=which).state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def by_hand(config: dict[str, Any], epochs: int, batch: int) -> dict[str, torch.Tensor]:
    """The loop a person writes, on the same data, initial weights and order."""
    plan = make_plan(check(config), read=True)
    model, splits = assemble(plan, "cpu").model, plan.splits
    assert splits is not None
    settings = config["optimizer"]
    optimizer = torch.optim.SGD(
        model.parameters(), settings["lr"], settings.get("momentum", 0), foreach=False
    )
    x, y = splits.train.inputs[0], splits.train.target  # type: ignore[attr-defined]
    torch.manual_seed(key_seed(config["seed"], "train"))
    for epoch in range(epochs):
        for index in epoch_order(len(y), config["seed"], epoch, True).split(batch):
            optimizer.zero_grad()
            functional.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
    return model.state_dict()


def test_a_run_equals_the_hand_written_loop_bit_for_bit(config: Config, root: Path) -> None:
    given = config(optimizer={"name": "plain", "lr": 0.1, "momentum": 0.9})
    assert same(weights(pegboard.train(given, root=root, quiet=True)), by_hand(given, 3, 16))


def test_the_same_config_twice_gives_the_same_bytes(config: Config, root: Path) -> None:
    given = config(regularizers={"drop": {"p": 0.3}})
    one, two = (pegboard.train(given, root=root, quiet=True) for _ in range(2))
    files = [(r.folder / "checkpoints" / "last" / "model.safetensors").read_bytes() for r in (one, two)]
    assert files[0] == files[1]
    assert one.history == two.history
    other = pegboard.train({**given, "seed": 4}, root=root, quiet=True)
    assert not same(weights(one), weights(other))


def test_the_config_in_the_run_folder_alone_repeats_the_run(config: Config, root: Path) -> None:
    one = pegboard.train(config(), "trainer.epochs=2", "model.width=5", root=root, quiet=True)
    two = pegboard.train(one.folder / "config.yaml", root=root, quiet=True)
    assert same(weights(one), weights(two))
    assert one.history == two.history
    assert yaml.safe_load((one.folder / "config.yaml").read_text())["model"]["width"] == 5


def test_the_run_folder_records_what_a_person_needs(config: Config, root: Path) -> None:
    run = pegboard.train(config(), root=root, quiet=True)
    names = {p.name for p in run.folder.iterdir()}
    assert names >= {"config.yaml", "plan.txt", "environment.json", "metrics.jsonl", "checkpoints", "figures"}
    assert (run.folder.parent / "latest").resolve() == run.folder.resolve()
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["torch"] == torch.__version__
    assert environment["parts"]["model"].endswith("toy.py:net")
    assert run.status == "finished"
    assert run.figures.keys() == {f"{s}/{n}" for s in ("train", "val", "test") for n in ("loss", "right")}
    assert run.figures["test/right"] > 0.8
    assert (run.folder / "figures" / "curves.png").stat().st_size > 1000
    assert "Run(" in repr(run)
    assert not run.model.training


def test_training_leaves_the_global_random_stream_and_switches_alone(config: Config, root: Path) -> None:
    before, deterministic = torch.get_rng_state(), torch.are_deterministic_algorithms_enabled()
    pegboard.train(config(trainer={"epochs": 1, "threads": 1}), root=root, quiet=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.are_deterministic_algorithms_enabled() == deterministic


def test_accumulated_batches_equal_one_large_batch(config: Config, root: Path) -> None:
    data = {"name": "points", "count": 56, "batch_size": 8}
    small = config(data=data, trainer={"epochs": 2, "accumulate": 4, "device": "cpu"})
    large = config(data=data | {"batch_size": 32}, trainer={"epochs": 2, "device": "cpu"})
    a, b = (weights(pegboard.train(c, root=root, quiet=True)) for c in (small, large))
    assert all(torch.allclose(a[k], b[k], atol=1e-6) for k in a)


def test_steps_end_a_run_inside_an_epoch(config: Config, root: Path) -> None:
    run = pegboard.train(config(trainer={"steps": 6, "device": "cpu"}), root=root, quiet=True)
    assert run.summary["steps"] == 6
    assert run.history[-1]["step"] == 6


def test_drop_last_leaves_the_small_batch_out(config: Config, root: Path) -> None:
    data = {"name": "points", "count": 40, "batch_size": 16, "drop_last": True}
    run = pegboard.train(config(data=data), root=root, quiet=True)
    assert run.summary["steps"] == 6
    with pytest.raises(PegboardError, match="drop_last leaves no batch"):
        pegboard.train(config(data=data | {"batch_size": 64}, trainer={"steps": 2}), root=root, quiet=True)


def test_rows_are_logged_between_epochs_and_losses_are_means(config: Config, root: Path) -> None:
    trainer = {"epochs": 2, "log_every": 3, "device": "cpu"}
    run = pegboard.train(config(trainer=trainer), root=root, quiet=True)
    assert [row["step"] for row in run.history] == [3, 4, 6, 8, 8]
    fine = pegboard.train(config(trainer=trainer | {"log_every": 1}), root=root, quiet=True).history
    first = [row["train/loss"] for row in fine[:3]]
    assert run.history[0]["train/loss"] == pytest.approx(sum(first) / 3)


def test_many_steps_between_rows_are_summed_without_losing_any(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = {"epochs": 3, "log_every": 1000, "device": "cpu"}
    plain = pegboard.train(config(trainer=trainer), root=root, quiet=True).history
    monkeypatch.setattr(loops, "FLUSH", 2)
    for a, b in zip(
        plain, pegboard.train(config(trainer=trainer), root=root, quiet=True).history, strict=True
    ):
        assert a == pytest.approx(b)


def test_a_schedule_sets_the_rate_of_every_step(config: Config, root: Path) -> None:
    optimizer = {"name": "plain", "lr": 0.4, "schedule": {"name": "halve", "every": 4}}
    run = pegboard.train(config(optimizer=optimizer, trainer={"epochs": 3}), root=root, quiet=True)
    assert [row["lr"] for row in run.history if "lr" in row] == pytest.approx([0.4, 0.2, 0.1])


def test_an_optimizer_may_evaluate_the_loss_again(config: Config, root: Path) -> None:
    given = config(optimizer={"name": "again", "lr": 0.5}, data={"name": "points", "batch_size": 64})
    run = pegboard.train(given, root=root, quiet=True)
    assert run.history[-2]["train/loss"] < run.history[0]["train/loss"]
    assert "waits" in (run.folder / "plan.txt").read_text()


def test_players_train_in_turn_each_with_its_own_settings(config: Config, root: Path) -> None:
    given = config(
        objective={"name": "guess", "players": 2},
        optimizer={"name": "plain", "lr": 0.1, "players": {"second": {"lr": 1e-9}}},
    )
    plan = make_plan(check(given), read=True)
    start = assemble(plan, "cpu").model.state_dict()
    run = pegboard.train(given, root=root, quiet=True)
    end = weights(run)
    assert not torch.allclose(start["1.weight"], end["1.weight"])
    assert torch.allclose(start["5.weight"], end["5.weight"], atol=1e-6)
    assert {"train/first/loss", "train/second/loss"} <= run.history[0].keys()


@pytest.mark.sweep
def test_a_player_that_did_not_move_has_no_loss_in_the_row(config: Config, root: Path) -> None:
    given = config(objective={"name": "guess", "players": 2}, trainer={"steps": 2, "log_every": 1})
    first, second = pegboard.train(given, root=root, quiet=True).history[:2]
    assert "train/first/loss" in first and "train/second/loss" not in first
    assert second["train/second/loss"] > 0


def test_turns_give_each_player_its_steps() -> None:
    from types import SimpleNamespace as Thing

    from pegboard.engine.step import turns

    kits: Any = [Thing(player=Thing(steps=n)) for n in (3, 1)]
    assert turns(kits) == [[0], [0], [0, 1]]


def test_unknown_players_are_an_error(config: Config, root: Path) -> None:
    with pytest.raises(PegboardError, match=r"drop.players.0\n.*no player 'critic': the players are model"):
        pegboard.train(config(regularizers={"drop": {"players": ["critic"]}}), root=root, quiet=True)


def test_every_stage_of_a_trick_is_linked(config: Config, root: Path) -> None:
    run = pegboard.train(config(regularizers={"everything": {}}), root=root, quiet=True)
    state = torch.load(run.folder / "checkpoints" / "last" / "state.pt", weights_only=True)
    steps = run.summary["steps"]
    per_step = {"edit_batch", "edit_target", "edit_loss", "edit_grads", "after_step", "eval_weights"}
    calls = state["tricks"]["everything"]
    assert {calls[name] for name in per_step} == {steps}
    assert (calls["hang"], calls["edit_model"], calls["edit_groups"]) == (3, 1, 1)
    assert calls["after_eval"] == calls["after_epoch"] == 3


def test_decoupled_decay_shrinks_weights_by_the_current_rate(config: Config, root: Path) -> None:
    given = config(optimizer={"name": "plain", "lr": 0.5}, trainer={"steps": 1})
    plain = weights(pegboard.train(given, root=root, quiet=True))
    start = assemble(make_plan(check(given), read=True), "cpu").model.state_dict()
    decayed = weights(pegboard.train({**given, "regularizers": {"everything": {}}}, root=root, quiet=True))
    for key, first in start.items():  # that trick doubles the loss and decays by 0.1
        assert torch.allclose(decayed[key], first * (1 - 0.5 * 0.1) + 2 * (plain[key] - first), atol=1e-6)


def test_a_trick_can_end_the_run(config: Config, root: Path) -> None:
    given = config(regularizers={"patience": {"evaluations": 2}}, trainer={"epochs": 9})
    run = pegboard.train(given, root=root, quiet=True)
    assert (run.status, run.summary["steps"]) == ("stopped", 8)
    assert run.summary["why"] == "patience: patience ran out"


def test_a_trick_for_pegs_that_the_model_does_not_have_is_a_mistake(config: Config, root: Path) -> None:
    given = config(regularizers={"drop": {"sites": ["attention"]}})
    with pytest.raises(PegboardError, match="drop hangs on attention, where the model 'net' has no pegs"):
        check(given)
    assert check(config(regularizers={"drop": {"sites": ["attention", "input"]}}))


def test_a_trick_that_overrides_more_than_it_declares_is_an_error(config: Config, root: Path) -> None:
    with pytest.raises(PegboardError, match="'undeclared' .* overrides edit_model but its record"):
        pegboard.train(config(regularizers={"undeclared": {}}), root=root, quiet=True)


def test_tricks_hang_on_a_model_without_pegs(config: Config, root: Path) -> None:
    given = config(model={"name": "net", "pegs": False}, regularizers={"drop": {}})
    run = pegboard.train(given, root=root, quiet=True)
    assert "2.peg_in" in (run.folder / "plan.txt").read_text()
    before = sorted(root.rglob("*"))
    with pytest.raises(PegboardError, match="drop found nothing to act on: .*no site at all"):
        pegboard.train(given, "model.infer_pegs=false", root=root, quiet=True)
    assert sorted(root.rglob("*")) == before  # nothing half made


def test_data_without_held_out_splits_trains_and_keeps_the_lowest_loss(config: Config, root: Path) -> None:
    run = pegboard.train(config(data={"name": "points", "held_out": False}), root=root, quiet=True)
    assert run.summary["monitor"] == "train/loss"
    assert run.figures.keys() == {"train/loss", "train/right"}


def test_the_monitored_figure_can_be_chosen_and_must_exist(config: Config, root: Path) -> None:
    run = pegboard.train(config(), "trainer.monitor=val/loss", root=root, quiet=True)
    losses = {row["step"]: row["val/loss"] for row in run.history if "val/loss" in row}
    assert run.summary["best_step"] == min(losses, key=losses.__getitem__)
    run = pegboard.train(config(), "trainer.monitor=val/right", "trainer.mode=min", root=root, quiet=True)
    assert run.summary["best"] == min(row["val/right"] for row in run.history if "val/right" in row)
    with pytest.raises(PegboardError, match="did you mean 'val/right'"):
        pegboard.train(config(), "trainer.monitor=val/rigth", root=root, quiet=True)


def test_a_first_figure_that_is_nan_does_not_stay_the_best(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, count = loops.Loop.evaluate, itertools.count(1)

    def first_is_nan(self: Any, split: str) -> dict[str, float]:
        found = evaluate(self, split)
        return {name: math.nan if next(count) < 3 else value for name, value in found.items()}

    monkeypatch.setattr(loops.Loop, "evaluate", first_is_nan)
    run = pegboard.train(config(), root=root, quiet=True)
    values = {row["step"]: row["val/right"] for row in run.history if "val/right" in row}
    assert math.isnan(values[4])
    assert run.summary["best"] == max(values[8], values[12])


def test_players_without_held_out_data_are_judged_by_the_loss_of_the_first(
    config: Config, root: Path
) -> None:
    given = config(objective={"name": "guess", "players": 2}, data={"name": "points", "held_out": False})
    run = pegboard.train(given, root=root, quiet=True)
    assert run.summary["monitor"] == "train/first/loss"
    with pytest.raises(PegboardError, match="expected one of train/first/loss, train/second/loss"):
        pegboard.train(given, "trainer.monitor=train/loss", root=root, quiet=True)


@pytest.mark.parametrize("step", first_of_each([1, 5, 8]))
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    given = config(
        regularizers={"drop": {"p": 0.3}, "everything": {}},
        optimizer={"name": "plain", "lr": 0.1, "momentum": 0.9, "schedule": {"name": "halve"}},
        trainer={"epochs": 3, "log_every": 3, "device": "cpu"},
    )
    whole = pegboard.train(given, root=root, quiet=True)
    _interrupt_at(step, monkeypatch)
    with pytest.raises(loops.Interrupted, match=f"after step {step}, saved"):
        pegboard.train(given, root=root / "cut", quiet=True)
    monkeypatch.undo()
    (folder,) = (root / "cut" / "run").glob("2*")
    assert pegboard.Run(folder).status == "interrupted"
    run = pegboard.resume(folder, quiet=True)
    assert same(weights(run), weights(whole))
    assert run.history == whole.history
    states = [torch.load(r.folder / "checkpoints/last/state.pt", weights_only=True) for r in (run, whole)]
    assert states[0]["tricks"] == states[1]["tricks"]
    assert torch.equal(states[0]["rng"]["cpu"], states[1]["rng"]["cpu"])


def _interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the process a signal while it makes a step, as a scheduler would."""
    gather, count = pegboard.Resident.gather, itertools.count(1)

    def counted(self: Any, index: torch.Tensor) -> Any:
        if len(self) == 64 and next(count) == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return gather(self, index)

    monkeypatch.setattr(pegboard.Resident, "gather", counted)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _last(root: Path) -> Path:
    return max(root.glob("run/2*"))


def test_a_signal_in_the_last_measurement_leaves_a_run_that_resumes_to_the_same_end(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pegboard.train(config(), root=root / "whole", quiet=True)
    evaluate = loops.Loop.evaluate

    def asked_to_end(self: Any, split: str) -> dict[str, float]:
        if split == "test":
            os.kill(os.getpid(), signal.SIGINT)
        return evaluate(self, split)

    monkeypatch.setattr(loops.Loop, "evaluate", asked_to_end)
    with pytest.raises(
        loops.Interrupted, match=r"after step 12, saved; go on with: .* --local .*toy\.py"
    ) as end:
        pegboard.train(config(), root=root, quiet=True)
    monkeypatch.undo()
    assert end.value.signal == signal.SIGINT
    run = pegboard.Run(_last(root))
    assert run.status == "interrupted"
    resumed = pegboard.resume(run, quiet=True)
    assert (resumed.history, resumed.figures) == (whole.history, whole.figures)
    assert same(weights(resumed), weights(whole))


def test_what_is_saved_after_a_damaged_checkpoint_stays(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = {"epochs": 3, "device": "cpu", "keep": 1, "save_every": 3, "eval_every": 9}
    whole = pegboard.train(config(trainer=trainer), root=root / "whole", quiet=True)
    _interrupt_at(7, monkeypatch)
    monkeypatch.setattr("pegboard.store.checkpoint.prune", lambda *args: None)
    monkeypatch.setattr("pegboard.store.checkpoint.Saver._passed_over", lambda self: [])
    with pytest.raises(loops.Interrupted):
        pegboard.train(config(trainer=trainer), root=root, quiet=True)
    monkeypatch.undo()
    folder = _last(root)
    for name in ("step-00000006", "step-00000007"):
        _flip(folder / "checkpoints" / name / "state.pt")
    _interrupt_at(1, monkeypatch)
    with pytest.raises(loops.Interrupted, match="after step 4, saved"):
        pegboard.resume(folder, quiet=True)
    monkeypatch.undo()
    assert (folder / "checkpoints" / "last").resolve().name == "step-00000004"
    assert (folder / "checkpoints" / "last" / "manifest.json").is_file()
    assert same(weights(pegboard.resume(folder, quiet=True)), weights(whole))


@pytest.mark.parametrize(
    "damage", first_of_each([lambda best: _flip(best / "model.safetensors"), shutil.rmtree])
)
def test_a_damaged_best_checkpoint_is_named_and_never_measured(
    config: Config, root: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    run = pegboard.train(config(), "trainer.monitor=val/loss", "trainer.mode=max", root=root, quiet=True)
    best = (run.folder / "checkpoints" / "best").resolve()
    assert best.name != "step-00000012"
    figures = run.figures
    damage(best)
    again = pegboard.resume(run.folder)
    told = capsys.readouterr()
    assert "checkpoints/best" in told.err and "the last weights are measured instead" in told.err
    assert "last checkpoint, step 12" in told.out
    assert again.summary["best_step"] == 12
    rows = [row for row in again.history if "val/loss" in row]
    assert again.figures["val/loss"] == rows[-1]["val/loss"] != figures["val/loss"]


def test_a_config_that_was_changed_in_the_run_folder_is_told_of(
    config: Config, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pegboard.train(config(), root=root, quiet=True)
    pegboard.resume(run, quiet=True)
    assert capsys.readouterr().err == ""
    path = run.folder / "config.yaml"
    path.write_text(path.read_text().replace("epochs: 3", "epochs: 4"))
    assert pegboard.resume(run, quiet=True).summary["steps"] == 16
    assert "config.yaml was changed after the run began" in capsys.readouterr().err


def test_an_epoch_that_became_shorter_than_the_part_already_made_is_an_error(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt_at(3, monkeypatch)
    with pytest.raises(loops.Interrupted):
        pegboard.train(config(), root=root, quiet=True)
    path = _last(root) / "config.yaml"
    path.write_text(path.read_text().replace("batch_size: 16", "batch_size: 32"))
    with pytest.raises(PegboardError, match="after update 3 of an epoch, which now has 2"):
        pegboard.resume(path.parent, quiet=True)


@pytest.mark.parametrize("wrong", [{"step": -1}, {"position": 2.0}, {"best": "x"}, {"epoch": True}])
def test_progress_that_no_run_makes_is_refused(config: Config, root: Path, wrong: dict[str, Any]) -> None:
    loop = _loop(config(), root)
    state = loop.state_dict()
    state["progress"] |= wrong
    with pytest.raises(ValueError, match="Progress"):
        loop.load_state_dict(state)


def test_a_run_that_another_process_trains_is_left_alone(config: Config, root: Path) -> None:
    run = pegboard.train(config(), root=root, quiet=True)
    hold = (
        "import sys; from pathlib import Path; from pegboard.store.run_folder import claimed\n"
        "with claimed(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(run.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        before = sorted(run.folder.rglob("*"))
        with pytest.raises(PegboardError, match="another process is training"):
            pegboard.resume(run, quiet=True)
        assert sorted(run.folder.rglob("*")) == before
        other.kill()
    assert pegboard.resume(run, quiet=True).status == "finished"


def test_the_weights_that_a_run_started_from_are_not_needed_to_resume(config: Config, root: Path) -> None:
    start = pegboard.train(config(), root=root / "start", quiet=True)
    given = config(model={"name": "net", "weights": str(start.folder)})
    run = pegboard.train(given, root=root, quiet=True)
    shutil.rmtree(start.folder)
    assert pegboard.resume(run, quiet=True).figures == run.figures


def test_a_run_without_a_checkpoint_begins_anew_whatever_its_history_holds(
    config: Config, root: Path
) -> None:
    run = pegboard.train(config(), root=root, quiet=True)
    history = run.history
    shutil.rmtree(run.folder / "checkpoints")
    shutil.rmtree(run.folder / "figures")
    (run.folder / "metrics.jsonl").write_bytes(b'{"a": 1}\n\xff')
    assert pegboard.resume(run, quiet=True).history == history


def test_a_second_signal_shows_the_cursor_that_the_progress_bar_hid(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace as Thing

    from pegboard.run.interruption import signals

    said: list[Any] = []
    monkeypatch.setattr(os, "isatty", lambda handle: True)
    monkeypatch.setattr(os, "write", lambda handle, text: said.append(text))
    monkeypatch.setattr(os, "_exit", said.append)
    loop: Any = Thing(halt=0)
    with signals(loop):
        os.kill(os.getpid(), signal.SIGINT)
        assert (loop.halt, said) == (signal.SIGINT, [])
        os.kill(os.getpid(), signal.SIGINT)
    assert said[0].startswith(b"\x1b[?25h") and said[1] == 130


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="a system without hangups")
@pytest.mark.parametrize("first", ["SIGHUP", "SIGTERM"])
def test_a_hangup_beside_another_signal_does_not_make_it_a_second_one(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace as Thing

    from pegboard.run.interruption import signals

    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    loop: Any = Thing(halt=0)
    with signals(loop):
        for name in (first, "SIGTERM" if first == "SIGHUP" else "SIGHUP", "SIGHUP"):
            os.kill(os.getpid(), getattr(signal, name))
        assert (loop.halt, left) == (signal.SIGTERM, [])
        os.kill(os.getpid(), signal.SIGINT)
    assert left == [130]


def test_a_command_that_goes_on_to_another_run_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace as Thing

    from pegboard.run.interruption import signals, until_exit

    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr("atexit.register", lambda call: None)
    with until_exit():
        for _ in range(2):  # as the kit does, which interrupts runs and resumes them
            loop = Thing(halt=0)
            with signals(loop):  # type: ignore[arg-type]
                os.kill(os.getpid(), signal.SIGTERM)
            assert loop.halt == signal.SIGTERM
    assert not left


def test_a_command_keeps_the_signals_until_its_process_ends_once_one_ended_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from types import SimpleNamespace as Thing

    from pegboard.run.interruption import Ended, Handler, signals, until_exit

    left: list[int] = []
    last: list[Any] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr("atexit.register", last.append)
    numbers = (signal.SIGINT, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background begin without it
    before = [signal.getsignal(number) for number in numbers]
    try:
        with until_exit():
            assert signal.getsignal(signal.SIGTERM) is before[1]  # nothing to save yet
            with signals(Thing(halt=0)):  # type: ignore[arg-type]
                pass
            with pytest.raises(Ended):  # between two runs
                os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        assert [signal.getsignal(number) for number in numbers] == before
        with until_exit(), signals(Thing(halt=0)):  # type: ignore[arg-type]
            os.kill(os.getpid(), signal.SIGTERM)
        assert isinstance(signal.getsignal(signal.SIGTERM), Handler)
        os.kill(os.getpid(), signal.SIGTERM)
        assert left == [143]
        last[-1]()  # what Python calls last
        assert [signal.getsignal(number) for number in numbers] == [signal.SIG_IGN] * 2
    finally:
        for number, handler in zip((*numbers, signal.SIGHUP), (*before, signal.SIG_DFL), strict=True):
            signal.signal(number, handler)


def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(config: Config, root: Path) -> None:
    given = config(optimizer={"name": "plain", "lr": 1e30}, trainer={"epochs": 4, "device": "cpu"})
    with pytest.raises(
        loops.NotFinite, match=r"the loss was nan at step \d, in the update of player 'model'"
    ):
        pegboard.train(given, root=root, quiet=True)
    (folder,) = root.glob("run/2*")
    assert "the loss was nan" in pegboard.Run(folder).summary["why"]


@pytest.mark.parametrize(("words", "told"), [((), True), (("trainer.nonfinite=skip",), False)])
def test_to_skip_bad_updates_is_advised_only_where_it_is_not_done_yet(
    config: Config, root: Path, words: tuple[str, ...], told: bool
) -> None:
    with pytest.raises(loops.NotFinite, match="a warm-up or clipping") as end:
        pegboard.train(config(optimizer={"name": "plain", "lr": 1e30}), *words, root=root, quiet=True)
    assert ("trainer.nonfinite=skip goes past it" in str(end.value)) == told


def test_empty_data_is_an_error(config: Config, root: Path) -> None:
    with pytest.raises(PegboardError, match="'points' has no training samples"):
        pegboard.train(config(data={"name": "points", "count": 0}), root=root, quiet=True)


def test_a_folder_that_cannot_be_made_is_an_error(config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PegboardError, match="cannot make a run folder"):
        pegboard.train(config(), root=tmp_path / "file", quiet=True)


def test_bf16_trains_on_the_cpu(config: Config, root: Path) -> None:
    run = pegboard.train(config(), "trainer.precision=bf16", root=root, quiet=True)
    assert math.isfinite(run.figures["test/loss"])


@pytest.mark.parametrize("device, message", [("cuda:7", "torch sees"), ("mps", "not available")])
def test_a_device_that_is_not_there_is_an_error(
    config: Config, root: Path, device: str, message: str
) -> None:
    with pytest.raises(PegboardError, match=message):
        pegboard.train(config(), f"trainer.device={device}", root=root, quiet=True)


def test_trackers_hear_everything_in_order(config: Config, root: Path, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    run = pegboard.train(config(trackers={"note": {"path": str(heard)}}), root=root, quiet=True)
    lines = heard.read_text().split("\n")[:-1]
    assert (lines[0], lines[-1]) == ("start", "finish finished")
    assert lines.count("log") == len(run.history)
    assert {"checkpoint", "figure", "table"} <= set(lines)


def test_a_tracker_that_fails_is_switched_off_and_the_run_goes_on(
    config: Config, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trackers = {
        "bad": {"name": "note", "path": str(tmp_path / "bad"), "fail": "log"},
        "good": {"name": "note", "path": str(tmp_path / "good")},
    }
    run = pegboard.train(config(trackers=trackers), root=root, quiet=True)
    assert run.status == "finished"
    assert capsys.readouterr().err.count("tracker bad failed and is switched off") == 1
    good = (tmp_path / "good").read_text()
    assert good.count("log") == len(run.history)
    assert (tmp_path / "bad").read_text() == good[: good.index("log")]  # and nothing after it


def _loop(config: dict[str, Any], root: Path) -> Any:
    from pegboard.engine.precision import choose_precision

    class Nobody:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

    plan = make_plan(check(config), read=True)
    assert plan.splits is not None
    watcher: Any = Nobody()
    return loops.Loop(assemble(plan, "cpu"), plan.splits, choose_precision("fp32", "cpu"), watcher, root)


def test_a_step_makes_at_most_20_calls_more_than_a_hand_written_one(config: Config, root: Path) -> None:
    given = config(model={"name": "net"}, data={"name": "points", "count": 160, "batch_size": 16})
    loop = _loop(given, root)
    groups = loop.groups(0)
    loop.span(groups, 2)
    ours = count_calls(lambda: loop.span(groups, 6)) - count_calls(lambda: loop.span(groups, 6))

    bare = _loop(config(model={"name": "net", "pegs": False}, data=given["data"]), root).assembly.model
    optimizer = torch.optim.SGD(bare.parameters(), 0.1, foreach=False)
    x, y = loop.splits.train.inputs[0], loop.splits.train.target

    def hand_written(steps: range) -> None:
        for at in steps:
            index = groups[at][0]
            optimizer.zero_grad()
            loss = functional.cross_entropy(bare(x[index]), y[index])
            loss.backward()
            optimizer.step()

    hand_written(range(2))
    theirs = count_calls(lambda: hand_written(range(2, 6))) - count_calls(lambda: hand_written(range(0)))
    assert (ours - theirs) / 4 <= 20 + 3  # three unfilled pegs, one call each


def test_a_trick_costs_at_most_5_calls_beside_its_body(config: Config, root: Path) -> None:
    def per_step(regularizers: dict[str, Any]) -> float:
        given = config(data={"name": "points", "count": 160, "batch_size": 16}, regularizers=regularizers)
        loop = _loop(given, root)
        groups = loop.groups(0)
        loop.span(groups, 2)
        return (count_calls(lambda: loop.span(groups, 6)) - count_calls(lambda: loop.span(groups, 6))) / 4

    body = 6 * 2  # six methods that each call _count
    assert per_step({"everything": {}}) - per_step({}) <= 5 + body
