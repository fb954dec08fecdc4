"""How much work derivatives are, in operations that are counted as they are carried out, never in time."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from counting import OPERATIONS, Counted, Counting, apply, dot, flops, multiplications, plain, product
from pegboard.config.check import check
from pegboard.engine.precision import choose_precision
from pegboard.engine.step import make_step
from pegboard.planning.plan import Plan, assemble, make_plan
from pegboard.preview.explain import explain
from pegboard_mlp.modules import Mlp
from pegboard_mlp.operations import operations
from torch import Tensor, nn

F64 = torch.float64


# The operations themselves, as the probe `operation_counts` counts them.
@pytest.mark.catalogue("T089")
@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda a, b: a + b, {"add": 12}),
        (lambda a, b: a - b, {"sub": 12}),
        (lambda a, b: a * b, {"mul": 12}),
        (lambda a, b: a / b, {"div": 12}),
        (lambda a, b: a.exp(), {"exp": 12}),
        (lambda a, b: a < b, {"compare": 12}),
        (lambda a, b: -a.abs().view(4, 3).T.clone(), {}),
        (lambda a, b: a.relu(), {"compare": 12}),
        (lambda a, b: nn.functional.leaky_relu(a, 0.5), {"compare": 12, "mul": 12}),
        (lambda a, b: a.sigmoid(), {"exp": 12, "add": 12, "div": 12}),
        (lambda a, b: a.sum(), {"add": 11}),
        (lambda a, b: a.mean(1), {"add": 9, "div": 3}),
        (lambda a, b: a.softmax(1), {"compare": 9, "sub": 12, "exp": 12, "add": 9, "div": 12}),
        (lambda a, b: a @ b.T, {"mul": 36, "add": 27}),
        (lambda a, b: nn.functional.linear(a, b, b[:, 0]), {"mul": 36, "add": 36}),
        (lambda a, b: nn.functional.conv1d(a[None], b[None, :, :3]), {"mul": 18, "add": 16}),
        (lambda a, b: (4 * a.exp() + 1) / b, {"exp": 12, "mul": 12, "add": 12, "div": 12}),
    ],
)
def test_each_of_six_operations_counts_one(
    run: Callable[[Tensor, Tensor], Tensor], expected: dict[str, int]
) -> None:
    a, b = torch.rand(2, 3, 4, dtype=F64) + 0.5
    counts, unknown = operations(lambda: run(a, b))
    assert tuple(counts) == ("add", "sub", "mul", "div", "exp", "compare") and not unknown
    assert {kind: count for kind, count in counts.items() if count} == expected


@pytest.mark.catalogue("T089")
def test_the_operations_of_a_trained_run_are_those_of_its_layers(tmp_path: Path) -> None:
    config = {
        "data": {"name": "blobs", "features": 4, "classes": 3, "samples": 32, "batch_size": 16},
        "model": {"name": "mlp", "hidden": [6]},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "probes": {"operation_counts": {}, "whole": {"name": "operation_counts", "gradient": True}},
        "trainer": {"device": "cpu", "epochs": 1, "diagnose": False},
    }
    done = pegboard.train(config, root=tmp_path, quiet=True)
    found = {k: v for k, v in done.figures.items() if k.startswith("operation_counts/")}
    products = 6 * 4 + 3 * 6  # and as many additions, of which one in each unit is of the bias
    kinds = {"add": products, "sub": 0, "mul": products, "div": 0, "exp": 0, "compare": 6}
    assert found == {f"operation_counts/{k}": n for k, n in {**kinds, "total": 2 * products + 6}.items()}
    # The gradient by the weights takes as many products as there are weights, and those through the head.
    assert done.figures["whole/mul"] == products + products + 3 * 6
    assert not [name for name in done.figures if "uncounted" in name]


def test_an_operation_without_a_rule_is_told_and_not_guessed() -> None:
    counts, unknown = operations(lambda: torch.linalg.inv(torch.eye(3)).cos())
    assert sum(counts.values()) == 0 and set(unknown) >= {"cos"} and any("inv" in name for name in unknown)


@pytest.mark.catalogue("T090")
@pytest.mark.parametrize(("k", "m", "n"), [(1, 10, 1), (10, 10, 10), (3, 7, 5), (6, 2, 4)])
def test_products_of_vectors_and_matrices(k: int, m: int, n: int) -> None:
    a, b = torch.randn(k, m, dtype=F64), torch.randn(m, n, dtype=F64)
    counting = Counting()
    found = product(counting.matrix(a), counting.matrix(b))
    values = torch.tensor([[plain(value) for value in row] for row in found], dtype=F64)
    assert torch.allclose(values, a @ b)
    assert counting.total == k * n * (2 * m - 1) == {1: 19, 10: 1900}.get(k, counting.total)
    assert multiplications(lambda: a @ b) == counting.counts["mul"] == k * m * n
    assert operations(lambda: a @ b)[0] == {**dict.fromkeys(OPERATIONS, 0), **counting.counts}


# Networks of one or two units in a layer, all by hand.
class Chain:
    """h <- leaky(a h + b) in every layer, the loss h^2; numbers count what is done with them."""

    def __init__(self, counting: Counting, depth: int, *, bias: bool) -> None:
        draw = random.Random(depth)
        self.counting, self.bias, self.depth = counting, bias, depth
        self.a = counting.vector([draw.uniform(0.9, 1.1) * draw.choice([1, -1]) for _ in range(depth)])
        self.b = counting.vector([draw.uniform(-0.1, 0.1) for _ in range(depth)])

    @property
    def parameters(self) -> list[Counted]:
        return [*self.a, *(self.b if self.bias else [])]

    def leaky(self, z: Counted) -> tuple[Counted, float]:
        slope = 0.5 if z < 0.0 else 1.0
        return z * slope, slope

    def forward(self) -> tuple[list[Counted], list[float]]:
        h, slopes = [self.counting.number(0.8)], []
        for a, b in zip(self.a, self.b, strict=True):
            z = a * h[-1] + b if self.bias else a * h[-1]
            value, slope = self.leaky(z)
            h.append(value)
            slopes.append(slope)
        return h, slopes

    def loss(self) -> Counted:
        last = self.forward()[0][-1]
        return last * last

    def backpropagated(self) -> list[Counted]:
        """The gradient by a and by b, each signal made of the one above it."""
        h, slopes = self.forward()
        by_a, by_b, upper = [], [], h[-1] * 2.0
        for place in reversed(range(self.depth)):
            signal = upper * slopes[place]
            by_a.append(signal * h[place])
            by_b.append(signal)
            upper = signal * self.a[place]
        return [*reversed(by_a), *(reversed(by_b) if self.bias else [])]

    def differences(self, step: float) -> list[Counted]:
        """The gradient by an evaluation for every parameter."""
        start, found = self.loss(), []
        for parameter in self.parameters:
            kept = parameter.value
            parameter.value = kept + step
            found.append((self.loss() - start) / step)
            parameter.value = kept
        return found

    def autograd(self) -> list[float]:
        a, b = (
            torch.tensor([plain(v) for v in vs], dtype=F64, requires_grad=True) for vs in (self.a, self.b)
        )
        h = torch.tensor(0.8, dtype=F64)
        for place in range(self.depth):
            h = nn.functional.leaky_relu(a[place] * h + (b[place] if self.bias else 0), 0.5)
        return [float(v) for g in torch.autograd.grad(h**2, [a, b][: 1 + self.bias]) for v in g]


def count(depth: int, run: Callable[[Chain], object], *, bias: bool) -> int:
    counting = Counting()
    run(Chain(counting, depth, bias=bias))
    return counting.total


@pytest.mark.catalogue("T095")
def test_backpropagation_through_a_chain_is_linear_and_differences_are_quadratic() -> None:
    chain = Chain(Counting(), 30, bias=False)
    by_hand = [plain(v) for v in chain.backpropagated()]
    assert by_hand == pytest.approx(chain.autograd(), abs=1e-10)
    share = [count(n, Chain.backpropagated, bias=False) / n for n in (30, 60, 120)]
    assert max(share) / min(share) < 1.1
    differences = [count(n, lambda c: c.differences(1e-6), bias=False) for n in (30, 60, 120)]
    assert [b / a for a, b in pairwise(differences)] == pytest.approx([4, 4], rel=0.05)
    # Of networks of the framework, what the engine of derivatives does is counted likewise.
    work = [gradient_work(Mlp(1, [1] * n, 1, "leaky_relu", bias=False, alpha=0.5)) / n for n in (30, 60, 120)]
    assert max(work) / min(work) < 1.1


def gradient_work(model: nn.Module) -> int:
    """The operations of the loss h^2 of one sample and of its gradient by all parameters."""
    first = next(model.parameters())
    x = torch.full((1, first.shape[1]), 0.8, dtype=first.dtype)

    def run() -> None:
        torch.autograd.grad(model(x).square().sum(), list(model.parameters()))

    counts, unknown = operations(run)
    assert not unknown
    return sum(counts.values())


@pytest.mark.catalogue("T106")
def test_doubling_the_layers_doubles_backpropagation_and_quadruples_differences() -> None:
    chain = Chain(Counting(), 30, bias=True)
    by_hand = [plain(v) for v in chain.backpropagated()]
    assert by_hand == pytest.approx(chain.autograd(), abs=1e-8)
    assert [plain(v) for v in chain.differences(0.001)] == pytest.approx(by_hand, rel=0.01, abs=0)
    work = {n: count(n, Chain.backpropagated, bias=True) for n in (30, 60, 120)}
    tried = {n: count(n, lambda c: c.differences(0.001), bias=True) for n in (30, 60, 120)}
    for n in (30, 60):
        assert 1.9 < work[2 * n] / work[n] < 2.1 and 3.8 < tried[2 * n] / tried[n] < 4.2
        assert tried[n] > n * work[n] / 2
    model = {n: Mlp(1, [1] * n, 1, "leaky_relu", alpha=0.5) for n in (30, 60, 120)}
    whole = {n: gradient_work(model[n]) for n in model}
    loss = {n: sum(operations(lambda n=n: model[n](torch.ones(1, 1)).square())[0].values()) for n in model}
    size = {n: sum(p.numel() for p in model[n].parameters()) for n in model}
    for n in (30, 60):
        assert 1.9 < whole[2 * n] / whole[n] < 2.1
        assert 3.8 < (size[2 * n] + 1) * loss[2 * n] / ((size[n] + 1) * loss[n]) < 4.2  # by differences


def two_wide(depth: int) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(depth)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=F64)  # noqa: E731
    return [draw(2, 2) for _ in range(depth)], draw(2)


def backpropagate_two(matrices: list[Tensor], x: Tensor) -> tuple[list[Tensor], int]:
    """The gradient of the sum of the outputs by every 2 x 2 matrix, layers h <- leaky(A h), and its work."""
    counting = Counting()
    layers, h = [counting.matrix(m) for m in matrices], [counting.vector(x)]
    slopes = []
    for layer in layers:
        z = apply(layer, h[-1])
        slopes.append([0.5 if value < 0.0 else 1.0 for value in z])
        h.append([value * slope for value, slope in zip(z, slopes[-1], strict=True)])
    upper, found = counting.vector([1.0, 1.0]), []
    for place in reversed(range(len(layers))):
        signal = [u * s for u, s in zip(upper, slopes[place], strict=True)]
        found.append([[s * value for value in h[place]] for s in signal])
        upper = [dot(signal, column) for column in zip(*layers[place], strict=True)]
    grads = [torch.tensor([[plain(v) for v in row] for row in g], dtype=F64) for g in reversed(found)]
    return grads, counting.total


@pytest.mark.catalogue("T104")
def test_two_units_in_a_layer_have_four_parameters_and_linear_work() -> None:
    matrices, x = two_wide(10)
    leaves = [m.requires_grad_() for m in matrices]
    h = x
    for matrix in leaves:
        h = nn.functional.leaky_relu(matrix @ h, 0.5)
    exact = torch.autograd.grad(h.sum(), leaves)
    by_hand, _ = backpropagate_two([m.detach() for m in matrices], x)
    assert sum(g.numel() for g in by_hand) == 4 * 10
    for mine, theirs in zip(by_hand, exact, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-10, rtol=1e-10)
    work = [backpropagate_two(*two_wide(depth))[1] for depth in (10, 20, 30, 40)]
    assert len({b - a for a, b in pairwise(work)}) == 1  # the same for every ten layers more
    # A network of the framework has them too, below a last layer that sums.
    nets = {n: Mlp(2, [2] * n, 1, "leaky_relu", bias=False, alpha=0.5).double() for n in (10, 20, 30, 40)}
    assert all(sum(p.numel() for p in net.body.parameters()) == 4 * n for n, net in nets.items())
    with torch.no_grad():
        for p, matrix in zip(nets[10].parameters(), [*matrices, torch.ones(1, 2)], strict=True):
            p.copy_(matrix)
    found = torch.autograd.grad(nets[10](x[None]).sum(), list(nets[10].body.parameters()))
    for mine, theirs in zip(by_hand, found, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-10, rtol=1e-10)
    counted = [gradient_work(net) for net in nets.values()]
    assert len({b - a for a, b in pairwise(counted)}) == 1


# Whole networks.
def plan(hidden: list[int], features: int = 4, outputs: int = 3, **model: Any) -> Plan:
    config = {
        "data": {"name": "blobs", "features": features, "classes": outputs, "samples": 100, "batch_size": 16},
        "model": {"name": "mlp", "hidden": hidden, **model},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "trainer": {"device": "cpu"},
    }
    return make_plan(check(config), read=False)


def explained(text: str, figure: str) -> int:
    found = re.search(rf"^{figure} +([\d,]+)", text, re.M)
    assert found is not None, text
    return int(found[1].replace(",", ""))


@pytest.mark.catalogue("T096")
@pytest.mark.parametrize("sizes", [(4, 6, 3), (3, 5, 2), (7, 2, 9, 4, 5), (5, 1, 1, 2)])
def test_parameters_of_a_network_as_explain_prints_them(sizes: tuple[int, ...]) -> None:
    planned = plan(list(sizes[1:-1]), sizes[0], sizes[-1])
    by_formula = sum(b * (a + 1) for a, b in pairwise(sizes))
    assert by_formula == {(4, 6, 3): 51, (3, 5, 2): 32}.get(sizes, by_formula)
    model = assemble(planned, "meta").model
    assert sum(p.numel() for p in model.parameters()) == by_formula
    assert explained(explain(planned), "parameters") == by_formula


SHAPED = """
from dataclasses import dataclass
from pegboard import Model, hookimpl

@dataclass(frozen=True)
class Shaped:
    pass

def build(config, context):
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.curve = nn.Parameter(torch.zeros(64, 10)), nn.Tanh()

        def forward(self, x):
            return x.flatten(1) @ self.curve(self.weight)

    return Net()

@hookimpl
def pegboard_models():
    return [Model("shaped", Shaped, build)]
"""


def test_a_step_is_counted_where_a_module_is_called_on_a_parameter(tmp_path: Path) -> None:
    (tmp_path / "shaped.py").write_text(SHAPED)
    config = {
        "data": {"name": "digits", "batch_size": 32},
        "model": {"name": "shaped"},
        "optimizer": {"name": "adam"},
        "plugins": {"local": [str(tmp_path / "shaped.py")]},
    }
    text = explain(make_plan(check(config), read=False))
    assert explained(text, "a step") == 2 * 2 * 32 * 64 * 10  # the output, and the weight's gradient


@pytest.mark.catalogue("S3-018")
@pytest.mark.parametrize(
    ("data", "model"),
    [
        *(("iris", {"name": "mlp", "hidden": [6, 6, 6], "form": f}) for f in ("plain", "residual", "dense")),
        ("digits", "resnet"),
        ("digits", "vit"),
        ("digits", "vae"),
    ],
    ids=lambda part: part if isinstance(part, str) else part["form"],
)
def test_the_parameters_of_a_model_are_those_of_its_blocks_each_once(
    data: str, model: str | dict[str, Any]
) -> None:
    config = {"data": data, "model": model, "optimizer": "sgd", "trainer": {"device": "cpu"}}
    planned = make_plan(check(config), read=False)
    net = assemble(planned, "meta").model
    blocks = [m for m in net.modules() if m._parameters]
    held = [p for block in blocks for p in block.parameters(recurse=False)]
    assert len(blocks) > 3 and len({id(p) for p in held}) == len(held)
    assert {id(p) for p in held} == {id(p) for p in net.parameters()}
    assert sum(p.numel() for p in held) == explained(explain(planned), "parameters")


@pytest.mark.catalogue("T105")
@pytest.mark.parametrize(("size", "layers"), [(4, 3), (4, 1), (6, 2)])
def test_cost_of_layers_of_absolute_values(size: int, layers: int) -> None:
    # The network |A x| with `layers` layers and a last one that sums, built by the framework.
    planned = plan([size] * layers, size, 2, activation="abs", bias=False)
    model = assemble(planned, "cpu").model.double()
    matrices = [m.weight.detach() for m in model.modules() if isinstance(m, nn.Linear)][:-1]
    model.head = nn.Identity()  # the loss is the sum of the last layer
    x = torch.randn(size, dtype=F64)
    told, unknown = operations(lambda: model(x[None]).sum())
    assert sum(told.values()) == layers * size * (2 * size - 1) + size - 1 and not unknown
    counting = Counting()
    h = counting.vector(x)
    for matrix in matrices:
        h = [abs(value) for value in apply(counting.matrix(matrix), h)]
    total = dot(h, [Counted(1.0, counting.counts)] * size)
    counting.counts["mul"] -= size  # a sum, whose factors are one
    assert counting.total == layers * size * (2 * size - 1) + size - 1
    assert counting.total == 87 or (size, layers) != (4, 3)
    assert plain(total) == pytest.approx(float(model(x[None]).sum().detach()), abs=1e-10)
    # The derivative of a layer by its input is diag(sign(z)) A: as many multiplications as A has numbers.
    signs = Counting()
    z = matrices[0] @ x
    rows = [
        [value * float(torch.sign(s)) for value in signs.vector(row)]
        for row, s in zip(matrices[0], z, strict=True)
    ]
    assert signs.counts == {"mul": size**2}
    found = torch.autograd.functional.jacobian(lambda v: (matrices[0] @ v).abs(), x)
    assert torch.allclose(found, torch.tensor([[plain(v) for v in row] for row in rows], dtype=F64))
    activation = next(m for m in model.modules() if type(m).__name__.lower().startswith("abs"))
    at = torch.tensor([-2.0, -0.5, 0.5, 3.0], requires_grad=True)
    assert torch.autograd.grad(activation(at).sum(), at)[0].tolist() == [-1, -1, 1, 1]


def square_network(depth: int, width: int) -> tuple[nn.Module, Tensor]:
    """Layers of equal width on the meta device, where operations are counted and not carried out."""
    with torch.device("meta"):
        return Mlp(width, [width] * (depth - 1), width), torch.zeros(32, width)


def gradient(model: nn.Module, x: Tensor) -> None:
    torch.autograd.grad(model(x).square().mean(), list(model.parameters()))


@pytest.mark.catalogue("T098")
def test_sharing_signals_between_layers_saves_a_factor_of_the_depth() -> None:
    def unshared(depth: int, width: int) -> None:
        """Each layer's gradient as a product of all the matrices above it, from the top every time."""
        model, x = square_network(depth, width)
        matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
        with torch.no_grad():
            h = [x]
            for matrix in matrices:
                h.append(h[-1] @ matrix.T)
            for place in range(depth):
                signal = h[-1]
                for matrix in reversed(matrices[place + 1 :]):
                    signal = signal @ matrix
                signal.T @ h[place]

    width = 8
    size = {depth: depth * width * (width + 1) for depth in (8, 16, 32, 64)}
    shared = {d: flops(lambda d=d: gradient(*square_network(d, width))) / size[d] for d in size}
    assert max(shared.values()) / min(shared.values()) < 1.1
    naive = {d: flops(lambda d=d: unshared(d, width)) / size[d] for d in size}
    shares = [naive[2 * d] / naive[d] for d in (8, 16, 32)]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(2, rel=0.1)


@pytest.mark.catalogue("S3-085", "S4-050")
@pytest.mark.parametrize("depth", [2, 6, 12])
def test_a_gradient_costs_at_most_five_times_its_loss_however_many_parameters(depth: int) -> None:
    ratios = []
    for width in (256, 512, 1024):
        model, x = square_network(depth, width)
        forward = flops(lambda m=model, x=x: m(x).square().mean())
        whole = flops(lambda m=model, x=x: gradient(m, x))
        ratios.append(whole / forward)
        evaluations = sum(p.numel() for p in model.parameters()) + 1  # of the loss, by differences
        assert evaluations * forward / whole > width**2 * depth / 5
    assert max(ratios) <= 5 and max(ratios) - min(ratios) < 1e-9
    assert 1 <= ratios[0] - 1 <= 4  # the backward pass alone
    assert ratios[0] == pytest.approx(3 - 1 / depth)  # nobody asks for the derivative by the inputs


@pytest.mark.catalogue("S3-085", "S4-050", "T098")
def test_the_gradient_of_a_training_step_costs_at_most_five_times_the_loss_of_its_player() -> None:
    ratios, work = {}, {}
    for depth, width in ((2, 64), (6, 64), (12, 64), (6, 256)):
        assembly = assemble(plan([width] * depth), "cpu")
        player = assembly.kits[0].player
        linked = make_step(assembly, assembly.kits[0], choose_precision("fp32", "cpu"))
        batch = pegboard.Batch((torch.zeros(16, 4),), torch.arange(16) % 3)
        forward = flops(lambda p=player, a=assembly, b=batch: p.loss(a.model, b))
        whole = flops(lambda k=linked, b=batch: k.gradients([b]))
        ratios[depth, width] = whole / forward
        work[depth, width] = whole / sum(p.numel() for p in assembly.model.parameters())
    assert all(2 < ratio <= 3 for ratio in ratios.values())  # the loss itself, and two products for its one
    assert max(work.values()) / min(work.values()) < 1.2  # a number for each parameter, however many


@pytest.mark.catalogue("S3-082", "S3-083")
def test_multiplications_of_forward_and_reverse_mode() -> None:
    def counts(sizes: list[int]) -> tuple[int, int]:
        """Of the product of Jacobians from the right, as forward mode takes them, and from the left.

        The Jacobians of the layers of a linear mlp are its weights.
        """
        with torch.device("meta"):
            model = Mlp(sizes[0], sizes[1:-1], sizes[-1], "identity", bias=False)
        factors = [p.detach() for p in model.parameters()]
        assert [p.shape for p in factors] == [(b, a) for a, b in pairwise(sizes)]

        def forward() -> None:
            whole = factors[0]
            for factor in factors[1:]:
                whole = factor @ whole

        def reverse() -> None:
            whole = factors[-1]
            for factor in reversed(factors[:-1]):
                whole = whole @ factor

        told = [operations(mode) for mode in (forward, reverse)]
        assert not any(unknown for _, unknown in told)
        found = [counts["mul"] for counts, _ in told]
        assert found == [multiplications(forward), multiplications(reverse)]  # as torch counts them
        return found[0], found[1]

    def formulas(sizes: list[int]) -> tuple[int, int]:
        n, *d, m = sizes
        inner = sum(a * b for a, b in pairwise(d))
        return n * inner + m * n * d[-1], m * inner + m * n * d[0]

    draw = random.Random(0)
    for length in (1, 2, 3, 5, 8):
        sizes = [draw.randint(1, 40) for _ in range(length + 2)]
        assert counts(sizes) == formulas(sizes)
    many, back = counts([1000, 64, 64, 64, 1])
    assert (many, back) == (8_256_000, 72_192) and many / back == pytest.approx(114.4, abs=0.05)
    assert counts([1, 64, 64, 64, 1000]) == (back, many)


@pytest.mark.catalogue("S3-082", "S3-083")
@pytest.mark.parametrize("sizes", [[7, 5, 3, 2], [2, 3, 5, 7], [4, 6, 6, 6, 3]])
def test_passes_of_either_mode_through_a_network_cost_what_the_formula_says(sizes: list[int]) -> None:
    """A tangent for each input, or an adjoint for each output, through a linear mlp."""
    model = Mlp(sizes[0], sizes[1:-1], sizes[-1], "identity", bias=False).double()
    whole = torch.autograd.functional.jacobian(model, torch.randn(1, sizes[0], dtype=F64))[0, :, 0]
    inner = sum(a * b for a, b in pairwise(sizes[1:-1]))
    n, m, first, last = sizes[0], sizes[-1], sizes[0] * sizes[1], sizes[-2] * sizes[-1]
    found: dict[str, Tensor] = {}
    tangents, adjoints = torch.eye(n, dtype=F64), torch.eye(m, dtype=F64)
    x = torch.zeros(m, n, dtype=F64, requires_grad=True)
    output = model(x)

    def forward() -> None:
        found["forward"] = model(tangents).T.detach()

    def reverse() -> None:
        (found["reverse"],) = torch.autograd.grad(output, x, adjoints)

    # The first product of either mode is with unit vectors, which the formulas leave out.
    for run, units, formula in (
        (forward, n * first, n * (inner + last)),
        (reverse, m * last, m * (inner + first)),
    ):
        told, unknown = operations(run)
        assert not unknown and told["mul"] - units == formula
        torch.testing.assert_close(found[run.__name__], whole)
