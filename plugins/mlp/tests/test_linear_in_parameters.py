"""Models that are linear in what they learn, and the convention they share."""

import itertools
import math

import pytest
import torch
from pegboard import Batch, Context, DataSpec, Facts, PegboardError, Values, Vector
from pegboard.config.check import check
from pegboard.planning.plan import assemble, make_plan
from pegboard_mlp import Polynomial as PolynomialConfig
from pegboard_mlp import pegboard_models
from pegboard_mlp.bases import Polynomial, SineTrend, convert
from pegboard_mlp.modules import LinearInParameters, LinearModel
from pegboard_mlp.reference_configs import LeastSquares
from pegboard_mlp.squares import LeastSquaresReference
from pegboard_mlp.units import ThresholdReadout
from points import given, run
from torch import nn

F64 = torch.float64
BASES = ("monomial", "chebyshev", "legendre")
PARTS = {part.name: part for part in pegboard_models()}


def column(*numbers):
    return torch.tensor(numbers, dtype=F64)[:, None]


def fit(model, x, y):
    """The model with the head that is best in squares, as the reference `least_squares` finds it."""
    spec = DataSpec((Vector(x.shape[1]),), Values(y.shape[1]))
    return LeastSquaresReference(LeastSquares(), Context(spec=spec)).solve(model.double(), Batch((x,), y))


def coefficients(model):
    """Of 1, x, x^2, ... for one input and one output."""
    return torch.cat((model.head.bias, model.head.weight[0])).tolist()


@pytest.mark.parametrize(
    "model",
    [
        LinearModel(6, 2),
        Polynomial(6, 3, 2, basis="legendre"),
        SineTrend(6, 2),
        ThresholdReadout(6, [], [1, 2, 3], 2),
    ],
)
def test_a_model_is_its_head_on_its_features(model):
    assert isinstance(model, LinearInParameters)
    x = torch.randn(9, 3, 2)
    features = model.features(x)
    assert features.shape == (9, model.head.in_features)
    assert torch.equal(model(x), nn.functional.linear(features, model.head.weight, model.head.bias))
    assert {name for name, _ in model.named_parameters()} == {"head.weight", "head.bias"}
    hung = nn.Identity()
    hung.register_forward_hook(lambda module, inputs, output: 2 * output)
    model.input.add_module("twice", hung)
    torch.testing.assert_close(model.features(x), twice(model, x))


def twice(model, x):
    """The features of the same model for inputs that are doubled, with nothing hung."""
    hung = model.input._modules.pop("twice")
    made = model.features(2 * x)
    model.input.add_module("twice", hung)
    return made


@pytest.mark.parametrize(("inputs", "degree"), [(1, 5), (2, 3), (4, 2), (3, 1)])
def test_monomials_are_all_products_up_to_the_degree(inputs, degree):
    model = Polynomial(inputs, degree, 2).double()
    x = torch.randn(7, inputs, dtype=F64)
    powers = [a for a in itertools.product(range(degree + 1), repeat=inputs) if 0 < sum(a) <= degree]
    assert model.head.in_features == len(powers) == math.comb(inputs + degree, degree) - 1
    expected = torch.stack([(x ** torch.tensor(a)).prod(1) for a in powers], 1)
    found = model.features(x)
    for column_ in expected.T:
        assert ((found.T - column_).abs().amax(1) < 1e-12).sum() == 1


@pytest.mark.parametrize(
    ("basis", "known"), [("chebyshev", "chebyshev_polynomial_t"), ("legendre", "legendre_polynomial_p")]
)
def test_other_bases_are_those_of_the_books_on_their_domain(basis, known):
    model = Polynomial(1, 6, 1, basis=basis, domain=(2.0, 6.0))
    x = torch.linspace(2, 6, 50)[:, None]
    t = (x - 4) / 2
    expected = torch.cat([getattr(torch.special, known)(t, k) for k in range(1, 7)], 1)
    torch.testing.assert_close(model.features(x), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("source", BASES)
@pytest.mark.parametrize("target", BASES)
def test_a_polynomial_is_the_same_in_every_basis(source, target):
    model = Polynomial(3, 4, 2, basis=source, domain=(0.0, 1.5)).double()
    x = 1.5 * torch.rand(100, 3, dtype=F64)
    made = convert(model, target, (-1.0, 2.0))
    assert made.basis == target and made.domain == (-1.0, 2.0)
    torch.testing.assert_close(made(x), model(x), atol=1e-11, rtol=0)
    back = convert(made, source, (0.0, 1.5))
    torch.testing.assert_close(back.head.weight, model.head.weight, atol=1e-12, rtol=0)


def test_coefficients_of_known_polynomials():
    model = Polynomial(1, 4, 1, basis="chebyshev").double()
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[0.0, 0, 0, 1]]))
        model.head.bias.zero_()
    assert coefficients(convert(model)) == [1, 0, -8, 0, 8]
    bare = Polynomial(1, 2, 1, basis="chebyshev", bias=False)
    with pytest.raises(ValueError, match="has no bias"):
        convert(bare)


def test_the_basis_decides_whether_a_high_degree_can_be_trained():
    x = torch.linspace(-1, 1, 200, dtype=F64)[:, None]
    conditions = {b: torch.linalg.cond(Polynomial(1, 15, 1, basis=b).double().features(x)) for b in BASES}
    assert conditions["monomial"] > 1e4
    assert conditions["chebyshev"] < 10 and conditions["legendre"] < 20


@pytest.mark.catalogue("T045")
def test_the_interpolating_polynomial_has_no_loss_and_runs_away(tmp_path):
    points = column(-1, 0, 1), column(4, 2, -8)
    assert coefficients(fit(Polynomial(1, 2, 1), *points)) == pytest.approx([2, -6, -4], abs=1e-10)
    config = given(
        points[0], values=points[1], model={"name": "polynomial", "degree": 2}, reference="least_squares"
    )
    done = run(config, tmp_path)
    assert coefficients(done.model) == pytest.approx([2, -6, -4], abs=1e-3)
    assert done.reference["optimum"] < 1e-20 and done.reference["objective"] < 1e-6
    x, y = column(-1, 0, 1, 0.01), column(0, 0, 0, 0.1)
    cubic, line = fit(Polynomial(1, 3, 1), x, y), fit(LinearModel(1, 1), x, y)
    assert (cubic(x) - y).square().mean() < 1e-10
    at = column(2)
    assert cubic(at).item() == pytest.approx(-60.006, abs=1e-3) and abs(cubic(at).item()) > 50
    assert line(at).item() == pytest.approx(0.0257, abs=1e-4)


def test_a_trained_parabola_goes_through_its_three_points(tmp_path):
    x, y = column(-1, 0, 1), column(4, 2, -8)
    config = given(x, values=y, model={"name": "polynomial"})
    done = run(config, tmp_path)
    assert coefficients(done.model) == pytest.approx([2, -6, -4], abs=1e-3)
    assert done.figures["test/loss"] < 1e-6


@pytest.mark.catalogue("T078")
def test_a_polynomial_of_many_outputs_and_its_exact_minimiser():
    n, d, count = 64, 3, 40
    x, y = torch.randn(count, 1, dtype=F64), torch.randn(count, n, dtype=F64)
    hat = torch.cat([x**k for k in range(d + 1)], 1)
    objective = {"name": "mse", "features": "sum"}
    config = given(x, values=y, model={"name": "polynomial", "degree": d}, objective=objective)
    made = assemble(make_plan(check(config), read=True), "cpu")
    model = made.model.double()
    assert type(model) is Polynomial
    assert sum(p.numel() for p in model.parameters()) == n * (d + 1) == 256

    def gradient():
        loss = made.objective.loss(model(x), y)
        weight, bias = torch.autograd.grad(loss, [model.head.weight, model.head.bias])
        return torch.cat((bias[:, None], weight), 1)

    a = torch.cat((model.head.bias[:, None], model.head.weight), 1)
    expected = 2 / count * (a @ hat.T - y.T) @ hat
    torch.testing.assert_close(gradient(), expected, atol=1e-12, rtol=0)
    best = (y.T @ hat) @ torch.linalg.inv(hat.T @ hat)
    with torch.no_grad():
        model.head.bias.copy_(best[:, 0])
        model.head.weight.copy_(best[:, 1:])
    assert gradient().abs().max() < 1e-10
    exact = fit(Polynomial(1, d, n), x, y)  # which the reference of a run takes for the minimum
    torch.testing.assert_close(exact.head.weight, model.head.weight, atol=1e-10, rtol=0)
    torch.testing.assert_close(exact.head.bias, model.head.bias, atol=1e-10, rtol=0)


@pytest.mark.catalogue("S3-031")
def test_k_plus_1_points_determine_a_polynomial_and_fewer_are_refused(tmp_path):
    for k in (1, 4, 7):
        true = torch.randn(k + 1, dtype=F64)
        x = torch.cos(torch.linspace(0, torch.pi, k + 1, dtype=F64))[:, None]
        y = sum(c * x**j for j, c in enumerate(true))
        assert coefficients(fit(Polynomial(1, k, 1), x, y)) == pytest.approx(true.tolist(), abs=1e-9)
    for n, k in ((3, 5), (6, 5), (9, 5), (2, 1)):
        x = torch.randn(n, 1, dtype=F64)
        features = torch.cat((torch.ones(n, 1, dtype=F64), Polynomial(1, k, 1).double().features(x)), 1)
        assert torch.linalg.matrix_rank(features) == min(n, k + 1)
    config = given(column(0, 1, 2), values=column(0, 1, 0), model={"name": "polynomial", "degree": 3})
    with pytest.raises(PegboardError, match=r"has 4 coefficients, and 3 training samples do not determine"):
        run(config, tmp_path)
    assert not list(tmp_path.glob("*/*"))
    for fields in ({"degree": 2}, {"degree": 3, "bias": False}, {"degree": 3, "unique": False}):
        config["model"] = {"name": "polynomial", **fields}
        config["trainer"] = {"steps": 1, "device": "cpu"}
        assert run(config, tmp_path).status == "finished"


@pytest.mark.catalogue("S3-004")
def test_a_sine_with_a_trend_is_recovered_and_extrapolates(tmp_path):
    a, b, c = 1.7, -0.4, 2.2

    def truth(x):
        return a * x.sin() + b * x + c

    x = torch.linspace(0, 6, 12, dtype=F64)[:, None]
    model = fit(SineTrend(1, 1), x, truth(x))
    assert sum(p.numel() for p in model.parameters()) == 3
    assert coefficients(model) == pytest.approx([c, a, b], abs=1e-10)
    far = torch.linspace(6, 9, 50, dtype=F64)[:, None]
    for seed in range(5):
        few = 6 * torch.rand(6, 1, dtype=F64, generator=torch.Generator().manual_seed(seed))
        noise = 0.01 * torch.randn(6, 1, dtype=F64, generator=torch.Generator().manual_seed(seed + 100))
        errors = [
            (fit(m, few, truth(few) + noise)(far) - truth(far)).square().mean().item()
            for m in (SineTrend(1, 1), Polynomial(1, 5, 1))
        ]
        assert errors[0] * 10 <= errors[1]
    config = given(x, values=truth(x), model={"name": "sine_trend"})
    done = run(config, tmp_path)
    assert coefficients(done.model) == pytest.approx([c, a, b], abs=1e-3)


@pytest.mark.catalogue("S3-007")
def test_a_line_has_two_weights_as_a_function_and_four_as_a_curve(tmp_path):
    t = torch.linspace(-2, 3, 20, dtype=F64)[:, None]
    function, curve = LinearModel(1, 1).double(), LinearModel(1, 2).double()
    assert [sum(p.numel() for p in m.parameters()) for m in (function, curve)] == [2, 4]
    with torch.no_grad():
        curve.head.weight.copy_(torch.stack((torch.ones(1), function.head.weight[0])))
        curve.head.bias.copy_(torch.stack((torch.zeros(()), function.head.bias[0])))
    torch.testing.assert_close(curve(t), torch.cat((t, function(t)), 1), atol=1e-12, rtol=0)
    # A vertical line, which is no function of x, is learned like any other.
    vertical = torch.cat((torch.full_like(t, 3), 2 * t - 1), 1)
    done = run(given(t, values=vertical, model="linear"), tmp_path)
    assert sum(p.numel() for p in done.model.parameters()) == 4
    torch.testing.assert_close(done.model(t.float()), vertical.float(), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("fields", "inputs", "at"),
    [
        ({"degree": 8}, 64, "degree"),
        ({"domain": (1.0, 1.0)}, 2, "domain"),
        ({"degree": 8}, 2, None),
        ({"degree": 8}, None, None),
    ],
)
def test_what_no_polynomial_can_be_is_said_before_anything_is_built(fields, inputs, at):
    facts = Facts(spec=None if inputs is None else DataSpec((Vector(inputs),), Values(1)))
    found = list(PARTS["polynomial"].check(PolynomialConfig(**fields), facts))
    assert [problem.field for problem in found] == ([] if at is None else [at])


def test_wrong_numbers_are_refused_by_the_module_too():
    with pytest.raises(ValueError, match="unknown basis 'fourier'"):
        Polynomial(1, 2, 1, basis="fourier")
    with pytest.raises(ValueError, match="expected at least 1, and low below high"):
        Polynomial(1, 0, 1)
