"""`model.weights` from files of weights alone, of whatever made them; nothing in them is executed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import PegboardError
from pegboard.config.check import check
from pegboard.inference.loading import load_into
from pegboard.store.checkpoint import read_file
from pegboard.store.run_reader import Recorded
from safetensors.torch import save_file
from torch import nn

Config = Callable[..., dict[str, Any]]


class Renamed(nn.Linear):
    """Takes weights that call its matrix otherwise."""

    def adopt(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name.replace("kernel", "weight"): value for name, value in state.items()}


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return {"kernel": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2)}


def save(path: Path, content: Any, old: bool = False) -> str:
    torch.save(content, path, _use_new_zipfile_serialization=not old)
    return str(path)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth", ".bin", ".PT"])
def test_a_file_of_weights_is_adopted(tmp_path: Path, state: dict[str, torch.Tensor], suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        save(path, state)
    model = Renamed(3, 2)
    assert load_into(model, str(path)) == []
    assert torch.equal(model.weight, state["kernel"]) and torch.equal(model.bias, state["bias"])


def test_weights_below_other_keys_of_wrapped_models_and_of_old_files_are_found(
    tmp_path: Path, state: dict[str, torch.Tensor]
) -> None:
    wrapped = {f"module.{name}": value for name, value in state.items()}
    forms = [
        {"state_dict": state, "epoch": 3},
        {"model": {"state_dict": wrapped}},
        {"model": state, "x": [1]},
    ]
    for number, content in enumerate([*forms, state]):
        found = read_file(Path(save(tmp_path / f"{number}.pt", content, old=number == 3)))
        assert found.keys() == state.keys() and torch.equal(found["kernel"], state["kernel"])
    itself: dict[str, Any] = {}
    itself["model"] = itself
    for content, message in (
        ({"epoch": 3, "lr": 0.1}, "holds no tensors by name, but the keys epoch, lr: expected a state_dict"),
        (torch.ones(3), "holds no tensors by name, but a Tensor"),
        (itself, "holds no tensors by name, but the keys model"),
    ):
        with pytest.raises(PegboardError, match=message):
            read_file(Path(save(tmp_path / "wrong.pt", content)))


def test_what_does_not_fit_is_listed_and_nothing_at_all_shows_both_sides(
    tmp_path: Path, state: dict[str, torch.Tensor]
) -> None:
    path = save(tmp_path / "w.pt", {**state, "extra": torch.ones(1)})
    assert load_into(Renamed(3, 2), path) == ["unexpected: extra"]
    with pytest.raises(PegboardError) as error:
        load_into(nn.Sequential(nn.Linear(9, 9)), path)
    told = str(error.value)
    assert "the model  0.weight (9, 9), 0.bias (9,)" in told
    assert "the file   kernel (2, 3), bias (2,), extra (1,)" in told


def test_an_architecture_that_cannot_be_adopted_is_one_message(tmp_path: Path) -> None:
    class Picky(nn.Linear):
        def adopt(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"weight": state["kernel"].reshape(2, 3)}

    for state in ({"x": torch.ones(1)}, {"kernel": torch.ones(5)}):
        with pytest.raises(
            PegboardError, match="are not of this model's architecture: (KeyError|RuntimeError)"
        ):
            load_into(Picky(3, 2), save(tmp_path / "w.pt", state))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_nothing_in_a_file_of_weights_is_executed(tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "executed").touch, ())

    (tmp_path / "pickle.bin").write_bytes(pickle.dumps(Evil()))
    save(tmp_path / "evil.pt", {"w": Evil()})
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"0" * 10**6)
    (tmp_path / "empty.pt").touch()
    (tmp_path / "text.safetensors").write_text("no weights")
    for name, message in {
        "pickle.bin": "cannot read .*nothing in it was executed",
        "evil.pt": "cannot read .*nothing in it was executed",
        "bomb.pth": "it unpacks to more than it is",
        "empty.pt": "cannot read",
        "text.safetensors": "cannot read weights from",
    }.items():
        with pytest.raises(PegboardError, match=message):
            load_into(nn.Linear(1, 1), str(tmp_path / name))
    assert not (tmp_path / "executed").exists()


def test_a_file_that_is_not_there_is_found_by_the_check(config: Config, tmp_path: Path) -> None:
    (tmp_path / "net.pt").touch()
    (tmp_path / "old.pt").touch()
    with pytest.raises(PegboardError) as error:
        check(config(model={"name": "net", "weights": str(tmp_path / "nett.pt")}))
    told = str(error.value)
    assert "model.weights" in told and f"did you mean '{tmp_path / 'net.pt'}'?" in told
    assert "expected a run folder, a checkpoint folder, zoo:name or a file of weights" in told


def test_a_run_starts_from_a_file_and_goes_on_without_it(config: Config, root: Path, tmp_path: Path) -> None:
    first = pegboard.train(config(), root=root, quiet=True)
    path = tmp_path / "net.pt"
    save(path, {"state_dict": first.model.state_dict()})
    trainer = {"epochs": 1, "steps": 1, "device": "cpu"}
    given = config(model={"name": "net", "weights": str(path)}, trainer=trainer)
    given["optimizer"] = {"name": "plain", "lr": 1e-12}
    run = pegboard.train(given, root=root, quiet=True)
    for one, other in zip(run.model.parameters(), first.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert len(Recorded(run.folder).environment["start"]) == 64
    path.unlink()
    assert pegboard.resume(run, quiet=True).status == "finished" and pegboard.load(run) is not None
