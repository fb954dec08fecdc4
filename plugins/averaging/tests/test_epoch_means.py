"""Means of weights at the ends of epochs, and the statistics of batch normalisation that belong to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.config.check import ConfigError, check
from pegboard.testing.runs import cut_and_resumed, differences, lean, points, whole
from pegboard_averaging.functional import include, mean, take_statistics
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, update_bn

EPOCHS = 5
CASES: list[tuple[dict[str, Any], list[int]]] = [  # a trick, and the epochs whose ends it averages
    ({"swa": {"start": 2}}, [3, 4, 5]),
    ({"swa": {"start": 0}}, [1, 2, 3, 4, 5]),
    ({"lawa": {"epochs": 2}}, [4, 5]),
    ({"lawa": {"epochs": 9}}, [1, 2, 3, 4, 5]),
]


def config(tricks: dict[str, Any], **trainer: Any) -> dict[str, Any]:
    return {
        "seed": 2,
        "data": {"name": "iris", "batch_size": 16},
        "model": {"name": "mlp", "hidden": [8]},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "regularizers": {"batchnorm": {}, **tricks},
        "trainer": {"epochs": EPOCHS, "device": "cpu", "keep": EPOCHS + 1, **trainer},
    }


def run(tricks: dict[str, Any], root: Path, **trainer: Any) -> Path:
    with lean():
        return pegboard.train(config(tricks, **trainer), root=root, quiet=True).folder


def weights(folder: Path, which: str = "last") -> dict[str, Tensor]:
    return load_file(folder / "checkpoints" / which / "model.safetensors")


def ends(folder: Path) -> list[dict[str, Tensor]]:
    """The weights at the end of every epoch."""
    return [load_file(path / "model.safetensors") for path in sorted(folder.glob("checkpoints/step-*"))[1:]]


def is_statistic(name: str) -> bool:
    return name.endswith(("running_mean", "running_var", "num_batches_tracked"))


@pytest.mark.parametrize(("tricks", "epochs"), CASES)
def test_weights_and_statistics_are_those_that_torch_finds(
    tricks: dict[str, Any], epochs: list[int], tmp_path: Path
) -> None:
    plain, averaged = run({}, tmp_path), run(tricks, tmp_path)
    model = pegboard.load(plain, which="last")
    reference = AveragedModel(model)
    for epoch in epochs:
        model.load_state_dict(ends(plain)[epoch - 1])
        reference.update_parameters(model)
    from pegboard.inference.trained import Trained

    source = Trained(plain, which="last", device="cpu").source("train")
    batches = [source.gather(rows).inputs for rows in torch.arange(len(source)).split(16)]
    update_bn(((inputs[0],) for inputs in batches), reference.module)
    expected = reference.module.state_dict()
    for name, found in weights(averaged).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-5, atol=1e-6)


def test_before_the_first_end_that_counts_the_trained_weights_are_used(tmp_path: Path) -> None:
    plain, averaged = run({}, tmp_path), run({"swa": {"start": 3}}, tmp_path)
    for epoch, (one, two) in enumerate(zip(ends(plain), ends(averaged), strict=True), 1):
        alike = all(torch.equal(one[name], two[name]) for name in one if not is_statistic(name))
        assert alike == (epoch <= 4)  # of a single end the mean is itself


def test_the_weights_that_are_trained_do_not_notice(tmp_path: Path) -> None:
    plain = run({}, tmp_path)
    for tricks in ({"swa": {"start": 1}}, {"lawa": {}}):
        folder = run(tricks, tmp_path)
        state = torch.load(folder / "checkpoints" / "last" / "state.pt", weights_only=True)
        assert len(state["trained"]) > 6
        for name, trained in state["trained"].items():
            assert torch.equal(trained, weights(plain)[name])
        idle = run({key: {**node, "evaluate": "trained"} for key, node in tricks.items()}, tmp_path)
        for name, w in weights(idle).items():
            assert torch.equal(w, weights(plain)[name])


def test_without_statistics_they_are_those_of_the_trained_model(tmp_path: Path) -> None:
    plain, averaged = weights(run({}, tmp_path)), weights(run({"lawa": {"statistics": False}}, tmp_path))
    for name, found in averaged.items():
        assert torch.equal(found, plain[name]) == is_statistic(name)


@pytest.mark.parametrize("tricks", [{"swa": {"start": 0}}, {"swa": {"start": 1}}, {"lawa": {"epochs": 2}}])
def test_a_run_resumes_exactly(tricks: dict[str, Any], tmp_path: Path) -> None:
    given = config({**tricks, "dropout": {}}, epochs=3, save_every=3)
    with lean():
        reference, events = whole(given, tmp_path / "whole")
        for cut in points(events, 4):
            assert not differences(reference, cut_and_resumed(given, tmp_path / str(cut), cut))


def test_in_graphs_they_are_those_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **options: graph)
    torch.compiler.reset()
    for tricks in ({"swa": {"start": 1}}, {"lawa": {"epochs": 2}}):
        eager, compiled = (weights(run(tricks, tmp_path, compile=c)) for c in ("off", "step"))
        for name, w in eager.items():
            torch.testing.assert_close(compiled[name], w, rtol=1e-4, atol=1e-5)


def test_a_start_after_the_last_epoch_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="the run has 5 epochs: nothing would be averaged"):
        check(config({"swa": {"start": 5}}))


def test_two_averages_are_refused() -> None:
    with pytest.raises(ConfigError, match="'lawa' and 'swa' both eval_weights as 'average'"):
        check(config({"swa": {"start": 1}, "lawa": {}}))


def test_means_are_means() -> None:
    sets = [[torch.randn(2, 3), torch.randn(())] for _ in range(4)]
    one, two = ([torch.zeros(2, 3), torch.zeros(())] for _ in range(2))
    mean(one, sets)
    for count, weights in enumerate(sets):
        include(two, weights, count)
    for at, (found, other) in enumerate(zip(one, two, strict=True)):
        expected = sum(weights[at] for weights in sets) / 4
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(other, expected)


def test_statistics_are_taken_without_dropping_and_leave_the_model_in_its_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.9), nn.BatchNorm1d(4))
    model[1].eval()
    x = torch.randn(12, 3)
    take_statistics(model, ((part,) for part in x.split(6)))
    assert [m.training for m in model] == [True, False, True] and model[2].momentum == 0.1
    hidden = model[0](x).split(6)
    torch.testing.assert_close(model[2].running_mean, (hidden[0].mean(0) + hidden[1].mean(0)) / 2)
    torch.testing.assert_close(model[2].running_var, (hidden[0].var(0) + hidden[1].var(0)) / 2)
