"""Every activation against torch."""

import math
from typing import get_args

import pytest
import torch
from pegboard.config.check import ConfigError, check
from pegboard.planning.plan import assemble, make_plan
from pegboard_mlp import configs
from pegboard_mlp.activations import PLAIN, WITH_ALPHA, Polynomial, at_zero, make
from pegboard_mlp.modules import Mlp
from points import given
from torch import nn
from torch.nn import functional as F

CORNERS = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
CLASSES = torch.tensor([0, 1, 0, 1])
NAMES = get_args(configs.Activation)
X = torch.linspace(-4, 4, 40, dtype=torch.float64).reshape(4, 10)

REFERENCE = {
    "abs": torch.abs,
    "celu": F.celu,
    "elu": F.elu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": F.glu,
    "hardshrink": F.hardshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "identity": lambda x: x,
    "leaky_relu": F.leaky_relu,
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "polynomial": torch.square,
    "prelu": lambda x: F.leaky_relu(x, 0.25),
    "relu": F.relu,
    "relu6": F.relu6,
    "rrelu": lambda x: F.leaky_relu(x, (1 / 8 + 1 / 3) / 2),  # in evaluation: the mean slope
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softmax": lambda x: F.softmax(x, -1),
    "softmin": lambda x: F.softmin(x, -1),
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "softsign": F.softsign,
    "tanh": torch.tanh,
    "tanhshrink": F.tanhshrink,
    "threshold": F.relu,
}


def test_the_schema_names_exactly_the_activations_there_are():
    assert sorted(NAMES) == sorted((*PLAIN, *WITH_ALPHA, "abs", "polynomial")) == sorted(REFERENCE)
    assert sorted(configs.WITH_ALPHA) == sorted(WITH_ALPHA)


def test_every_activation_of_torch_that_maps_vectors_has_a_name():
    there = {type(make(name)).__name__ for name in NAMES}
    assert set(nn.modules.activation.__all__) - there == {"MultiheadAttention", "Softmax2d"}


@pytest.mark.parametrize("name", NAMES)
def test_equals_torch(name):
    torch.testing.assert_close(make(name).double().eval()(X), REFERENCE[name](X))


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("celu", lambda x: F.celu(x, 0.7)),
        ("elu", lambda x: F.elu(x, 0.7)),
        ("hardshrink", lambda x: F.hardshrink(x, 0.7)),
        ("leaky_relu", lambda x: F.leaky_relu(x, 0.7)),
        ("prelu", lambda x: F.leaky_relu(x, 0.7)),
        ("softplus", lambda x: F.softplus(x, 0.7)),
        ("softshrink", lambda x: F.softshrink(x, 0.7)),
        ("threshold", lambda x: F.threshold(x, 0.7, 0.0)),
    ],
)
def test_alpha_sets_the_number_of_an_activation(name, reference):
    torch.testing.assert_close(make(name, 0.7)(X.float()), reference(X.float()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("alpha", [None, 2.0])
def test_value_at_zero(name, alpha):
    polynomial = (0.3, 2.0)
    width = 6
    found = make(name, alpha, polynomial).double()(torch.zeros(1, width, dtype=torch.float64))
    torch.testing.assert_close(found, torch.full_like(found, at_zero(name, width, alpha, polynomial)))


@pytest.mark.parametrize(
    "coefficients", [(2.5,), (1.0, 2.0), (0.0, 1.0), (0.0, 0.0, 1.0), (1.0, 0.0, -3.0, 0.5)]
)
def test_polynomial_equals_its_sum_of_powers(coefficients):
    expected = sum(c * X**k for k, c in enumerate(coefficients))
    torch.testing.assert_close(Polynomial(coefficients)(X), expected)


def test_a_polynomial_needs_a_coefficient():
    with pytest.raises(ValueError, match="at least one"):
        Polynomial(())


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown activation 'rleu'.*relu"):
        make("rleu")


THREE = {
    "identity": [-1.0, 0.0, 2.0],
    "sigmoid": [1 / (1 + math.e), 0.5, 1 / (1 + math.exp(-2))],
    "relu": [0.0, 0.0, 2.0],
}


@pytest.mark.catalogue("S4-028")
@pytest.mark.parametrize("name", THREE)
def test_a_config_names_the_activation_of_its_layers(name):
    """One unit with weight 1 and no bias, as a config asks for it."""
    node = {"name": "mlp", "hidden": [1], "activation": name}
    model = assemble(make_plan(check(given(CORNERS, CLASSES, model=node)), read=True), "cpu").model.double()
    with torch.no_grad():
        model.body[1].weight.copy_(torch.tensor([[1.0, 0]]))
        model.body[1].bias.zero_()
        found = model.body(torch.tensor([[-1.0, 5], [0, 5], [2, 5]], dtype=torch.float64))[:, 0]
    assert found.tolist() == pytest.approx(THREE[name], abs=1e-15)
    with pytest.raises(ConfigError, match=f"did you mean {name!r}"):
        check(given(CORNERS, CLASSES, model={**node, "activation": f"{name[:-1]}"}))


@pytest.mark.catalogue("T007", "S3-069", "S4-028")
def test_relu_values_gradients_and_identities():
    relu = make("relu")
    x = torch.tensor([-3.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 2.0], requires_grad=True)
    relu(x).sum().backward()
    assert relu(x).tolist() == [0, 0, 0, 0, pytest.approx(1e-9), 1, 2]
    assert x.grad.tolist() == [0, 0, 0, 0, 1, 1, 1]
    z = X.clone()
    assert torch.equal(relu(relu(z)), relu(z))
    assert torch.equal(relu(z) - relu(-z), z)
    for scale in (1e-3, 3.0, 1e4):
        torch.testing.assert_close(relu(scale * z), scale * relu(z))
    assert relu(torch.tensor([-1.0, 0, 2])).tolist() == [0, 0, 2]
    # The kink of relu(x + b) is at -b.
    grid = torch.linspace(-2, 2, 401, dtype=torch.float64)
    assert grid[relu(grid + 0.5) > 1e-12].min() == pytest.approx(-0.49)
    assert torch.equal(make("identity")(z), z)


@pytest.mark.catalogue("T033", "S3-043", "S4-022")
def test_sigmoid_values_symmetry_and_derivative():
    sigmoid = make("sigmoid")
    x = torch.linspace(-30, 30, 601, dtype=torch.float64, requires_grad=True)
    y = sigmoid(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(slope, y * (1 - y), atol=1e-12, rtol=0)
    torch.testing.assert_close(sigmoid(-x), 1 - y, atol=1e-15, rtol=0)
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (at_zero_slope,) = torch.autograd.grad(sigmoid(zero), zero)
    assert (sigmoid(zero).item(), at_zero_slope.item()) == (0.5, 0.25)
    assert slope.max() <= 0.25 and slope[x.abs() >= 20].max() < 1e-8
    assert (y.diff() >= 0).all()
    assert sigmoid(torch.tensor([1e4, -1e4])).tolist() == [1, 0]
    assert torch.autograd.gradcheck(sigmoid, X.clone().requires_grad_())
    a, b = 1.7, -0.4
    assert sigmoid(torch.tensor(a * (-b / a) + b)).item() == 0.5


@pytest.mark.catalogue("T107")
def test_leaky_relu_with_slope_one_half():
    leaky = make("leaky_relu", 0.5)
    x = torch.tensor([-2.0, 0.0, 3.0], requires_grad=True)
    leaky(x).sum().backward()
    assert leaky(x).tolist() == [-1, 0, 3]
    assert x.grad.tolist() == [0.5, 0.5, 1]
    torch.testing.assert_close(leaky(X), nn.LeakyReLU(0.5)(X))


@pytest.mark.catalogue("T039")
def test_a_chain_of_sigmoids_loses_the_gradient_and_one_of_relus_keeps_it():
    """Twenty layers of one unit, all weights one."""

    def slope(name, start):
        chain = Mlp(1, [1] * 20, 1, name).double()
        with torch.no_grad():
            for key, p in chain.named_parameters():
                p.fill_(float("weight" in key))
        x = torch.tensor([[start]], dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(chain(x), x)[0].item()

    assert math.isclose(0.25**20, 9.1e-13, rel_tol=0.01)
    for start in (-3.0, 0.0, 1.0, 4.0):
        assert 0 < slope("sigmoid", start) <= 0.25**20
    assert [slope("relu", start) for start in (0.1, 1.0, 50.0, -1.0)] == [1, 1, 1, 0]
