"""The part: its record, its two modes, and what they do beside every optimizer."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from light import loaded
from pegboard import Batch, Context, Peg, PegboardError, Trick
from pegboard.planning.pegs import infer
from pegboard_weight_decay import WeightDecay, build, pegboard_regularizers
from torch import Tensor, nn

Fit = Callable[..., nn.Module]
Groups = Callable[[nn.Module], list[dict[str, Any]]]


class Pegged(nn.Module):
    """A small network with pegs, on one of which a normalisation hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), Peg("affine", 8), nn.ReLU(), Peg("hidden", 8))
        self.body[1].add_module("batchnorm", nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class Foreign(nn.Module):
    """A module of somebody else's, without pegs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))  # type: ignore[no-any-return]


def problem(model: nn.Module) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(32, 6, generator=generator), torch.randint(3, (32,), generator=generator)
    x = x.to(next(model.parameters()).dtype)
    return lambda: F.cross_entropy(model(x), y)


def make(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return Pegged().double() if kind == "pegged" else infer(Foreign().double(), torch.zeros(2, 6).double())


def test_the_light_module_imports_neither_torch_nor_numpy() -> None:
    assert not loaded("import pegboard_weight_decay as p; p.pegboard_regularizers()")


def overridden(config: WeightDecay) -> set[str]:
    trick = type(build(config, Context()))
    return {name for name in vars(trick) if name in vars(Trick) and name[0] != "_"} - {"formula"}


def test_the_record_declares_what_the_modes_override() -> None:
    (record,) = pegboard_regularizers()
    assert record.name == "weight_decay"
    assert record.stages == {"edit_groups": "decay", "edit_loss": "term"}
    assert overridden(WeightDecay()) == {"edit_groups"}
    assert overridden(WeightDecay(mode="l2")) == {"edit_groups", "edit_loss"}


@pytest.mark.parametrize("kind", ["pegged", "foreign"])
def test_only_weights_decay_by_default(kind: str, groups_of: Groups) -> None:
    model = make(kind)
    decayed, rest = build(WeightDecay(0.1), Context()).edit_groups(groups_of(model))
    assert decayed["decoupled_decay"] == 0.1 and "decoupled_decay" not in rest
    assert all(
        p.dim() == 2 and name.endswith("weight")
        for name, p in zip(decayed["names"], decayed["params"], strict=True)
    )
    assert len(decayed["names"]) == 2
    assert sorted(decayed["names"] + rest["names"]) == sorted(n for n, _ in model.named_parameters())
    own = dict(model.named_parameters())
    assert all(own[n] is p for g in (decayed, rest) for n, p in zip(g["names"], g["params"], strict=True))


@pytest.mark.catalogue("S3-037")
@pytest.mark.parametrize("mode", ["decoupled", "l2"])
@pytest.mark.parametrize("kind", ["pegged", "foreign"])
def test_both_modes_equal_torch_under_plain_sgd(kind: str, mode: Any, fit: Fit) -> None:
    ours, theirs = make(kind), make(kind)
    fit(ours, WeightDecay(0.3, mode), lambda g: torch.optim.SGD(g, 0.1), problem(ours), 30)
    weights = [p for p in theirs.parameters() if p.dim() == 2]
    others = [p for p in theirs.parameters() if p.dim() != 2]
    split = [{"params": weights, "weight_decay": 0.3}, {"params": others}]
    fit(theirs, None, lambda g: torch.optim.SGD(split, 0.1), problem(theirs), 30)
    for found, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["pegged", "foreign"])
def test_decoupled_decay_makes_adamw_of_adam_at_every_rate_of_a_schedule(kind: str, fit: Fit) -> None:
    def schedule(step: int) -> float:
        return 1 / (1 + step)

    ours, theirs, plain = make(kind), make(kind), make(kind)
    fit(ours, WeightDecay(0.3), lambda g: torch.optim.Adam(g, 0.05), problem(ours), 30, schedule)
    split = [
        {"params": [p for p in theirs.parameters() if p.dim() == 2], "weight_decay": 0.3},
        {"params": [p for p in theirs.parameters() if p.dim() != 2], "weight_decay": 0.0},
    ]
    fit(theirs, None, lambda g: torch.optim.AdamW(split, 0.05), problem(theirs), 30, schedule)
    fit(plain, None, lambda g: torch.optim.Adam(g, 0.05), problem(plain), 30, schedule)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert any((a - b).abs().max() > 1e-3 for a, b in zip(ours.parameters(), plain.parameters(), strict=True))


def test_the_modes_differ_under_adam(fit: Fit) -> None:
    decoupled, term = make("pegged"), make("pegged")
    fit(decoupled, WeightDecay(0.1), lambda g: torch.optim.Adam(g, 0.01), problem(decoupled), 30)
    fit(term, WeightDecay(0.1, "l2"), lambda g: torch.optim.Adam(g, 0.01), problem(term), 30)
    pairs = list(zip(decoupled.parameters(), term.parameters(), strict=True))
    assert max((a - b).abs().max().item() for a, b in pairs) > 1e-4


OPTIMIZERS = [
    getattr(torch.optim, name)
    for name in (
        "Adadelta",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "ASGD",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
    )
] + [torch.optim.SGD, torch.optim.Adafactor]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_decoupled_decay_shrinks_by_the_rate_beside_every_optimizer(
    optimizer: Any, groups_of: Groups
) -> None:
    """The key survives in the groups, and one step is the step without decay from shrunken weights."""
    model = make("pegged").float()
    twin = copy.deepcopy(model)
    groups = build(WeightDecay(0.5), Context()).edit_groups(groups_of(model))
    made = optimizer([{k: v for k, v in g.items() if k != "names"} for g in groups], lr=0.1)
    assert [g.get("decoupled_decay") for g in made.param_groups] == [0.5, None]
    assert [g.get("decoupled_decay") for g in made.state_dict()["param_groups"]] == [0.5, None]
    problem(model)().backward()
    problem(twin)().backward()
    with torch.no_grad():
        for group in made.param_groups:
            torch._foreach_mul_(group["params"], 1 - group["lr"] * group.get("decoupled_decay", 0))
        for p in twin.parameters():
            p.mul_(0.95 if p.dim() == 2 else 1.0)
    made.step()
    optimizer(twin.parameters(), lr=0.1).step()
    for found, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("mode", ["decoupled", "l2"])
def test_strength_zero_is_bit_identical_to_absent(mode: Any, fit: Fit, groups_of: Groups) -> None:
    zero, absent = make("pegged"), make("pegged")
    groups, loss = groups_of(zero), torch.tensor(float("nan"))
    trick = build(WeightDecay(0, mode), Context())
    assert trick.edit_groups(groups) is groups
    assert mode == "decoupled" or trick.edit_loss(loss, None, Batch(())) is loss
    assert trick.formula("loss") == "loss"
    fit(zero, WeightDecay(0, mode), lambda g: torch.optim.Adam(g, 0.05), problem(zero), 20)
    fit(absent, None, lambda g: torch.optim.Adam(g, 0.05), problem(absent), 20)
    assert all(torch.equal(a, b) for a, b in zip(zero.parameters(), absent.parameters(), strict=True))


def test_asking_for_everything_leaves_one_group(groups_of: Groups) -> None:
    (group,) = build(WeightDecay(0.1, bias=True, norm=True), Context()).edit_groups(groups_of(make("pegged")))
    assert len(group["params"]) == 6


def test_nothing_to_decay_is_an_error_that_names_what_there_is(groups_of: Groups) -> None:
    for mode in ("decoupled", "l2"):
        config = WeightDecay(0.1, mode)  # type: ignore[arg-type]
        with pytest.raises(PegboardError, match=r"2 of kind norm\. Set bias: true, norm: true"):
            build(config, Context()).edit_groups(groups_of(nn.LayerNorm(4)))


def test_the_term_counts_every_parameter_once_over_players_and_repeated_calls(groups_of: Groups) -> None:
    one, two = nn.Linear(3, 2), nn.Linear(2, 1)
    trick: Any = build(WeightDecay(2.0, "l2"), Context())
    for model in (one, two, one):
        assert trick.edit_groups(groups := groups_of(model)) is groups
    expected = one.weight.square().sum() + two.weight.square().sum()
    torch.testing.assert_close(trick.edit_loss(torch.tensor(0.0), None, Batch(())), expected)
    assert trick.formula("mse") == "mse + 2/2 ||w||^2"


def test_the_term_costs_at_most_five_python_calls(groups_of: Groups) -> None:
    trick = build(WeightDecay(0.1, "l2"), Context())
    trick.edit_groups(groups_of(Pegged()))
    loss, batch, calls = torch.zeros(()), Batch(()), 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(profile)
    try:
        trick.edit_loss(loss, None, batch)
    finally:
        sys.setprofile(None)
    assert 0 < calls <= 5


@pytest.mark.parametrize("mode", ["decoupled", "l2"])
def test_a_step_runs_on_the_meta_device(mode: Any, fit: Fit) -> None:
    model = Foreign().to("meta")
    x = torch.zeros(4, 6, device="meta")
    fit(model, WeightDecay(0.1, mode), lambda g: torch.optim.SGD(g, 0.1), lambda: model(x).mean(), 1)
    assert model.last.weight.grad is not None


@pytest.mark.parametrize("mode", ["decoupled", "l2"])
def test_names_choose_what_decays(mode: Any, groups_of: Groups) -> None:
    model = Pegged()
    trick: Any = build(WeightDecay(value=0.1, mode=mode, only=("body.0.*",)), Context())
    groups = trick.edit_groups(groups_of(model))
    if mode == "decoupled":
        chosen = [name for g in groups if g.get("decoupled_decay") for name in g["names"]]
        assert chosen == ["body.0.weight"]
    else:
        assert [id(p) for p in trick.params] == [id(model.body[0].weight)]
    nobody: Any = build(WeightDecay(value=0.1, mode=mode, only=("tail.*",)), Context())
    with pytest.raises(PegboardError, match=r"whose name fits tail\.\*"):
        nobody.edit_groups(groups_of(model))
