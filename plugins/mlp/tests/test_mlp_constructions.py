"""Networks whose weights are known, and operations that are exact."""

from pathlib import Path

import pegboard
import pytest
import torch
from pegboard import Peg
from pegboard_mlp import constructions
from pegboard_mlp.constructions import (
    absolute_value,
    add,
    affine,
    as_sigmoid,
    as_tanh,
    collapse,
    compose,
    depth,
    first_layers,
    hyperplanes,
    layers,
    network,
    permuted,
    piecewise_linear,
    tent,
)
from pegboard_mlp.modules import LinearModel, Mlp
from points import given, run
from torch import nn

F64 = torch.float64


def close(a, b, at_most):
    assert (a - b).abs().max() <= at_most, (a - b).abs().max()


def slopes(model, cells):
    """The slope of a network of one input in the middle of each of equal cells of [0, 1]."""
    x = ((torch.arange(cells, dtype=F64) + 0.5) / cells)[:, None].requires_grad_()
    return torch.autograd.grad(model(x).sum(), x)[0][:, 0]


def pieces(model, cells):
    """Pieces on [0, 1] of a line whose kinks lie between cells."""
    return 1 + int((slopes(model, cells).diff().abs() > 1e-9).sum())


def kinks(model, low=-30.0, high=30.0, cells=60_001):
    """Kinks of a network of one input in an interval, at most one in each small cell."""
    x = torch.linspace(low, high, cells, dtype=F64)[:, None].requires_grad_()
    slope = torch.autograd.grad(model(x).sum(), x)[0][:, 0]
    return int((slope.diff().abs() > 1e-9).sum())


@pytest.mark.parametrize("features", [1, 3])
def test_the_absolute_value_is_exact(features):
    model = absolute_value(features)
    x = 10 * torch.randn(100, features)
    assert torch.equal(model(x), x.abs())
    assert model.hidden == (2 * features,) and model.head.weight.dtype == torch.get_default_dtype()


@pytest.mark.catalogue("S02")
@pytest.mark.parametrize(
    ("f", "g"), [((5,), (4,)), ((5, 3), (4,)), ((), (6, 2)), ((), ()), ((7, 5, 4), (2, 9))]
)
def test_sums_and_compositions_of_relu_networks_are_relu_networks(f, g):
    one, two = Mlp(3, f, 3, output_bias=False).double(), Mlp(3, g, 3).double()
    x = 3 * torch.randn(1000, 3, dtype=F64)
    total, inside = add(one, two), compose(one, two)
    for made in (total, inside):
        assert type(made) is Mlp and made.form == "plain" and made.activation == "relu"
    close(total(x), one(x) + two(x), 1e-6)
    close(inside(x), one(two(x)), 1e-6)
    assert depth(total) == max(depth(one), depth(two))
    assert depth(inside) == depth(one) + depth(two) - 1
    if len(f) == len(g):
        assert total.hidden == tuple(a + b for a, b in zip(f, g, strict=True))
    assert inside.hidden == (*g, *f)


def test_networks_that_have_no_exact_sum_or_composition_are_refused():
    with pytest.raises(ValueError, match="have no sum"):
        add(Mlp(3, [2], 1), Mlp(4, [2], 1))
    with pytest.raises(ValueError, match="gives 2 numbers and the outer reads 3"):
        compose(Mlp(3, [2], 1), Mlp(4, [2], 2))
    with pytest.raises(ValueError, match="activations differ: relu and tanh"):
        add(Mlp(3, [2], 1), Mlp(3, [2], 1, "tanh"))
    with pytest.raises(ValueError, match="where they are equally deep"):
        add(Mlp(3, [2], 1, "tanh"), Mlp(3, [2, 2], 1, "tanh"))
    for pair in ((Mlp(3, [], 1), Mlp(3, [2], 1, "tanh")), (Mlp(3, [2], 1, "sigmoid"), Mlp(3, [], 1))):
        with pytest.raises(ValueError, match="where they are equally deep"):
            add(*pair)  # an affine map is no sum of such units
    with pytest.raises(ValueError, match="not one fixed function"):
        add(Mlp(3, [2], 1, "glu"), Mlp(3, [2], 1, "glu"))
    for form in ("residual", "dense"):
        with pytest.raises(ValueError, match=f"plain network .* got form '{form}'"):
            layers(Mlp(3, [2], 1, form=form))
    hung = Mlp(3, [2], 1)
    hung.body[4].add_module("drop", nn.Dropout())
    with pytest.raises(ValueError, match="hangs on the pegs"):
        layers(hung)
    with pytest.raises(ValueError, match="no affine map"):
        collapse(Mlp(3, [2], 1))
    with pytest.raises(ValueError, match="network of tanh, got one of relu"):
        as_sigmoid(Mlp(3, [2], 1))
    with pytest.raises(ValueError, match="two knots that increase"):
        piecewise_linear([0, 0, 1], [1, 2, 3])
    with pytest.raises(ValueError, match="0 to 1 in some order"):
        permuted(Mlp(3, [2], 1), 0, [1, 1])


@pytest.mark.catalogue("S09")
def test_a_line_of_m_pieces_takes_m_units_and_k_units_bend_at_most_k_times():
    model = piecewise_linear([-2, -1, 0, 2, 3], [0, 1, -1, 0, 3])
    assert model.hidden == (4,)
    at = torch.tensor([-2.0, -1, 0, 2, 3, 5, -7])[:, None]
    close(model(at)[:, 0], torch.tensor([0.0, 1, -1, 0, 3, 9, -5]), 1e-6)
    for m in (2, 3, 7):
        knots = torch.randn(m + 1, dtype=F64).sort().values.cumsum(0)
        knots = torch.cat((knots[:1], knots[:1] + torch.rand(m, dtype=F64).add(0.1).cumsum(0)))
        values = torch.randn(m + 1, dtype=F64)
        line = piecewise_linear(knots, values, dtype=F64)
        assert line.hidden == (m,) and depth(line) == 2
        close(line(knots[:, None])[:, 0], values, 1e-6)
        middle = (knots[1:] + knots[:-1]) / 2
        close(line(middle[:, None])[:, 0], (values[1:] + values[:-1]) / 2, 1e-6)
    assert piecewise_linear([0, 2], [1, 5]).hidden == ()
    for width in (1, 2, 5, 9):
        for _ in range(5):
            random = Mlp(1, [width], 1).double()
            assert kinks(random) <= width
    assert kinks(piecewise_linear([-2, -1, 0, 2, 3], [0, 1, -1, 0, 3], dtype=F64)) == 3


@pytest.mark.catalogue("S4-048")
def test_lines_as_sums_of_relus_approximate_at_the_rate_of_the_second_derivative():
    knots = torch.tensor([0.0, 0.15, 0.3, 0.55, 0.8, 1.0], dtype=F64)
    values = torch.tensor([0.3, -1.0, 0.7, 0.2, 2.0, -0.5], dtype=F64)
    five = piecewise_linear(knots, values, skip=True, dtype=F64)
    assert five.hidden == (4,) and five.form == "dense"
    x = torch.linspace(-1, 2, 3001, dtype=F64)
    plain = piecewise_linear(knots, values, dtype=F64)
    inside = (x >= 0) & (x <= 1)
    at = torch.searchsorted(knots, x[inside].clamp(1e-9)) - 1
    share = (x[inside] - knots[at]) / (knots[at + 1] - knots[at])
    expected = values[at] + share * (values[at + 1] - values[at])
    close(five(x[inside, None])[:, 0], expected, 1e-12)
    close(five(x[:, None]), plain(x[:, None]), 1e-12)

    def error(m):
        at = torch.linspace(0, 1, m + 1, dtype=F64)
        line = piecewise_linear(at, (2 * torch.pi * at).sin(), skip=True, dtype=F64)
        fine = torch.linspace(0, 1, 100_001, dtype=F64)
        return float((line(fine[:, None])[:, 0].detach() - (2 * torch.pi * fine).sin()).abs().max())

    errors = {m: error(m) for m in (4, 8, 16, 32, 64)}
    for m, found in zip(errors, (0.2105, 0.0704, 0.01885, 0.004789, 0.0012024), strict=True):
        assert errors[m] == pytest.approx(found, rel=2e-3)
        assert errors[m] <= (2 * torch.pi) ** 2 / (8 * m**2)
    assert 3.7 <= errors[16] / errors[32] <= 4.1
    assert 3.7 <= errors[32] / errors[64] <= 4.1


@pytest.mark.catalogue("S10")
def test_depth_multiplies_the_pieces_and_width_adds_them():
    for k in range(1, 8):
        model = tent(k, dtype=F64)
        assert model.hidden == (2,) * k
        steep = slopes(model, 2 ** (k + 2))
        assert (steep.abs() == 2**k).all()
        assert 1 + int((steep.diff() != 0).sum()) == 2**k
        shallow = Mlp(1, [2 * k], 1).double()
        nn.init.uniform_(shallow.body[1].bias, -5, 5)
        assert kinks(shallow) + 1 <= 2 * k + 1
    x = torch.rand(500, 1, dtype=F64)
    close(tent(3, dtype=F64)(x), (x * 8 - ((x * 8 + 1) // 2) * 2).abs(), 1e-12)


@pytest.mark.catalogue("S4-047")
def test_folding_layers_reach_the_lower_bound_of_regions_and_random_ones_do_not():
    # Slopes before, between and after its two kinks differ, and so do those of neighbours that are mirrored.
    last = network([([[-1.0], [1.0]], [1 / 3, -2 / 3]), ([[1.0, 2.0]], [0.0])], dtype=F64)
    for count in range(1, 7):
        model = last if count == 1 else compose(last, tent(count - 1, dtype=F64))
        assert depth(model) == count + 1 and set(model.hidden) == {2}
        assert pieces(model, 3 * 2 ** (count + 2)) == 3 * 2 ** (count - 1)
    for count, bound in ((3, 576), (4, 4608), (5, 36864)):
        for _ in range(3):
            assert kinks(Mlp(1, [8] * count, 1).double()) + 1 < bound / 5


def test_hyperplanes_cut_a_space_into_cells():
    normals = torch.randn(3, 4, dtype=F64)
    offsets = torch.randn(3, dtype=F64)
    model = hyperplanes(normals, offsets, dtype=F64)
    assert model.hidden == (6,) and model.head.out_features == 8
    x = torch.randn(2000, 4, dtype=F64)
    bits = (x @ normals.T + offsets > 0).long()
    assert torch.equal(model(x).argmax(1), (bits * torch.tensor([1, 2, 4])).sum(1))


@pytest.mark.catalogue("S4-038")
def test_networks_of_one_layer_of_sigmoids_are_the_span_of_their_units():
    n, m1, m2 = 4, 5, 3
    one = Mlp(n, [m1], 1, "sigmoid", output_bias=False)
    two = Mlp(n, [m2], 1, "sigmoid", output_bias=False)
    assert sum(p.numel() for p in one.parameters()) == m1 * (n + 2)
    x = torch.randn(200, n)
    (w, b), (v, zero) = layers(one)
    assert not zero.any()
    close(one(x)[:, 0].double(), torch.sigmoid(x.double() @ w.T + b) @ v[0], 1e-6)
    total = add(one, two)
    assert total.hidden == (m1 + m2,) and total.activation == "sigmoid"
    close(total(x), one(x) + two(x), 1e-5)
    before = one(x)
    with torch.no_grad():
        one.head.weight *= -2.5
    close(one(x), -2.5 * before, 1e-5)


@pytest.mark.catalogue("S4-039")
@pytest.mark.parametrize("hidden", [(7,), (6, 5, 4)])
def test_tanh_and_sigmoid_networks_are_the_same_functions(hidden):
    z = torch.linspace(-50, 50, 10_001, dtype=F64)
    close(torch.tanh(z), 2 * torch.sigmoid(2 * z) - 1, 1e-14)
    x = torch.randn(300, 3)
    model = Mlp(3, hidden, 2, "tanh")
    made = as_sigmoid(model)
    assert made.activation == "sigmoid" and made.hidden == hidden
    close(made(x), model(x), 1e-5)
    close(as_tanh(made)(x), model(x), 1e-5)
    wide = model.double()
    close(as_sigmoid(wide)(x.double()), wide(x.double()), 1e-14)
    # Without an output bias there is no place for -sum(v).
    bare = Mlp(3, [4], 1, "tanh", output_bias=False).double()
    assert as_sigmoid(bare).head.bias.item() == pytest.approx(-bare.head.weight.sum().item())


@pytest.mark.catalogue("S4-039")
def test_a_trained_tanh_network_is_turned_into_one_of_sigmoids(tmp_path):
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    config = given(
        x, values=(3 * x[:, :1]).sin(), model={"name": "mlp", "hidden": [16], "activation": "tanh"},
        optimizer={"name": "adam", "lr": 0.03}, trainer={"epochs": 300, "eval_every": 300, "device": "cpu"},
    )  # fmt: skip
    done = run(config, tmp_path)
    assert done.figures["test/loss"] < 0.05  # it has learned
    model = pegboard.load(done, which="last")
    made = as_sigmoid(model)
    fresh = torch.randn(1000, 2)
    assert made.activation == "sigmoid"
    close(made(fresh), model(fresh), 1e-5)


@pytest.mark.catalogue("S4-026")
@pytest.mark.parametrize("form", ["plain", "residual", "dense"])
def test_the_activations_of_a_layer_are_those_of_the_network_cut_off_behind_it(form):
    model = Mlp(4, [6, 5, 7], 2, "tanh", form=form)
    x = torch.randn(20, 4)
    assert depth(model) == 4
    captured = []
    for count in (1, 2, 3):
        last = [m for m in first_layers(model, count) if not isinstance(m, Peg)][-1]
        last.register_forward_hook(lambda module, inputs, output: captured.append(output))
    whole = model(x)
    assert [h.shape[1] for h in captured] == ([10, 15, 22] if form == "dense" else [6, 5, 7])
    for count, seen in enumerate(tuple(captured), 1):
        assert torch.equal(first_layers(model, count)(x), seen)
    assert torch.equal(first_layers(model, 0)(x), x)
    assert torch.equal(model.head(captured[2]), whole)
    with pytest.raises(ValueError, match="0 to 3 hidden layers"):
        first_layers(model, 4)


@pytest.mark.catalogue("S4-033")
@pytest.mark.parametrize("form", ["plain", "residual", "dense"])
def test_a_deep_linear_network_collapses_to_a_linear_model(form):
    model = Mlp(6, [8, 3, 8, 8], 5, "identity", form=form)
    single = collapse(model)
    assert type(single) is LinearModel
    x = torch.randn(200, 6)
    close(single(x), model(x), 1e-5 * model(x).abs().max())
    if form == "plain":
        assert torch.linalg.matrix_rank(single.head.weight, rtol=1e-5) <= 3
        assert sum(p.numel() for p in model.parameters()) > sum(p.numel() for p in single.parameters())


def test_units_may_be_permuted_and_the_loss_stays():
    model = Mlp(4, [6, 5], 3, "tanh").double()
    x, y = torch.randn(30, 4, dtype=F64), torch.randint(3, (30,))
    loss = nn.functional.cross_entropy(model(x), y)
    for layer, order in ((0, [5, 0, 4, 1, 3, 2]), (1, [1, 2, 3, 4, 0])):
        other = permuted(model, layer, order)
        assert not torch.equal(other.body[1 + 4 * layer].weight, model.body[1 + 4 * layer].weight)
        close(nn.functional.cross_entropy(other(x), y), loss, 1e-12)


def test_what_is_made_keeps_precision_activation_and_its_numbers():
    f = Mlp(3, [4], 3, "leaky_relu", alpha=0.3).double()
    both = compose(f, f)
    assert both.head.weight.dtype == F64 and both.alpha == 0.3
    x = torch.randn(50, 3, dtype=F64)
    close(both(x), f(f(x)), 1e-12)
    line = affine([[1.0, 2.0, 0.0]], [3.0])
    assert line.hidden == () and line(torch.tensor([[1.0, 1.0, 1.0]])).item() == 6
    close(compose(affine(2 * torch.eye(3), torch.zeros(3)), f)(x), 2 * f(x), 1e-12)
    # Without hidden layers nothing is of its activation.
    flat, bent = Mlp(3, [], 2, "tanh").double(), Mlp(3, [4], 2).double()
    close(add(flat, bent)(x), flat(x) + bent(x), 1e-12)


def test_every_helper_is_named_on_the_card():
    card = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    public = [name for name in vars(constructions) if not name.startswith("_")]
    made = [
        n for n in public if getattr(getattr(constructions, n), "__module__", "") == constructions.__name__
    ]
    assert len(made) > 10
    assert not [name for name in made if f"`{name}(" not in card]
