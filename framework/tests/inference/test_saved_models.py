"""Checkpoints are complete or not there; what is loaded is what was trained; damage is named."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import PegboardError
from pegboard.base import files
from pegboard.cli import main
from pegboard.config import compatibility
from pegboard.contract.specs import Classes, DataSpec, Image
from pegboard.inference.tables import read_table, write_table
from pegboard.registry.spec_names import from_json, to_json
from pegboard.store import checkpoint
from torch import nn

Config = Callable[..., dict[str, Any]]
TOY = Path(__file__).parents[1].joinpath("toy.py")


@pytest.fixture
def run(config: Config, root: Path) -> pegboard.Run:
    return pegboard.train(config(regularizers={"drop": {"p": 0.2}}), root=root, quiet=True)


def test_a_run_a_checkpoint_and_a_run_object_load_the_same_model(run: pegboard.Run) -> None:
    x = torch.randn(4, 2)
    models = [pegboard.load(ref) for ref in (run, run.folder, str(run.folder / "checkpoints" / "best"))]
    assert all(torch.equal(models[0](x), model(x)) for model in models)
    assert not models[0].training
    assert pegboard.load(run, which="last")(x).shape == (4, 2)


@pytest.mark.parametrize("device", ["banana", "cuda:x", "cuda:-1", "CPU", ""])
def test_a_device_that_does_not_exist_is_an_error(
    run: pegboard.Run, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PegboardError, match=f"unknown device '{device}': expected auto, cpu, cuda"):
        pegboard.load(run, device=device)
    for command in ("eval", "predict"):
        assert main([command, str(run.folder), "--device", device, "--local", str(TOY)]) == 2
        assert f"unknown device '{device}'" in capsys.readouterr().err
    assert main(["eval", str(run.folder), "--device", "meta", "--local", str(TOY)]) == 2


def test_only_the_best_and_the_last_checkpoint_have_names(run: pegboard.Run) -> None:
    with pytest.raises(PegboardError, match="there is no 'bets' checkpoint: expected best or last"):
        pegboard.load(run, which="bets")


def test_tables_of_spreadsheets_are_read_and_any_name_of_a_class_is_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\ufeffx,y\n1,2\n", "utf-8")
    assert read_table(path) == {"x": [1.0], "y": [2.0]}
    columns = {"class": ['a "b", c', "d\ne"], "output": [[1.0, 2.0], [3.0, 4.0]], "p": [0.5, 1 / 3]}
    with io.StringIO(write_table(columns, None)) as text:
        rows = list(csv.reader(text))
    assert rows[1:] == [['a "b", c', "[1.0, 2.0]", "0.5"], ["d\ne", "[3.0, 4.0]", "0.333333"]]
    with pytest.raises(PegboardError, match=r"expected \.csv or \.json"):
        write_table(columns, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_a_folder_is_no_table_and_not_suggested_as_one(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    with pytest.raises(PegboardError, match="no file .*rows$"):
        read_table(tmp_path / "rows")


def test_a_model_loads_on_meta_without_its_weights(run: pegboard.Run) -> None:
    (run.folder / "checkpoints" / "best" / "model.safetensors").touch()
    assert next(pegboard.load(run, device="meta").parameters()).device.type == "meta"


def test_loading_needs_neither_the_data_nor_tricks_that_left_no_trace(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(regularizers={"drop": {}, "patience": {"evaluations": 99}})
    run = pegboard.train(given, root=root, quiet=True)
    monkeypatch.setattr("pegboard.planning.plan.read_data", lambda *a: pytest.fail("data was read"))
    plan_text = (run.folder / "config.yaml").read_text().replace("evaluations: 99", "evaluations: -1")
    (run.folder / "config.yaml").write_text(plan_text)
    assert pegboard.load(run)


def test_rules_of_data_that_may_be_gone_are_asked_before_it_is_read_and_not_of_a_trained_model(
    config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    rules = compatibility.own_rules
    monkeypatch.setattr(
        compatibility, "own_rules", lambda parts, reads, facts: rules(parts, noted(reads, asked), facts)
    )
    run = pegboard.train(config(), root=root, quiet=True)
    assert asked.count("data") == 1
    asked.clear()
    assert pegboard.load(run)
    assert "model" in asked and "data" not in asked


def noted(reads: Iterable[Any], asked: list[str]) -> list[Any]:
    found = list(reads)
    asked += [read.path for read in found]
    return found


def test_only_the_newest_and_the_best_checkpoints_stay(run: pegboard.Run) -> None:
    folders = [p for p in (run.folder / "checkpoints").iterdir() if not p.is_symlink()]
    assert 2 <= len(folders) <= 3
    assert all(p.name.startswith("step-") for p in folders)


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt"])
def test_a_damaged_file_is_named(run: pegboard.Run, name: str) -> None:
    path = run.folder / "checkpoints" / "best" / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(PegboardError, match=f"{name} is damaged"):
        pegboard.load(run)
    path.unlink()
    with pytest.raises(PegboardError, match=f"lacks its file '{name}'"):
        pegboard.load(run)


@pytest.mark.parametrize(
    "text, message",
    [
        ("not json", "is damaged"),
        ('{"format": 99}', "has format 99, this version reads format 1"),
        ('{"format": 1, "sha256": {"../../evil": "x"}}', "no hash of 'model.safetensors'"),
        ('{"format": 1}', "no hash of 'model.safetensors'"),
        ('{"format": 1, "step": "../../evil"}', "step is '../../evil'"),
    ],
)
def test_a_manifest_that_cannot_be_right_is_refused(run: pegboard.Run, text: str, message: str) -> None:
    (run.folder / "checkpoints" / "best" / "manifest.json").write_text(text)
    with pytest.raises(PegboardError, match=message):
        pegboard.load(run)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_pickle_in_place_of_the_state_is_not_executed(run: pegboard.Run, tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "executed").touch, ())

    folder = run.folder / "checkpoints" / "last"
    (folder / "state.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(PegboardError, match="cannot read"):
        checkpoint.read_state(folder)
    (folder / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(PegboardError, match="cannot read weights"):
        checkpoint.read_weights(folder / "model.safetensors")
    assert not (tmp_path / "executed").exists()


def test_missing_runs_are_answered_with_the_nearest(run: pegboard.Run) -> None:
    with pytest.raises(PegboardError, match=r"no run or checkpoint at .*lates\.(.|\n)*Did you mean .*latest"):
        pegboard.load(run.folder.parent / "lates")
    with pytest.raises(PegboardError, match="holds no checkpoint"):
        pegboard.load(run.folder / "figures")
    with pytest.raises(PegboardError, match="the newest run in it: .*latest$"):
        pegboard.load(run.folder.parent)
    shutil.copytree(run.folder / "checkpoints" / "best", run.folder.parent / "alone" / "a" / "b")
    with pytest.raises(PegboardError, match=r"no config.yaml beside"):
        pegboard.load(run.folder.parent / "alone" / "a" / "b")
    with pytest.raises(PegboardError, match="is not a run folder"):
        pegboard.Run(run.folder / "figures")


def test_weights_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    weights = {"0.weight": torch.zeros(3, 2), "1.weight": torch.zeros(9, 9), "2.weight": torch.zeros(1)}
    with pytest.raises(PegboardError) as caught:
        checkpoint.fit_weights(model, weights, True, "here")
    text = str(caught.value)
    assert "missing: 0.bias" in text and "unexpected: 2.weight" in text
    assert "wrong shape: 1.weight (9, 9), expected (1, 3)" in text
    lines = checkpoint.fit_weights(model, weights, False, "here")
    assert len(lines) == 4
    assert torch.equal(model[0].weight, torch.zeros(3, 2))
    with pytest.raises(PegboardError, match="do not fit"):
        checkpoint.fit_weights(model, {"other": torch.zeros(1)}, False, "here")


def test_tied_weights_are_saved_once_and_not_missed(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    path = checkpoint.save(tmp_path, model, {}, {"step": 1})
    fresh = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    fresh[1].weight = fresh[0].weight
    checkpoint.fit_weights(fresh, checkpoint.read_weights(path / checkpoint.WEIGHTS), True, "here")
    assert torch.equal(fresh[1].weight, model[0].weight)


def test_the_same_step_can_be_saved_again(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    one = checkpoint.save(tmp_path, model, {}, {"step": 1})
    assert checkpoint.save(tmp_path, model, {"a": 1}, {"step": 1}) == one
    assert checkpoint.read_state(one) == {"a": 1}
    files.point(tmp_path / "last", one.name)
    (tmp_path / "step-00000000").mkdir()
    checkpoint.prune(tmp_path, 1, one)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["last", "step-00000001"]


def test_training_starts_from_saved_weights(
    config: Config, run: pegboard.Run, root: Path, capsys: Any
) -> None:
    given = config(model={"name": "net", "weights": str(run.folder)}, trainer={"steps": 1})
    fine = pegboard.train(given, "optimizer.lr=1e-12", root=root, quiet=True)
    assert torch.allclose(fine.model.state_dict()["1.weight"], run.model.state_dict()["1.weight"], atol=1e-6)
    other = config(model={"name": "net", "width": 9, "weights": str(run.folder)}, trainer={"steps": 1})
    pegboard.train(other, root=root)
    assert "weights: wrong shape: 1.weight" in capsys.readouterr().out


def test_specs_survive_json_and_strangers_are_named() -> None:
    spec = DataSpec((Image(1, 8, 8),), Classes(2, ("a", "b")), ("image",))
    assert from_json(json.loads(json.dumps(to_json(spec)))) == spec
    with pytest.raises(ValueError, match="unknown spec 'Hologram'"):
        from_json({"inputs": [{"type": "Hologram"}], "target": None, "names": []})


def test_resuming_a_finished_run_changes_nothing(run: pegboard.Run) -> None:
    before = run.history
    again = pegboard.resume(run, quiet=True)
    assert again.history == before


def test_what_fits_is_loaded_when_asked_for(run: pegboard.Run) -> None:
    path = run.folder / "config.yaml"
    path.write_text(path.read_text().replace("width: 8", "width: 9"))
    with pytest.raises(PegboardError, match=r"wrong shape: 1.weight \(8, 2\), expected \(9, 2\)"):
        pegboard.load(run)
    loaded, trained = (
        pegboard.load(run, strict=False),
        checkpoint.read_weights(run.folder / "checkpoints" / "best" / checkpoint.WEIGHTS),
    )
    assert torch.equal(loaded.state_dict()["5.bias"], trained["5.bias"])
    assert loaded.state_dict()["1.weight"].shape == (9, 2)
