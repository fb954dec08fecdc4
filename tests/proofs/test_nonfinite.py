"""Numbers that are not finite stop a run before the update, or are skipped; on every path of the guard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.cli import main
from pegboard.data import epoch_order
from pegboard.engine import guard
from pegboard.engine.guard import NotFinite
from pegboard.engine.loop import Loop
from pegboard.run import training
from pegboard.store import checkpoint
from proofs import FOLDER, LOCAL, cut_and_resumed, differences, plain, unequal, whole
from sweeps import first_of_each

pytestmark = pytest.mark.usefixtures("lean")
SEED, BATCH, BAD = 5, 4, 5
ROW = int(epoch_order(32, SEED, 0, True)[BATCH * (BAD - 1)])  # a sample of the fifth batch
FUSED = {
    "sgd": {"lr": 0.05, "momentum": 0.9},
    "adam": {"lr": 0.01},
    "adamw": {"lr": 0.01},
    "adagrad": {"lr": 0.05},
}


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[Loop]:
    """Every loop that a run makes, to look at what is in memory."""
    made: list[Loop] = []

    class Kept(Loop):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(training, "Loop", Kept)
    return made


@pytest.fixture
def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The guard as on an accelerator: nothing is read in the step, fused optimizers look at the flag."""
    init = guard.Guard.__init__

    def patched(self: Any, player: Any, parameters: Any, optimizer: Any, *more: Any) -> None:
        init(self, player, parameters, optimizer, *more)
        assert all(group["fused"] for group in optimizer.param_groups)
        self.reads = False
        optimizer.found_inf = self.found

    monkeypatch.setattr(guard.Guard, "__init__", patched)
    yield


def config(what: str | None, optimizer: str = "sgd", **trainer: Any) -> dict[str, Any]:
    tricks: dict[str, Any] = {"weight_decay": {"value": 0.1}, "dropout": {"p": 0.2}}
    if what is not None:
        tricks["poison"] = {"row": ROW, "what": what}
    node = {"name": optimizer, **FUSED[optimizer], "kernels": "fused"}
    trainer = {"epochs": 1, "log_every": 100, "device": "cpu", **trainer}
    return plain(optimizer=node, regularizers=tricks, trainer=trainer)


def state(loop: Loop) -> dict[str, Any]:
    optimizer = loop.assembly.kits[0].optimizer.state_dict()["state"]
    return {"weights": loop.assembly.model.state_dict(), "optimizer": optimizer}


@pytest.mark.parametrize("what", first_of_each(["loss", "gradient"]))
@pytest.mark.parametrize("optimizer", first_of_each(FUSED))
def test_a_run_stops_before_the_update(what: str, optimizer: str, loops: list[Loop], tmp_path: Path) -> None:
    pegboard.train(config(None, optimizer, steps=BAD - 1), root=tmp_path / "clean", quiet=True)
    named = "the loss was nan" if what == "loss" else "the gradient of body.1.weight, .* was not finite"
    with pytest.raises(NotFinite, match=f"{named} at step {BAD}, in the update of player 'model'"):
        pegboard.train(config(what, optimizer, save_every=1), root=tmp_path, quiet=True)
    clean, bad = loops
    (folder,) = tmp_path.glob("run/2*")
    saved = torch.load(folder / "checkpoints/last/state.pt", weights_only=True)
    assert saved["progress"]["step"] == BAD - 1
    weights = pegboard.load(folder, which="last").state_dict()
    for found in (bad.assembly.model.state_dict(), weights):
        # the loss of the spoiled step was computed, which moves the random stream and nothing else
        assert list(unequal(last_weights(tmp_path / "clean"), found)) == []
    assert (
        list(unequal(clean.assembly.kits[0].optimizer.state_dict()["state"], state(bad)["optimizer"])) == []
    )


def last_weights(root: Path) -> dict[str, torch.Tensor]:
    (folder,) = root.glob("run/2*")
    return pegboard.load(folder, which="last").state_dict()


@pytest.mark.parametrize("what", ["loss", "gradient"])
@pytest.mark.parametrize("optimizer", FUSED)
@pytest.mark.usefixtures("as_on_a_device")
def test_where_nothing_is_read_in_a_step_the_weights_keep_the_last_good_update(
    what: str, optimizer: str, loops: list[Loop], tmp_path: Path
) -> None:
    pegboard.train(config(None, optimizer, steps=BAD - 1), root=tmp_path / "clean", quiet=True)
    named = "the loss was nan" if what == "loss" else "the gradient of body.1.weight, .* was not finite"
    with pytest.raises(NotFinite, match=f"{named} at step {BAD}, in the update of player 'model'"):
        pegboard.train(config(what, optimizer), root=tmp_path, quiet=True)
    _, bad = loops
    assert bad.progress.step == 8  # the whole epoch went by before anybody asked
    assert list(unequal(last_weights(tmp_path / "clean"), bad.assembly.model.state_dict())) == []
    (folder,) = tmp_path.glob("run/2*")
    assert [p.name for p in (folder / "checkpoints").glob("step*")] == ["step-00000000"]


@pytest.mark.usefixtures("as_on_a_device")
def test_where_nothing_is_read_in_a_step_a_save_asks_first(tmp_path: Path) -> None:
    with pytest.raises(NotFinite, match=f"the loss was nan at step {BAD},"):
        pegboard.train(config("loss", save_every=BAD), root=tmp_path, quiet=True)
    (folder,) = tmp_path.glob("run/2*")
    assert [p.name for p in (folder / "checkpoints").glob("step*")] == ["step-00000000"]


@pytest.mark.parametrize("optimizer", FUSED)
@pytest.mark.usefixtures("as_on_a_device")
def test_the_flag_changes_nothing_while_all_is_well(
    optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pegboard.train(config(None, optimizer), root=tmp_path / "flag", quiet=True)
    monkeypatch.undo()
    monkeypatch.setattr("pegboard.run.finish.draw_curves", lambda rows, path, *_: path)
    pegboard.train(config(None, optimizer), root=tmp_path / "read", quiet=True)
    assert list(unequal(last_weights(tmp_path / "flag"), last_weights(tmp_path / "read"))) == []


@pytest.mark.usefixtures("as_on_a_device")
def test_the_step_is_right_for_a_player_that_does_not_always_move(tmp_path: Path) -> None:
    toy = str(FOLDER.parents[2] / "framework" / "tests" / "toy.py")
    given = plain(
        data={"name": "points", "batch_size": 4},
        objective={"name": "guess", "players": 2},
        optimizer={"name": "sgd", "lr": 0.1, "kernels": "fused"},
        regularizers={"poison": {"row": 0, "players": ["second"]}},
        trainer={"epochs": 1, "device": "cpu"},
    )
    given["plugins"] = {"local": [toy, *given["plugins"]["local"]]}
    for row in range(64):
        at = next(i for i, b in enumerate(epoch_order(64, SEED, 0, True).split(4)) if row in b)
        if at % 2 and at > 2:  # the second player moves in every second update
            break
    given["regularizers"]["poison"]["row"] = row
    with pytest.raises(NotFinite, match=f"at step {at + 1}, in the update of player 'second'"):
        pegboard.train(given, root=tmp_path, quiet=True)


def test_a_skipped_update_is_counted_and_leaves_no_trace(tmp_path: Path) -> None:
    given = plain(
        optimizer={"name": "sgd", "lr": 0.05},
        regularizers={"poison": {"row": ROW, "what": "gradient"}},
        trainer={"epochs": 2, "device": "cpu", "nonfinite": "skip"},
    )
    run = pegboard.train(given, root=tmp_path, quiet=True)
    assert [row["skipped"] for row in run.history if "skipped" in row] == [1, 2]
    plan = pegboard.planning.plan.make_plan(pegboard.config.check.check(given), read=True)
    model, splits = pegboard.planning.plan.assemble(plan, "cpu").model, plan.splits
    assert splits is not None
    optimizer = torch.optim.SGD(model.parameters(), 0.05, fused=True)
    for epoch in range(2):
        for index in epoch_order(32, SEED, epoch, True).split(BATCH):
            if ROW not in index:
                optimizer.zero_grad()
                batch = splits.train.gather(index)
                assert batch.target is not None
                torch.nn.functional.cross_entropy(model(*batch.inputs), batch.target).backward()
                optimizer.step()
    assert list(unequal(model.state_dict(), last_weights(tmp_path))) == []


def test_a_run_that_has_skipped_updates_resumes_exactly(tmp_path: Path) -> None:
    given = plain(
        regularizers={"poison": {"row": ROW, "what": "gradient"}},
        trainer={"epochs": 3, "device": "cpu", "nonfinite": "skip"},
    )
    reference, events = whole(given, tmp_path / "whole")
    resumed = cut_and_resumed(given, tmp_path / "cut", len(events) // 2)
    assert [row["skipped"] for row in pegboard.Run(resumed).history if "skipped" in row] == [1, 2, 3]
    assert differences(reference, resumed) == []


def test_the_command_says_so_and_ends_with_a_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import yaml

    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(config("gradient")))
    assert main(["train", str(path), "--root", str(tmp_path), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert f"at step {BAD}, in the update of player 'model'; that update was not applied" in said
    assert "pegboard resume" in said and "Traceback" not in said
    assert main(["train", str(path), "trainer.nonfinite=skip", "--root", str(tmp_path), "--quiet"]) == 0


def test_an_optimizer_that_diverges_by_itself_stops(tmp_path: Path) -> None:
    with pytest.raises(NotFinite, match=r"at step \d, in the update of player 'model'"):
        pegboard.train(plain(optimizer={"name": "sgd", "lr": 1e30}), root=tmp_path, quiet=True)


def in_graphs(compiled: str, bad: bool = True, **trainer: Any) -> dict[str, Any]:
    """All updates of an epoch but the first in one call, the fifth of them spoiled."""
    tricks: dict[str, Any] = {"weight_decay": {"value": 0.1}, "dropout": {"p": 0.2}}
    trainer = {
        "epochs": 1,
        "log_every": 100,
        "device": "cpu",
        "compile": compiled,
        "steps_per_call": 8 if compiled == "step" else 1,
        **trainer,
    }
    return plain(
        optimizer={"name": "adam", "lr": 0.01},
        regularizers=tricks | ({"overflow": {"row": ROW}} if bad else {}),
        trainer=trainer,
        plugins={"local": [*LOCAL, str(FOLDER / "odd_parts.py")]},
    )


def close(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return all(torch.allclose(one[name], two[name], rtol=0, atol=1e-6) for name in one | two)


@pytest.mark.usefixtures("only_traced")
def test_inside_a_call_of_a_graph_the_weights_keep_the_last_good_update(
    loops: list[Loop], tmp_path: Path
) -> None:
    pegboard.train(in_graphs("off", bad=False, steps=BAD - 1), root=tmp_path / "clean", quiet=True)
    with pytest.raises(NotFinite, match=f"the loss was nan at step {BAD}, in the update of player 'model'"):
        pegboard.train(in_graphs("step"), root=tmp_path, quiet=True)
    clean, bad = loops
    assert bad.stepper.made.level == "step" and bad.progress.step == 8  # the whole call was made
    assert close(last_weights(tmp_path / "clean"), bad.assembly.model.state_dict())
    moments = [loop.assembly.kits[0].optimizer.state_dict()["state"] for loop in (clean, bad)]
    assert all(close(*pair) for pair in zip(*(m.values() for m in moments), strict=True))
    (folder,) = tmp_path.glob("run/2*")
    assert [p.name for p in (folder / "checkpoints").glob("step*")] == ["step-00000000"]


@pytest.mark.parametrize("warmup", [False, True])
@pytest.mark.usefixtures("only_traced")
def test_a_graph_skips_what_a_step_in_python_skips(warmup: bool, tmp_path: Path) -> None:
    runs = []
    for compiled in ("off", "step"):
        given = in_graphs(compiled, epochs=2, nonfinite="skip")
        given["regularizers"]["ema"] = {"decay": 0.9, "warmup": warmup}
        runs.append(pegboard.train(given, root=tmp_path / compiled, quiet=True))
    assert runs[1].summary["compiled"]["level"] == "step"
    assert [[row["skipped"] for row in run.history if "skipped" in row] for run in runs] == [[1, 2]] * 2
    trained = [checkpoint.read_state(run.folder / "checkpoints/last")["trained"] for run in runs]
    assert close(*trained)
    assert close(last_weights(tmp_path / "off"), last_weights(tmp_path / "step"))
