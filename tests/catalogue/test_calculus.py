"""Derivatives by hand, by forward and by reverse mode, and those of the engine beside them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pegboard
import pytest
import torch
from counting import Counting
from pegboard.config.check import check
from pegboard.engine.precision import choose_precision
from pegboard.engine.step import Step, make_step
from pegboard.planning.plan import Assembly, assemble, make_plan
from pegboard_mlp.modules import Mlp
from points import given
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.functional import jacobian
from torch.func import jvp

F64 = torch.float64


def leaf(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64, requires_grad=True)


def gradient(function: Callable[..., Tensor], *at: float) -> list[float]:
    """What a training step finds for a player whose loss is this function of its weights."""
    count = len(at)
    config = given(torch.eye(count), values=torch.zeros(count, 1), objective="mse",
                   model={"name": "linear", "bias": False}, optimizer="sgd")  # fmt: skip
    assembly = assemble(make_plan(check(config), read=True), "cpu")
    model: Any = assembly.model.double()
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([at], dtype=F64))

    def loss(model: nn.Module, batch: pegboard.Batch) -> tuple[Tensor, Tensor]:
        output = model(*batch.inputs)  # of unit vectors: the weights
        return function(*output[:, 0]), output

    assembly.kits[0].player.loss = loss
    linked = make_step(assembly, assembly.kits[0], choose_precision("fp32", "cpu"))
    value, (slopes,) = linked.gradients([pegboard.Batch((torch.eye(count, dtype=F64),))])
    assert slopes is not None and torch.equal(value, function(*torch.tensor(at, dtype=F64)))
    return slopes[0].tolist()  # type: ignore[no-any-return]


# Worked derivatives.
@pytest.mark.catalogue("T091")
def test_chain_rule_in_one_variable() -> None:
    (found,) = gradient(lambda x: torch.cos(x.exp() + 2 * x), 0.0)
    assert found == pytest.approx(-3 * math.sin(1), abs=1e-12) == pytest.approx(-2.5244129544, abs=1e-9)


@pytest.mark.catalogue("T092")
def test_chain_rule_in_the_plane_multiplies_jacobians() -> None:
    def f(u: Tensor) -> Tensor:
        return torch.stack([u[0] ** 2 + 3 * u[0] * u[1], (u[0] + u[1]).exp()])

    def g(x: Tensor) -> Tensor:
        return torch.stack([x[0] * x[1], x[0] ** 2 + x[1] ** 2])

    at, e = torch.tensor([1.0, 0.0], dtype=F64), math.e
    outer, inner = jacobian(f, g(at)), jacobian(g, at)
    assert torch.allclose(outer, torch.tensor([[3, 0], [e, e]], dtype=F64), atol=1e-9)
    assert inner.tolist() == [[0, 1], [2, 0]]
    whole = torch.tensor([[0, 3], [2 * e, e]], dtype=F64)
    for found in (outer @ inner, jacobian(lambda x: f(g(x)), at)):
        assert torch.allclose(found, whole, atol=1e-9, rtol=0)


@pytest.mark.catalogue("T144", "S3-081")
@pytest.mark.parametrize("sizes", [(3, 5, 4, 2), (2, 7, 1), (4, 3, 3, 6, 5)])
def test_jacobians_of_a_composition_may_be_multiplied_from_either_end(sizes: tuple[int, ...]) -> None:
    first, *hidden, last = sizes
    model = Mlp(first, hidden, last, "tanh").double()
    layers = [*model.body, model.head]  # pegs, which do nothing, are layers too
    points = [torch.randn(first, dtype=F64)]
    for layer in layers:
        points.append(layer(points[-1]).detach())
    factors = [jacobian(layer, point) for layer, point in zip(layers, points[:-1], strict=True)]
    forward, reverse = factors[0], factors[-1]
    for factor in factors[1:]:
        forward = factor @ forward
    for factor in reversed(factors[:-1]):
        reverse = reverse @ factor
    whole = jacobian(model, points[0])
    assert torch.allclose(forward, whole, atol=1e-10, rtol=0)
    assert torch.allclose(reverse, whole, atol=1e-10, rtol=0)


@pytest.mark.catalogue("T102")
def test_chain_rule_in_three_variables() -> None:
    found = gradient(lambda x, y, z: torch.cos(x + 2 * torch.sin(z + (-y).exp())), 0.0, 0.0, 0.0)
    u = 2 * math.sin(1)
    by_hand = [-math.sin(u), 2 * math.sin(u) * math.cos(1), -2 * math.sin(u) * math.cos(1)]
    assert found == pytest.approx(by_hand, abs=1e-12)
    assert found == pytest.approx([-0.9937182651, 1.073816540, -1.073816540], abs=1e-9)


@pytest.mark.catalogue("S3-024")
def test_partial_derivatives_and_the_misprint_in_them() -> None:
    x, y = 1.2, 0.7
    found = gradient(lambda x, y: 2 * x**2 * y + torch.sin(x) * y**2, x, y)
    by_hand = [4 * x * y + y**2 * math.cos(x), 2 * x**2 + 2 * y * math.sin(x)]
    assert found == pytest.approx(by_hand, abs=1e-12)
    assert found == pytest.approx([3.5375553, 4.1848547], abs=1e-6)
    printed = 4 * x * y + y * math.cos(x)  # the square of y was lost
    assert printed == pytest.approx(3.6136504, abs=1e-6) and abs(found[0] - printed) > 0.07


@pytest.mark.catalogue("S3-047")
def test_a_directional_derivative_is_one_forward_pass() -> None:
    at, direction = torch.tensor([1.0, 2.0], dtype=F64), torch.full((2,), math.sqrt(0.5), dtype=F64)
    _, found = jvp(lambda p: p[0] ** 3 + p[1] ** 2, (at,), (direction,))
    assert float(found) == pytest.approx(math.sqrt(0.5) * (3 + 4), abs=1e-12)
    assert float(found) == pytest.approx(4.9497475, abs=1e-6)
    slopes = gradient(lambda x, y: x**3 + y**2, 1.0, 2.0)  # what a training step would multiply with
    assert sum(slopes) * math.sqrt(0.5) == pytest.approx(float(found), abs=1e-12)


@pytest.mark.catalogue("T094")
def test_a_variable_used_twice_gets_the_sum_over_its_paths() -> None:
    for point in torch.randn(5, 3, dtype=F64).tolist():
        x, y, z = point
        found = gradient(lambda x, y, z: torch.sin(x * y + x * z + y * z), *point)
        slope = math.cos(x * y + x * z + y * z)
        assert found == pytest.approx([slope * (y + z), slope * (x + z), slope * (x + y)], abs=1e-9)
    a, b, c = leaf(0.3), leaf(-0.7), leaf(1.1)
    parts = [torch.autograd.grad(term, a)[0] for term in (a * b, a * c)]
    (whole,) = torch.autograd.grad(a * b + a * c + b * c, a)
    assert torch.equal(whole, parts[0] + parts[1])


# Graphs.
def nodes(output: Tensor) -> Iterator[tuple[Any, list[Any]]]:
    """The nodes of the graph behind a tensor with those below each; a graph with a circle is an error."""
    done: set[Any] = set()
    open_: set[Any] = set()

    def visit(node: Any) -> Iterator[tuple[Any, list[Any]]]:
        assert node not in open_, "a circle"
        if node in done:
            return
        open_.add(node)
        below = [inner for inner, _ in node.next_functions if inner is not None]
        for inner in below:
            yield from visit(inner)
        open_.remove(node)
        done.add(node)
        yield node, below

    return visit(output.grad_fn)


def kinds(output: Tensor) -> Counter[str]:
    return Counter(node.name().removesuffix("Backward0") for node, _ in nodes(output))


@pytest.mark.catalogue("T093")
def test_backpropagation_by_hand_shares_what_paths_have_in_common() -> None:
    x, y, z, w = (leaf(value) for value in (0.5, math.pi, 1.0, 1.0))
    output = (w + torch.exp(z + torch.cos(y * x**2))).reciprocal()
    values = [0.288709690, 0.022974787, -0.129965022, -0.023574334]
    found = [float(g) for g in torch.autograd.grad(output, [x, y, z, w], retain_graph=True)]
    assert output.item() == pytest.approx(0.153539356, abs=1e-8)
    assert found == pytest.approx(values, abs=1e-8)
    e = math.exp(1 + math.sqrt(0.5))
    assert found[0] == pytest.approx(math.pi * math.sqrt(2) * e / (2 * (1 + e) ** 2), abs=1e-12)  # not 4
    # Elementary nodes p = x^2, q = y p, r = cos q, s = z + r, t = e^s, u = w + t, v = 1 / u.
    assert sum(len(below) for _, below in nodes(output)) == 10
    local = {
        "vu": -1 / (1 + e) ** 2,
        "uw": 1.0,
        "ut": 1.0,
        "ts": e,
        "sz": 1.0,
        "sr": 1.0,
        "rq": -math.sin(math.pi / 4),
        "qy": 0.25,
        "qp": math.pi,
        "px": 1.0,
    }
    assert len(local) == 10
    counting = Counting()
    edge = {name: counting.number(value) for name, value in local.items()}
    adjoint = {"u": edge["vu"]}  # that of v is one, which nothing is multiplied with
    for name in list(local)[1:]:
        adjoint[name[1]] = adjoint[name[0]] * edge[name]
    assert [adjoint[name].value for name in "xyzw"] == pytest.approx(found, abs=1e-12)
    assert counting.counts == {"mul": 9}
    paths = ["vu ut ts sr rq qp px", "vu ut ts sr rq qy", "vu ut ts sz", "vu uw"]  # without sharing
    assert sum(len(path.split()) for path in paths) == 19
    assert sum(len(path.split()) - 1 for path in paths) == 15


def second(x: Tensor) -> Tensor:
    root = (x**2 + 1).sqrt()
    log = (x + root).log()
    return log / x**2 - log**3 / root


@pytest.mark.catalogue("S3-077")
def test_shared_expressions_of_a_graph_are_evaluated_once() -> None:
    def first(x: Tensor) -> Tensor:
        log = x.log()
        return log + log.sqrt()

    assert first(leaf(math.e)).item() == pytest.approx(2, abs=1e-7)
    assert first(leaf(math.e**4)).item() == pytest.approx(6, abs=1e-7)
    assert kinds(first(leaf(2.0))) == {"Log": 1, "Sqrt": 1, "Add": 1, "torch::autograd::AccumulateGrad": 1}
    values = {0.5: (1.8251797, -4.637569), 1.0: (0.3972401, -1.9788028), 2.0: (-0.9846033, -0.9613506)}
    for at, (value, slope) in values.items():
        assert second(leaf(at)).item() == pytest.approx(value, abs=1e-7)
        assert gradient(second, at) == [pytest.approx(slope, abs=1e-6)]
    counts = kinds(second(leaf(1.0)))
    assert counts["Log"] == counts["Sqrt"] == 1  # though each is used two or three times
    assert gradient(first, math.e) == [pytest.approx(1.5 / math.e, abs=1e-12)]
    lengths = leaf(3.0, 4.0, 5.0, 12.0).reshape(2, 2).square().sum(1).sqrt()
    assert lengths.tolist() == [5, 13] and kinds(lengths)["Sqrt"] == 1


@pytest.mark.catalogue("S3-078")
def test_forward_mode_carries_the_derivative_along_and_takes_a_pass_for_each_input() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.log()
        return y + y.sqrt()

    one = torch.tensor(1.0, dtype=F64)
    for at, printed in ((math.e, 0.5518192), (math.e**4, 0.0228945), (2.0, 0.8002806)):
        value, slope = jvp(function, (torch.tensor(at, dtype=F64),), (one,))
        assert float(slope) == pytest.approx(1 / at + 1 / (2 * at * math.sqrt(math.log(at))), abs=1e-12)
        assert float(slope) == pytest.approx(printed, abs=1e-7) and torch.equal(value, function(one * at))
    passes = 0

    def counted(x: Tensor) -> Tensor:
        nonlocal passes
        passes += 1
        return (x**3).sum() * x.prod()

    for count in (1, 4, 9):
        passes, x = 0, torch.rand(count, dtype=F64) + 1
        slopes = [jvp(counted, (x,), (direction,))[1] for direction in torch.eye(count, dtype=F64)]
        assert passes == count
        at = x.clone().requires_grad_()
        assert torch.allclose(torch.stack(slopes), torch.autograd.grad(counted(at), at)[0], rtol=1e-12)


@pytest.mark.catalogue("S3-079")
def test_a_program_is_differentiated_for_which_there_is_no_expression() -> None:
    def newton(x: Tensor) -> Tensor:
        root = x
        while abs((root * root - x).item()) > 1e-12:  # how often depends on the number
            root = (root + x / root) / 2 if root.item() > 0 else -root
        return root

    turns = [sum("Div" in n.name() for n, _ in nodes(newton(leaf(at)))) for at in (1.5, 2.0, 900.0)]
    assert turns == sorted(set(turns))  # another graph each time
    for at in (1.5, 2.0, 900.0):
        assert gradient(newton, at) == [pytest.approx(0.5 / math.sqrt(at), rel=1e-6)]


@pytest.mark.catalogue("S3-080")
def test_reverse_mode_gathers_adjoints_from_the_output_down() -> None:
    for at in (math.e, math.e**4, 2.0):
        x = leaf(at)
        y = x.log()
        z = y.sqrt()
        f = y + z
        users = [node.name() for node, below in nodes(f) if y.grad_fn in below]
        assert len(users) == 2  # so that two contributions come together in it
        adjoints = torch.autograd.grad(f, [f, z, y, x], retain_graph=True)
        root = 2 * math.sqrt(math.log(at))
        assert [float(a) for a in adjoints] == pytest.approx(
            [1, 1, 1 / root + 1, (1 / root + 1) / at], abs=1e-12
        )
        ahead = jvp(lambda x: x.log() + x.log().sqrt(), (x.detach(),), (torch.ones(1, dtype=F64),))[1]
        assert float(adjoints[-1]) == pytest.approx(float(ahead), abs=1e-12)
        assert gradient(lambda x: x.log() + x.log().sqrt(), at) == pytest.approx([float(ahead)], abs=1e-12)
        f.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):  # what the forward pass kept is gone
            f.sum().backward()
    with pytest.raises(RuntimeError, match="does not require grad"):  # nothing was kept
        x.detach().log().sum().backward()


@pytest.mark.catalogue("S3-078")
@pytest.mark.parametrize("hidden", [[], [2]])
def test_the_gradient_of_the_engine_takes_forward_mode_a_pass_for_each_parameter(hidden: list[int]) -> None:
    """Dual numbers go through the model and the objective of a run."""
    assembly, linked, called = engine(hidden=hidden, activation="tanh")
    batch = pegboard.Batch((torch.randn(6, 4, dtype=F64),), torch.arange(6) % 3)
    _, grads = linked.gradients([batch])
    exact = torch.cat([g.flatten() for g in grads if g is not None])
    player, passes, slopes = assembly.kits[0].player, list[int](), []
    hook = assembly.model.register_forward_hook(lambda *given: passes.append(1))
    named = {name: p.detach() for name, p in player.parameters}
    for name, value in named.items():
        for place in range(value.numel()):
            direction = torch.zeros_like(value)
            direction.view(-1)[place] = 1
            with forward_ad.dual_level():
                dual = named | {name: forward_ad.make_dual(value, direction)}
                loss = player.loss(Duals(assembly.model, dual), batch)[0]
                slopes.append(forward_ad.unpack_dual(loss).tangent)
    hook.remove()
    assert len(passes) == len(exact) == sum(p.numel() for p in assembly.model.parameters())
    assert called.count("backward") == 1
    assert torch.allclose(torch.stack(slopes), exact, atol=1e-12, rtol=0)


class Duals(nn.Module):
    """A model whose parameters are dual numbers."""

    def __init__(self, model: nn.Module, parameters: dict[str, Tensor]) -> None:
        super().__init__()
        self.model, self.given = model, parameters

    def forward(self, x: Tensor) -> Tensor:
        return torch.func.functional_call(self.model, self.given, (x,))  # type: ignore[no-any-return]


# The engine.
def engine(**model: Any) -> tuple[Assembly, Step, list[str]]:
    """A network of 4 inputs and 3 outputs with its step, in float64, and what that step calls."""
    config = {
        "data": {"name": "iris"},
        "model": {"name": "mlp", **model},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "trainer": {"device": "cpu"},
    }
    assembly = assemble(make_plan(check(config), read=True), "cpu")
    assembly.model.double()
    called: list[str] = []

    def watch(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any) -> Any:
            called.append(name)
            return call(*args)

        return watched

    return assembly, make_step(assembly, assembly.kits[0], choose_precision("fp32", "cpu"), watch), called


def weights(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Matrix and bias of every layer."""
    return [(m.weight.detach(), m.bias.detach()) for m in model.modules() if isinstance(m, nn.Linear)]


@pytest.mark.catalogue("T097", "S3-084", "S4-050")
@pytest.mark.parametrize("hidden", [[6], [5, 7, 6]])
def test_backpropagation_by_hand_gives_the_gradients_of_the_engine(hidden: list[int]) -> None:
    assembly, linked, called = engine(hidden=hidden, activation="tanh")
    x, target = torch.randn(8, 4, dtype=F64), torch.arange(8) % 3
    _, grads = linked.gradients([pegboard.Batch((x,), target)])
    assert called.count("backward") == 1  # however many parameters there are
    layers = weights(assembly.model)
    h, before = [x], list[Tensor]()
    for place, (matrix, bias) in enumerate(layers):
        before.append(h[-1] @ matrix.T + bias)
        h.append(before[-1].tanh() if place < len(layers) - 1 else before[-1])
    slopes = [1 - z.tanh() ** 2 for z in before[:-1]] + [torch.ones_like(before[-1])]
    upper = h[-1].softmax(1) - torch.eye(3, dtype=F64)[target]  # of the loss by the outputs, (8, 3)
    by_hand: list[Tensor] = []
    for place in reversed(range(len(layers))):
        signal = upper * slopes[place]
        by_hand = [signal.T @ h[place] / 8, signal.mean(0), *by_hand]
        upper = signal @ layers[place][0]  # by the layer before: the matrix of the layer above it
    for mine, theirs in zip(by_hand, grads, strict=True):
        assert theirs is not None and torch.allclose(mine, theirs, atol=1e-10, rtol=0)
    for place, (matrix, bias) in enumerate(layers):
        whole = jacobian(
            lambda a, b, i=place: (h[i][0] @ a.T + b).tanh() if i < len(layers) - 1 else h[i][0] @ a.T + b,
            (matrix, bias),
        )
        by_layer = torch.cat([whole[0].flatten(1), whole[1]], 1)  # of a layer by its own parameters
        outputs, inputs = matrix.shape
        assert by_layer.shape == (outputs, outputs * (inputs + 1))
        assert (by_layer != 0).sum(0).max() <= 1 and int((by_layer != 0).sum()) <= by_layer.shape[1]


@pytest.mark.catalogue("S3-076")
def test_differences_take_an_evaluation_for_each_parameter_and_the_engine_one() -> None:
    assembly, linked, called = engine(hidden=[3], activation="tanh")
    batch = pegboard.Batch((torch.randn(6, 4, dtype=F64),), torch.arange(6) % 3)
    passes: list[int] = []
    hook = assembly.model.register_forward_hook(lambda *given: passes.append(1))
    _, grads = linked.gradients([batch])
    hook.remove()
    exact = torch.cat([g.flatten() for g in grads if g is not None])
    assert len(passes) == called.count("backward") == 1 and len(exact) == 27
    player, evaluations = assembly.kits[0].player, 0
    flat = nn.utils.parameters_to_vector(p for _, p in player.parameters).detach()

    def loss(at: Tensor) -> float:
        nonlocal evaluations
        evaluations += 1
        nn.utils.vector_to_parameters(at, [p for _, p in player.parameters])
        with torch.no_grad():
            return float(player.loss(assembly.model, batch)[0])

    steps = torch.eye(len(flat), dtype=F64)
    start = loss(flat)
    forward = torch.tensor([(loss(flat + 1e-7 * s) - start) / 1e-7 for s in steps], dtype=F64)
    assert evaluations == len(flat) + 1
    evaluations = 0
    central = torch.tensor([(loss(flat + 1e-5 * s) - loss(flat - 1e-5 * s)) / 2e-5 for s in steps], dtype=F64)
    assert evaluations == 2 * len(flat)
    assert torch.allclose(forward, exact, atol=1e-6, rtol=0)
    assert torch.allclose(central, exact, atol=1e-6, rtol=0)
