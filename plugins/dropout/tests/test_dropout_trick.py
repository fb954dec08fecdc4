"""The part: its record, what it hangs where, and what that costs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import points
import pytest
import torch
import torch.nn.functional as F
from calls import count_calls
from light import loaded
from pegboard import Context, Peg, PegboardError, Trick
from pegboard.config.check import check
from pegboard.planning.pegs import find, infer
from pegboard.planning.plan import assemble, make_plan
from pegboard_dropout import Dropout, build, pegboard_regularizers
from pegboard_dropout.trick import FeatureDropout
from torch import nn

Make = Callable[..., nn.Sequential]
Hang = Callable[..., list[str]]


def train(model: nn.Module, steps: int = 20) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(32, 6, generator=generator), torch.randint(3, (32,), generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    torch.manual_seed(5)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.state_dict()


def test_the_light_module_imports_neither_torch_nor_numpy() -> None:
    assert not loaded("import pegboard_dropout as p; p.pegboard_regularizers()")


def test_the_record_declares_what_the_trick_overrides() -> None:
    record = next(r for r in pegboard_regularizers() if r.name == "dropout")
    trick = type(record.build(Dropout(), Context()))
    assert set(record.stages) == {name for name in vars(trick) if name in vars(Trick) and name[0] != "_"}
    assert (record.name, record.stages["hang"], record.after) == ("dropout", "drop", ("batchnorm",))


def test_hangs_on_the_sites_it_is_given_and_nowhere_else(mlp: Make, hang: Hang) -> None:
    model = mlp(6, 5, 4, 3)
    assert hang(model, Dropout()) == ["4", "8"]
    assert [type(peg.dropout) for _, peg in find(model) if peg.site == "hidden"] == [nn.Dropout] * 2
    assert hang(mlp(6, 5, 4, 3), Dropout(sites=("input", "affine"))) == ["0", "2", "6"]


@pytest.mark.catalogue("S3-131", "S4-151")
def test_a_model_that_a_config_builds_has_a_new_mask_in_each_pass_and_none_in_evaluation() -> None:
    def assembled(p: float) -> nn.Module:
        x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        config = points.given(
            x, values=x[:, :1], model={"name": "mlp", "hidden": [500], "activation": "sigmoid"},
            regularizers={"dropout": {"p": p}},
        )  # fmt: skip
        return assemble(make_plan(check(config), read=True), "cpu").model

    x, net = torch.randn(200, 3), assembled(0.3)
    whole = net.eval().body(x)  # type: ignore[operator]
    assert torch.equal(whole, net.body(x)) and whole.min() > 0  # type: ignore[operator]
    net.train()
    first, second = net.body(x), net.body(x)  # type: ignore[operator]
    for passed in (first, second):
        kept = passed != 0
        torch.testing.assert_close(passed[kept], whole[kept] / 0.7)
        assert abs(kept.float().mean().item() - 0.7) < 3 * (0.7 * 0.3 / kept.numel()) ** 0.5
    assert 0.3 < ((first != 0) != (second != 0)).float().mean() < 0.5  # 2 * 0.7 * 0.3 of the units
    # A unit that was dropped gets no gradient, and gives none to its weights.
    one = net.body(x[:1])  # type: ignore[operator]
    weight = net.get_parameter("body.1.weight")
    (slope,) = torch.autograd.grad(one.sum(), weight)
    assert torch.equal((slope != 0).any(1), (one != 0)[0])
    nothing = assembled(0.0)  # all units kept
    assert torch.equal(nothing.train().body(x), nothing.eval().body(x))  # type: ignore[operator]


@pytest.mark.catalogue("S3-134")
def test_the_recommended_shares_are_the_default(mlp: Make, hang: Hang) -> None:
    model = mlp(6, 5, 3)
    hang(model, Dropout(sites=("input", "affine", "hidden")))
    shares = {peg.site: [m.p for m in peg.children()] for _, peg in find(model)}
    assert shares == {"input": [0.2], "affine": [0.5], "hidden": [0.5]}
    own = mlp(6, 5, 3)
    hang(own, Dropout(p=0.3, sites=("input", "hidden")))
    assert {m.p for _, peg in find(own) for m in peg.children()} == {0.3}
    image = Peg("input", 3, "NCHW")
    hung = build(Dropout(form="feature", sites=("input",)), Context()).hang(image)
    assert isinstance(hung, FeatureDropout) and hung.p == 0.2


@pytest.mark.parametrize("form", ["element", "feature"])
def test_strength_zero_is_bit_identical_to_absent(mlp: Make, hang: Hang, form: Any) -> None:
    torch.manual_seed(0)
    plain = mlp(6, 5, 4, 3)
    zero = copy.deepcopy(plain)
    assert hang(zero, Dropout(p=0, form=form, sites=("input", "hidden")))
    expected, found = train(plain), train(zero)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    assert torch.equal(torch.get_rng_state(), after)  # the seed of `train`: nothing was drawn


@pytest.mark.catalogue("S3-131", "S4-151")
def test_training_equals_torch_dropout_written_by_hand(mlp: Make, hang: Hang) -> None:
    torch.manual_seed(0)
    ours = mlp(6, 5, 4, 3)
    linears = [copy.deepcopy(m) for m in ours if isinstance(m, nn.Linear)]
    a, b, c = linears
    theirs = nn.Sequential(a, nn.ReLU(), nn.Dropout(0.3), b, nn.ReLU(), nn.Dropout(0.3), c)
    hang(ours, Dropout(0.3))
    assert all(torch.equal(x, y) for x, y in zip(train(ours).values(), train(theirs).values(), strict=True))


def test_works_on_a_module_without_pegs(hang: Hang) -> None:
    class Foreign(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model = Foreign()
    plain, x = copy.deepcopy(model), torch.randn(16, 6)
    infer(model, x)
    assert hang(model, Dropout(0.3)) == ["second.peg_in", "last.peg_in"]
    assert model.state_dict().keys() == plain.state_dict().keys()
    torch.manual_seed(1)
    found = model(x)
    torch.manual_seed(1)
    hidden = F.dropout(torch.tanh(plain.first(x)), 0.3)
    assert torch.equal(found, plain.last(F.dropout(torch.tanh(plain.second(hidden)), 0.3)))
    assert torch.equal(model.eval()(x), plain(x))


@pytest.mark.parametrize(
    ("layout", "shape", "axis"),
    [
        ("NCL", (64, 16, 5), 1),
        ("NCHW", (64, 16, 3, 4), 1),
        ("NCDHW", (64, 16, 2, 3, 2), 1),
        ("NLC", (64, 5, 16), 2),
        ("NHWC", (64, 3, 4, 16), 3),
    ],
)
def test_feature_form_follows_the_layout_of_the_peg(layout: str, shape: tuple[int, ...], axis: int) -> None:
    peg = Peg("hidden", 16, layout)
    module = build(Dropout(0.5, form="feature"), Context()).hang(peg)
    assert isinstance(module, FeatureDropout)
    torch.manual_seed(0)
    rows = module(torch.ones(shape)).movedim(axis, 1).flatten(2)
    assert torch.equal(rows.amin(-1), rows.amax(-1))
    assert set(rows.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(module.eval()(torch.ones(shape)), torch.ones(shape))


def test_feature_form_is_plain_dropout_where_a_feature_is_one_number() -> None:
    assert type(build(Dropout(form="feature"), Context()).hang(Peg("hidden", 4))) is nn.Dropout


def test_feature_form_refuses_a_peg_without_features() -> None:
    peg, config = Peg("attention", 4, "NHLL"), Dropout(sites=("attention",), form="feature")
    with pytest.raises(PegboardError, match=r"'NHLL'.*has no feature axis.*form: element"):
        build(config, Context()).hang(peg)
    assert build(Dropout(sites=("attention",)), Context()).hang(peg) is not None


@pytest.mark.parametrize(("form", "layout", "body"), [("element", "NC", 0), ("feature", "NLC", 2)])
def test_costs_at_most_five_python_calls_and_its_body(hang: Hang, form: Any, layout: str, body: int) -> None:
    empty, full = Peg("hidden", 4, layout), Peg("hidden", 4, layout)
    hang(full, Dropout(form=form))
    x = torch.ones([2] * len(layout))
    assert 0 < count_calls(lambda: full(x)) - count_calls(lambda: empty(x)) <= 5 + body


def test_a_step_runs_on_the_meta_device(mlp: Make, hang: Hang) -> None:
    model = mlp(6, 5, 3)
    hang(model, Dropout(sites=("input", "hidden")))
    loss = model.to("meta")(torch.zeros(4, 6, device="meta")).sum()
    loss.backward()
    assert loss.device.type == "meta"
