"""Dropout of weights: the function, the layers it makes, and runs with it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import points
import pytest
import torch
import torch.nn.functional as F
from calls import count_calls
from pegboard import Context, PegboardError, Trick
from pegboard.config.check import check
from pegboard.planning.plan import assemble, make_plan
from pegboard_dropout import DropConnect, build_connect, pegboard_regularizers
from pegboard_dropout.functional import drop_connect, dropout
from torch import nn
from torch.nn.utils import parametrizations

Make = Callable[..., nn.Sequential]


def edit(model: nn.Module, **fields: Any) -> nn.Module:
    build_connect(DropConnect(**fields), Context()).edit_model(model)
    return model


@pytest.mark.catalogue("S4-151")
def test_the_mean_over_masks_of_a_linear_layer_is_the_layer() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 4).double(), torch.randn(5, 6, dtype=torch.float64)
    with torch.no_grad():
        draws = torch.stack([drop_connect(x, layer.weight, layer.bias, 0.3) for _ in range(4000)])
        error = (draws.mean(0) - layer(x)) / (draws.std(0) / 4000**0.5)
    assert error.abs().max() < 4.5
    assert not torch.equal(draws[0], draws[1])
    assert torch.equal(drop_connect(x, layer.weight, layer.bias, 0.3, training=False), layer(x))


@pytest.mark.catalogue("S4-151")
def test_a_step_multiplies_with_the_kept_share_of_weights() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(1000, 500, bias=False)
    nn.init.ones_(layer.weight)
    model = edit(nn.Sequential(layer), p=0.3)
    whole = torch.eye(1000)
    kept = model(whole)  # the weights themselves
    assert kept.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]
    sigma = (0.3 * 0.7 / kept.numel()) ** 0.5
    assert abs((kept != 0).float().mean().item() - 0.7) < 4 * sigma
    assert abs(kept.mean().item() - 1) < 0.01
    assert not torch.equal(kept, model(whole))  # the next step has another mask
    model.eval()
    assert torch.equal(model(whole), torch.ones(1000, 500))
    assert torch.equal(layer.weight, torch.ones(500, 1000)) and layer.weight is layer._parameters["weight"]


@pytest.mark.catalogue("S4-151")
def test_training_equals_masked_products_written_by_hand(mlp: Make) -> None:
    torch.manual_seed(0)
    ours = mlp(6, 5, 4, 3)
    a, b, c = (copy.deepcopy(m) for m in ours if isinstance(m, nn.Linear))
    edit(ours, p=0.3)

    def theirs(x: torch.Tensor) -> torch.Tensor:
        for layer in (a, b):
            x = F.relu(F.linear(x, F.dropout(layer.weight, 0.3), layer.bias))
        return F.linear(x, F.dropout(c.weight, 0.3), c.bias)

    hand = nn.ModuleList([a, b, c])
    x, y = torch.randn(32, 6), torch.randint(3, (32,))
    for net, model in ((ours, ours), (theirs, hand)):
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        torch.manual_seed(5)
        for _ in range(10):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    for mine, other in zip(ours.parameters(), hand.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_names_of_weights_stay_and_plain_weights_load(mlp: Make) -> None:
    plain, ours = mlp(6, 5, 3), edit(mlp(6, 5, 3))
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(4, 6)
    assert torch.equal(ours.eval()(x), plain.eval()(x))
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert torch.equal(copy.deepcopy(ours)(x), plain(x))


def test_strength_zero_changes_nothing(mlp: Make) -> None:
    model = mlp(6, 5, 3)
    kinds = [type(m) for m in model.modules()]
    assert [type(m) for m in edit(model, p=0.0).modules()] == kinds


def test_weights_set_by_a_solver_arrive(mlp: Make) -> None:
    model = edit(mlp(6, 5, 3)).train()
    with torch.no_grad():
        model[-1].weight.copy_(torch.ones(3, 5))
    assert torch.equal(
        model.eval()(torch.zeros(1, 6)),
        F.linear(model[:-1](torch.zeros(1, 6)), torch.ones(3, 5), model[-1].bias),
    )


@pytest.mark.parametrize(
    ("layers", "dropped"),
    [
        (["linear"], {"lin.weight", "rnn.weight_ih_l0", "rnn.weight_ih_l1"}),
        (["recurrent"], {"rnn.weight_hh_l0", "rnn.weight_hh_l1"}),
        (["convolution"], {"conv.weight"}),
    ],
)
def test_weights_are_chosen_by_the_kind_of_layer(layers: list[str], dropped: set[str]) -> None:
    model = nn.ModuleDict(
        {"emb": nn.Embedding(5, 8), "norm": nn.LayerNorm([4, 8]), "conv": nn.Conv1d(8, 8, 3, padding=1)}
        | {"rnn": nn.GRU(8, 8, 2, batch_first=True), "lin": nn.Linear(8, 3)}
    )
    edit(model, p=0.99, layers=tuple(layers))
    x = model["emb"](torch.randint(5, (2, 4)))
    x = model["norm"](x)
    x = model["conv"](x.movedim(1, 2)).movedim(1, 2)
    model["lin"](model["rnn"](x)[0]).sum().backward()
    grads = {n: p.grad for n, p in model.named_parameters() if p.dim() > 1 and p.grad is not None}
    silent = {n for n, g in grads.items() if (g == 0).float().mean() > 0.5 and n not in ("emb.weight",)}
    assert dropped <= silent
    marked = {n for n, m in model.named_children() if hasattr(m, "drop")}
    assert marked == {n.partition(".")[0] for n in dropped}


def test_names_choose_weights_and_a_model_without_any_is_told(mlp: Make) -> None:
    model = edit(mlp(6, 5, 3), only=("1.*",))
    assert [n for n, m in model.named_modules() if hasattr(m, "drop")] == ["1"]
    with pytest.raises(PegboardError, match=r"found no weight.*only: \[x\].*1.weight \(linear\)"):
        edit(mlp(6, 5, 3), only=("x",))
    with pytest.raises(
        PegboardError, match=r"0.weight \(convolution\)(.|\n)*choose from them: layers: \[convolution\]"
    ):
        edit(nn.Sequential(nn.Conv1d(2, 2, 1)))


def test_it_drops_what_a_parametrisation_makes() -> None:
    torch.manual_seed(0)
    layer = parametrizations.weight_norm(nn.Linear(6, 4))
    whole = layer.weight.detach().clone()
    edit(nn.Sequential(layer), p=0.5)
    x = torch.eye(6)
    seen = (layer(x) - layer.bias).detach().T
    assert torch.allclose(seen[seen != 0], 2 * whole[seen != 0], atol=1e-6) and 0 < (seen == 0).sum() < 24
    assert torch.allclose(layer.eval()(x) - layer.bias, whole.T, atol=1e-6)


def test_the_record_declares_what_the_trick_overrides() -> None:
    record = next(r for r in pegboard_regularizers() if r.name == "dropconnect")
    trick = type(record.build(DropConnect(), Context()))
    assert set(record.stages) == {name for name in vars(trick) if name in vars(Trick) and name[0] != "_"}
    assert record.stages == {"edit_model": "reparametrize"} and record.neutral == {"p": 0.0}


def test_a_layer_costs_at_most_five_python_calls_more() -> None:
    plain, dropped, x = nn.Linear(3, 3), edit(nn.Linear(3, 3)), torch.ones(2, 3)
    assert count_calls(lambda: dropped(x)) - count_calls(lambda: plain(x)) <= 5


def config(p: float | None, **more: Any) -> dict[str, Any]:
    tricks = {"dropout": {"p": 0.1}, "batchnorm": {}, **({} if p is None else {"dropconnect": {"p": p}})}
    return {
        "data": {
            "name": "blobs",
            "features": 4,
            "classes": 3,
            "samples": 64,
            "batch_size": 16,
            "drop_last": True,
        },
        "model": {"name": "mlp", "hidden": [8]},
        "optimizer": {"name": "adam", "lr": 0.01},
        "regularizers": tricks,
        "trainer": {"epochs": 2, "device": "cpu", "diagnose": False},
        **more,
    }


@pytest.mark.catalogue("S4-151")
def test_a_run_drops_weights_is_reproduced_by_its_seed_and_evaluates_whole(tmp_path: Path) -> None:
    def weights(p: float | None, name: str, **more: Any) -> dict[str, torch.Tensor]:
        run = points.run(config(p, **more), tmp_path / name)
        return dict(pegboard.load(run, which="last").state_dict())

    plain, zero, some, again = weights(None, "a"), weights(0.0, "b"), weights(0.3, "c"), weights(0.3, "d")
    other = weights(0.3, "e", seed=1)
    assert plain.keys() == zero.keys() == some.keys()
    for name in plain:
        assert torch.equal(plain[name], zero[name]) and torch.equal(some[name], again[name])
    assert any(not torch.equal(plain[n], some[n]) for n in plain)
    assert any(not torch.equal(other[n], some[n]) for n in plain)
    text = pegboard.plan(config(0.3)).explain()
    assert "dropconnect" in text and "role reparametrize" in text


def test_masks_come_from_the_same_stream_as_those_of_units() -> None:
    layer, x = nn.Linear(6, 4, bias=False), torch.randn(5, 6)
    torch.manual_seed(1)
    found = edit(nn.Sequential(layer), p=0.4)(x)
    torch.manual_seed(1)
    assert torch.equal(found, F.linear(x, dropout(layer._parameters["weight"], 0.4)))


def test_of_two_players_names_choose_whose_weights_are_dropped() -> None:
    game = {
        "data": {"name": "ring", "batch_size": 16},
        "model": {"name": "gan", "hidden": [8]},
        "optimizer": "adam",
        "trainer": {"epochs": 1, "device": "cpu"},
    }
    tricks = {"dropconnect": {"p": 0.3, "only": ["discriminator.*"]}}
    model = assemble(make_plan(check({**game, "regularizers": tricks}), read=False), "cpu").model
    dropped = {name.partition(".")[0] for name, m in model.named_modules() if hasattr(m, "drop")}
    assert dropped == {"discriminator"}
    with pytest.raises(PegboardError, match=r"dropconnect\.players\n.*before there are players"):
        check({**game, "regularizers": {"dropconnect": {"players": ["discriminator"]}}})
