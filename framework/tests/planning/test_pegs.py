"""Pegs change nothing until something hangs on them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from calls import count_calls
from pegboard import Peg
from pegboard.config.check import check
from pegboard.planning import plan as planning
from pegboard.planning.pegs import find, infer
from pegboard.planning.plan import assemble, make_plan
from torch import Tensor, nn
from torch.nn import functional


class Add(nn.Module):
    def __init__(self, amount: float) -> None:
        super().__init__()
        self.amount = nn.Parameter(torch.tensor(amount))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.amount


def test_an_empty_peg_returns_its_input_at_the_cost_of_one_call() -> None:
    x, with_pegs = torch.ones(2, 3), nn.Sequential(Peg("hidden", 3), Peg("affine", 3))
    without = nn.Sequential()
    assert with_pegs(x) is x
    assert count_calls(lambda: with_pegs(x)) - count_calls(lambda: without(x)) == 2
    assert not with_pegs.state_dict()


def test_what_hangs_acts_in_order_under_its_own_name() -> None:
    peg = Peg("hidden", 3)
    peg.add_module("first", Add(1.0))
    peg.add_module("second", nn.ReLU())
    assert torch.equal(peg(torch.tensor([-3.0, 1.0])), torch.tensor([0.0, 2.0]))
    assert list(nn.Sequential(peg).state_dict()) == ["0.first.amount"]


@pytest.mark.parametrize("layout, axis", [("NC", 1), ("NLC", 2), ("NCHW", 1), ("NHLL", 3)])
def test_a_peg_knows_the_axis_of_its_features(layout: str, axis: int) -> None:
    assert Peg("hidden", 3, layout).axis == axis


def test_sites_are_checked_and_plugins_may_add_their_own() -> None:
    with pytest.raises(ValueError, match="unknown peg site 'hiden'"):
        Peg("hiden", 3)
    assert "acme:gate" in repr(Peg("acme:gate", 3))


class Stranger(nn.Module):
    """A model from elsewhere: registered out of order, activations as functions, one layer shared."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 2)
        self.shared = nn.Linear(8, 8)
        self.conv = nn.Conv2d(1, 4, 3)
        self.middle = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv(x)).mean((2, 3))
        x = functional.relu(self.middle(x))
        x = functional.relu(self.shared(functional.relu(self.shared(x))))
        return self.head(x)  # type: ignore[no-any-return]


def test_inferred_pegs_follow_the_forward_pass_and_keep_names_and_numbers() -> None:
    model, x = Stranger(), torch.randn(2, 1, 5, 5)
    names, before = list(model.state_dict()), model(x)
    infer(model, x)
    assert list(model.state_dict()) == names
    assert torch.equal(model(x), before)
    assert {(n, p.site, p.features, p.layout) for n, p in find(model)} == {
        ("conv.peg_in", "input", 1, "NCHW"),
        ("conv.peg_out", "affine", 4, "NCHW"),
        ("middle.peg_in", "hidden", 4, "NC"),
        ("middle.peg_out", "affine", 8, "NC"),
        ("head.peg_in", "hidden", 8, "NC"),
    }


def test_what_hangs_on_inferred_pegs_acts_and_survives_a_copy() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)
    before = copy.deepcopy(model)
    infer(model)
    model.get_submodule("0.peg_out").add_module("add", Add(1.0))
    expected = before[2](functional.relu(before[0](x) + 1))
    assert torch.allclose(model(x), expected)
    twin = copy.deepcopy(model)
    twin.get_parameter("0.peg_out.add.amount").data.zero_()
    assert torch.allclose(twin(x), before(x))
    assert torch.allclose(model(x), expected)


def test_embeddings_and_three_axes_are_found() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5), nn.Linear(5, 2))
    infer(model, torch.zeros(2, 3, dtype=torch.long))
    sites = {(p.site, p.layout) for _, p in find(model)}
    assert sites == {("embedding", "NLC"), ("input", "NLC"), ("affine", "NLC"), ("hidden", "NLC")}


def test_a_model_with_pegs_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 4), Peg("hidden", 4))
    assert infer(model) is model
    assert [n for n, _ in find(model)] == ["1"]


def test_convolutions_of_every_dimension_have_a_layout() -> None:
    model = nn.Sequential(nn.Conv1d(1, 2, 1), nn.Conv3d(2, 2, 1), nn.Linear(2, 2))
    infer(model)
    assert [p.layout for _, p in find(model)] == ["NCL", "NCL", "NCDHW", "NCDHW", "NC"]


def test_a_model_with_pegs_compiles_into_one_graph() -> None:
    model = nn.Sequential(nn.Linear(3, 4), Peg("affine", 4), nn.ReLU(), Peg("hidden", 4))
    model[1].add_module("add", Add(1.0))
    explained = torch._dynamo.explain(model)(torch.randn(2, 3))
    assert explained.graph_break_count == 0


def test_what_hangs_takes_no_memory_on_the_meta_device(
    config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(check(config(regularizers={"drop": {}})), read=False)
    build, seen = planning._build_tricks, set()

    def watched(*args: Any) -> Any:
        tricks = build(*args)
        hang = tricks["drop"].hang

        def noting(peg: Peg) -> Any:
            seen.add(torch.empty(1).device.type)
            return hang(peg)

        tricks["drop"].hang = noting  # type: ignore[method-assign]
        return tricks

    monkeypatch.setattr(planning, "_build_tricks", watched)
    assemble(plan, "meta")
    assert seen == {"meta"}
