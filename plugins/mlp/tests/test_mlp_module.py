"""The modules, used without the framework."""

import sys
from collections import OrderedDict
from itertools import pairwise
from typing import get_args

import pegboard_mlp
import pytest
import torch
from pegboard import Peg
from pegboard_mlp.constructions import collapse, depth, permuted
from pegboard_mlp.modules import Dense, LinearModel, Mlp
from torch import nn

FORMS = get_args(pegboard_mlp.Form)
ACTIVATIONS = get_args(pegboard_mlp.Activation)


def set_linears(model, *pairs):
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert len(linears) == len(pairs)
    with torch.no_grad():
        for linear, (weight, bias) in zip(linears, pairs, strict=True):
            linear.weight.copy_(torch.as_tensor(weight))
            if bias is not None:
                linear.bias.copy_(torch.as_tensor(bias))


def count(model):
    return sum(p.numel() for p in model.parameters())


def pegs(model):
    return [(m.site, m.features) for m in model.modules() if isinstance(m, Peg)]


@pytest.mark.catalogue("S01")
@pytest.mark.parametrize("hidden", [(), (4,), (4, 3, 5)])
def test_a_relu_network_has_a_relu_less_than_affine_layers_and_any_sign(hidden):
    torch.manual_seed(0)
    model = Mlp(3, hidden, 2)
    kinds = [type(m) for m in model.modules()]
    assert kinds.count(nn.Linear) == len(hidden) + 1 and kinds.count(nn.ReLU) == len(hidden)
    sizes = [(m.in_features, m.out_features) for m in model.modules() if isinstance(m, nn.Linear)]
    assert sizes == list(pairwise((3, *hidden, 2)))
    y = model(5 * torch.randn(500, 3))
    assert (y < 0).any() and (y > 0).any()


@pytest.mark.catalogue("T009", "S3-070", "S01")
def test_plain_is_the_composition_of_its_layers():
    model = Mlp(4, [6], 3).double()
    assert count(model) == 51 and depth(model) == 2
    deep = Mlp(4, [5, 7], 2, "tanh").double()
    assert count(deep) == 5 * 5 + 7 * 6 + 2 * 8
    x = torch.randn(9, 4, dtype=torch.float64)
    h = x
    for layer in (deep.body[1], deep.body[5]):
        h = torch.tanh(h @ layer.weight.T + layer.bias)
    torch.testing.assert_close(deep(x), h @ deep.head.weight.T + deep.head.bias, atol=1e-12, rtol=0)
    # The output layer has no activation, so it can be negative, and a unit reads its own row alone.
    assert sum(isinstance(m, nn.Tanh) for m in deep.modules()) == 2
    assert sum(isinstance(m, nn.Linear) for m in deep.modules()) == 3
    before = deep(x)
    assert (before < 0).any()
    with torch.no_grad():
        deep.head.weight[0] = 0
    after = deep(x)
    assert torch.equal(after[:, 1], before[:, 1]) and not torch.equal(after[:, 0], before[:, 0])


def test_parameter_names_are_stable():
    assert list(Mlp(4, [6, 5], 3).state_dict()) == [
        "body.1.weight",
        "body.1.bias",
        "body.5.weight",
        "body.5.bias",
        "head.weight",
        "head.bias",
    ]
    assert list(Mlp(4, [4, 5], 3, form="residual", bias=False).state_dict()) == [
        "body.1.branch.0.weight",
        "body.2.branch.0.weight",
        "body.2.project.weight",
        "head.weight",
    ]
    assert list(Mlp(4, [6], 3, form="dense").state_dict()) == [
        "body.1.branch.0.weight",
        "body.1.branch.0.bias",
        "head.weight",
        "head.bias",
    ]
    assert list(LinearModel(4, 3).state_dict()) == ["head.weight", "head.bias"]


def test_unfilled_pegs_change_neither_weights_nor_outputs():
    torch.manual_seed(0)
    model = Mlp(4, [6, 5], 3)
    torch.manual_seed(0)
    bare = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    for mine, theirs in zip(model.parameters(), bare.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    x = torch.randn(7, 4)
    assert torch.equal(model(x), bare(x))


def python_calls(function, *args):
    calls = 0

    def count_call(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return calls


def test_a_plain_forward_pass_makes_one_more_python_call_for_each_peg():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU())
            self.head = nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.body(x))

    x = torch.randn(7, 4)
    model = Mlp(4, [6, 5], 3)
    extra = python_calls(model, x) - python_calls(Bare(), x)
    assert extra == len(pegs(model))


def test_pegs_stand_where_the_sites_say():
    plain = Mlp(4, [6, 5], 3)
    assert pegs(plain) == [
        ("input", 4),
        ("affine", 6),
        ("hidden", 6),
        ("affine", 5),
        ("hidden", 5),
        ("logits", 3),
    ]
    residual = Mlp(4, [6], 3, form="residual")
    assert pegs(residual) == [("input", 4), ("affine", 6), ("hidden", 6), ("residual", 6), ("logits", 3)]
    dense = Mlp(4, [6, 5], 3, form="dense")
    assert [p for p in pegs(dense) if p[0] == "affine"] == [("affine", 6), ("affine", 5)]
    assert pegs(Mlp(4, [6], 3, "glu"))[1:3] == [("affine", 12), ("hidden", 6)]
    assert pegs(LinearModel(4, 3)) == [("input", 4), ("logits", 3)]


@pytest.mark.parametrize("form", FORMS)
def test_every_peg_is_used_in_the_forward_pass_with_the_features_it_declares(form):
    model = Mlp(4, [6, 6, 5], 3, form=form)
    seen = []
    for peg in (m for m in model.modules() if isinstance(m, Peg)):
        look = nn.Identity()
        look.register_forward_hook(lambda _, x, y, peg=peg: seen.append((peg.site, peg.features, y.shape[1])))
        peg.add_module("look", look)
    model(torch.randn(2, 4))
    assert sorted(s[:2] for s in seen) == sorted(pegs(model))
    assert all(declared == found for _, declared, found in seen)


@pytest.mark.parametrize(
    "model", [LinearModel(12, 1), *(Mlp(12, [5], 1, form=f) for f in FORMS), Mlp(12, [], 1)]
)
def test_inputs_of_any_shape_are_flattened_and_one_output_keeps_its_axis(model):
    x = torch.randn(6, 3, 2, 2)
    assert model(x).shape == (6, 1)
    assert torch.equal(model(x), model(x.flatten(1)))


def test_without_hidden_layers_it_is_a_linear_model():
    model = Mlp(4, [], 2, form="residual")
    x = torch.randn(3, 4)
    assert torch.equal(model(x), nn.functional.linear(x, model.head.weight, model.head.bias))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_combination_trains_every_parameter_on_cpu_and_runs_on_meta(activation, form):
    torch.manual_seed(1)
    model = Mlp(4, [6, 6, 5], 3, activation, form=form)
    output = model(10 * torch.randn(64, 4))
    output.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    with torch.device("meta"):
        ghost = Mlp(4, [6, 6, 5], 3, activation, form=form)
    assert all(p.is_meta for p in ghost.parameters())
    assert [p.shape for p in ghost.parameters()] == [p.shape for p in model.parameters()]
    ghost(torch.zeros(64, 4, device="meta")).square().mean().backward()
    assert all(p.grad.is_meta for p in ghost.parameters())


@pytest.mark.parametrize("form", FORMS)
def test_bias_off_leaves_no_bias(form):
    assert not [n for n, _ in Mlp(4, [6, 5], 3, form=form, bias=False).named_parameters() if "bias" in n]
    assert [n for n, _ in LinearModel(4, 3, bias=False).named_parameters()] == ["head.weight"]


def test_linear_may_start_from_zero():
    model = LinearModel(4, 3, init="zeros")
    assert torch.equal(model(torch.randn(5, 4)), torch.zeros(5, 3))
    assert LinearModel(4, 3)(torch.randn(5, 4)).abs().sum() > 0


def test_unknown_choices_are_refused():
    with pytest.raises(ValueError, match="unknown form 'resnet'"):
        Mlp(4, [6], 3, form="resnet")
    with pytest.raises(ValueError, match="unknown init 'ones'"):
        LinearModel(4, 3, init="ones")


@pytest.mark.catalogue("T006", "T008", "S4-025")
def test_a_layer_is_neurons_side_by_side():
    neuron = Mlp(5, [1], 1, "tanh").double()
    x = torch.randn(8, 5, dtype=torch.float64)
    a, b = neuron.body[1].weight, neuron.body[1].bias
    assert a.numel() + b.numel() == 6
    torch.testing.assert_close(neuron.body(x)[:, 0], torch.tanh((x * a[0]).sum(1) + b), atol=1e-7, rtol=0)
    layer = Mlp(3, [4], 1, "tanh").double()
    weight, bias = layer.body[1].weight, layer.body[1].bias
    assert weight.shape == (4, 3) and bias.shape == (4,) and weight.numel() + bias.numel() == 16
    y = x[:, :3]
    assert torch.equal(layer.body(y), torch.tanh(nn.functional.linear(y, weight, bias)))
    stacked = torch.stack([torch.tanh(y @ weight[i] + bias[i]) for i in range(4)], 1)
    torch.testing.assert_close(layer.body(y), stacked)
    torch.testing.assert_close(layer.body(y), torch.cat([layer.body(row[None]) for row in y]))


@pytest.mark.catalogue("T011")
def test_worked_example_of_a_3_5_2_net():
    model = Mlp(3, [5], 2)
    set_linears(
        model,
        ([[4.0, 2, -5], [5, 4, 6], [0, 3, 2], [2, 2, -3], [-7, 1, -4]], [-2.0, 3, 5, -2, 7]),
        ([[-2.0, 6, 2, -5, 0], [-3, 0, 6, 1, 2]], [-3.0, -1]),
    )
    x = torch.tensor([[1.0, 0, 6]])
    assert model.body(x).tolist() == [[0, 44, 17, 0, 0]]
    assert model(x).tolist() == [[295, 101]]
    assert count(model) == 32


@pytest.mark.catalogue("T019")
def test_a_bias_free_3_2_4_net():
    model = Mlp(3, [2], 4, bias=False)
    set_linears(model, ([[1.0, 2, 3], [3, 4, 5]], None), ([[1.0, 1], [2, 2], [1, 1], [2, 2]], None))
    assert model(torch.ones(1, 3)).tolist() == [[18, 36, 18, 36]]
    assert model(torch.tensor([[1.0, -1, 0]])).tolist() == [[0, 0, 0, 0]]
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.load_state_dict(OrderedDict(model.state_dict()) | {"head.weight": torch.zeros(4, 3)})


@pytest.mark.catalogue("T020")
def test_two_relus_give_the_absolute_value_and_one_cannot():
    model = Mlp(1, [2], 1)
    set_linears(model, ([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]))
    x = torch.linspace(-10, 10, 1001)[:, None]
    assert torch.equal(model(x), x.abs())
    assert torch.equal(Mlp(1, [], 1).body(x), x)
    grid = torch.linspace(-1, 1, 201)[:, None]
    torch.manual_seed(0)
    for _ in range(50):
        single = Mlp(1, [1], 1)
        for p in single.parameters():
            nn.init.normal_(p, std=2)
        y = single(grid)[:, 0].detach()
        assert (y.diff() >= 0).all() or (y.diff() <= 0).all()
        assert (y - grid[:, 0].abs()).abs().max() >= 0.5 - 1e-6
    set_linears(single, ([[0.0]], [0.0]), ([[0.0]], [0.5]))  # the constant 1/2, which none does better than
    assert (single(grid) - grid.abs()).abs().max() == 0.5
    # Two for each number do it for a vector.
    pairs = Mlp(3, [6], 3)
    both = torch.cat([torch.eye(3), -torch.eye(3)])
    set_linears(pairs, (both, torch.zeros(6)), (both.abs().T, torch.zeros(3)))
    x = 10 * torch.randn(100, 3)
    assert torch.equal(pairs(x), x.abs())


@pytest.mark.catalogue("T021")
def test_without_bias_a_relu_net_is_positively_homogeneous():
    torch.manual_seed(0)
    model = Mlp(3, [8, 8], 2, bias=False)
    x = torch.randn(20, 3)
    for factor in (0, 0.5, 2, 10):
        torch.testing.assert_close(model(factor * x), factor * model(x), atol=1e-5, rtol=0)
    assert not torch.allclose(model(-x), model(x), atol=1e-3)
    # Second differences vanish but at the kinks, so that x^2 is out of reach.
    line = Mlp(1, [6], 1).double()
    x = torch.linspace(-1, 1, 2001, dtype=torch.float64)[:, None]
    y = line(x)[:, 0].detach()
    assert (y.diff(n=2).abs() > 1e-12).sum() <= 2 * 6
    assert (y - x[:, 0] ** 2).abs().max() > 1e-3


@pytest.mark.catalogue("T016", "S3-067")
def test_layers_without_nonlinearity_collapse_to_one_affine_map():
    model = Mlp(6, [5, 2, 7], 4, "identity").double()
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    a, b = torch.eye(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    for m in linears:
        a, b = m.weight @ a, m.weight @ b + m.bias
    x = torch.randn(10, 6, dtype=torch.float64)
    torch.testing.assert_close(model(x), x @ a.T + b, atol=1e-12, rtol=0)
    assert torch.linalg.matrix_rank(a) <= 2
    single = collapse(model)
    torch.testing.assert_close(single(x), model(x), atol=1e-12, rtol=0)
    torch.testing.assert_close(single.head.weight, a, atol=1e-12, rtol=0)
    torch.testing.assert_close(single.head.bias, b, atol=1e-12, rtol=0)


@pytest.mark.catalogue("S4-027")
def test_hidden_units_may_be_permuted():
    torch.manual_seed(0)
    model, x = Mlp(4, [6, 6], 3), torch.randn(10, 4)
    before = model(x)
    order = [1, 2, 0, 3, 4, 5]  # a cycle of three, which is not its own inverse
    for place in range(2):
        made = permuted(model, place, order)
        assert (made(x) - before).abs().max() < 1e-5
        mine, theirs = (
            [m for m in each.modules() if isinstance(m, nn.Linear)][place : place + 2]
            for each in (model, made)
        )
        assert torch.equal(theirs[0].weight, mine[0].weight[order])
        assert torch.equal(theirs[0].bias, mine[0].bias[order])
        assert torch.equal(theirs[1].weight, mine[1].weight[:, order])
        with torch.no_grad():  # the next layer as it was, and as the inverse order would have it
            theirs[1].weight.copy_(mine[1].weight)
            assert (made(x) - before).abs().max() > 1e-2
            theirs[1].weight[:, order] = mine[1].weight
            assert (made(x) - before).abs().max() > 1e-2
        model = permuted(model, place, order)
    assert (model(x) - before).abs().max() < 1e-5  # both layers at once


@pytest.mark.catalogue("S4-034")
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "softplus"])
def test_a_residual_layer_with_zero_weights_is_the_identity_bit_for_bit(activation):
    layer = Mlp(5, [5], 1, activation, form="residual").body
    for p in layer.parameters():
        nn.init.zeros_(p)
    x = torch.randn(9, 5)
    assert torch.equal(layer(x), x)
    jacobian = torch.autograd.functional.jacobian(layer, x[:1]).reshape(5, 5)
    assert torch.equal(jacobian, torch.eye(5))
    if activation == "sigmoid":
        del layer[1].branch[3]
        torch.testing.assert_close(layer(x), x + 0.5, atol=0, rtol=0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_residual_layers_are_the_identity_at_zero_for_every_activation(activation):
    layer = Mlp(5, [5, 5], 1, activation, form="residual", polynomial=(0.5, 1.0)).body.double()
    for name, p in layer.named_parameters():
        if p.ndim == 2 or "bias" in name:
            nn.init.zeros_(p)
    x = torch.randn(9, 5, dtype=torch.float64)
    torch.testing.assert_close(layer(x), x, atol=1e-14, rtol=0)


@pytest.mark.catalogue("S4-035")
def test_a_residual_layer_projects_where_widths_differ():
    wide = Mlp(4, [6], 1, "sigmoid", form="residual").body
    x = torch.randn(9, 4)
    assert wide(x).shape == (9, 6)
    block = wide[1]
    expected = x @ block.project.weight.T + torch.sigmoid(block.branch[0](x)) - 0.5
    torch.testing.assert_close(wide(x), expected)
    for p in block.branch.parameters():
        nn.init.zeros_(p)
    assert torch.equal(wide(x), block.project(x))
    same = Mlp(4, [4], 1, "sigmoid", form="residual").body
    assert same[1].project is None
    y = same(x)
    same[1].project = nn.Linear(4, 4, bias=False)
    nn.init.eye_(same[1].project.weight)
    assert torch.equal(same(x), y)


@pytest.mark.catalogue("S4-037")
def test_dense_layers_see_everything_before_them():
    model = Mlp(24, [12, 12, 12, 12], 2, form="dense", bias=False)
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert [m.in_features for m in linears] == [24, 36, 48, 60, 72]
    assert sum(m.weight.numel() for m in linears[:-1]) == 2016
    x = torch.randn(5, 24)
    seen = [x]
    for linear in linears[:-1]:
        seen.append(torch.relu(linear(torch.cat(seen, 1))))
    torch.testing.assert_close(model(x), linears[-1](torch.cat(seen, 1)))
    # The output has a derivative by each of what is side by side before the head, all else held fixed.
    whole, features = model(x), model.body(x)
    jacobian = torch.autograd.functional.jacobian(model.head, features[:1])[0, :, 0]
    for block in jacobian.split([24, 12, 12, 12, 12], dim=1):
        assert (block != 0).all()
    # Without one of the activations the output is another, and so is every layer after it.
    dense = [m for m in model.modules() if isinstance(m, Dense)]
    assert len(dense) == 4
    for place, layer in enumerate(dense):
        handle = layer.branch.register_forward_hook(lambda module, given, out: torch.zeros_like(out))
        assert not torch.allclose(model(x), whole)
        there = [a != b for a, b in zip(model.body(x).split(12, -1), features.split(12, -1), strict=True)]
        assert [bool(changed.any()) for changed in there] == [False] * (2 + place) + [True] * (4 - place)
        handle.remove()
    assert torch.equal(model(x), whole) and not torch.allclose(model(torch.zeros_like(x)), whole)
