"""Sets and clouds: what has no order, how wide a sum must be, and what a pointnet sees."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy
import pegboard
import points
import pytest
import torch
from pegboard import Context, Resident
from pegboard_gnn.clouds import body_points, clouds, pixel_points, sets
from pegboard_gnn.data_configs import Clouds, Sets
from pegboard_gnn.point_sets import DeepSets, Equivariant, PermutationLinear, SetLinear
from pegboard_gnn.pointnet import PointNet, Transform, orthogonality
from pegboard_gnn.symmetry import (
    components,
    distances,
    equivariance_gap,
    generated,
    invariance_gap,
    orders,
)
from sweeps import first_of_each
from torch import Tensor, nn

NARROW: dict[str, Any] = {
    "first": (8, 8), "second": (8, 16), "head": (8,), "transform": (8,), "transform_head": (8,)
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "sum": lambda: DeepSets(3, 2),
    "mean": lambda: DeepSets(3, 2, pool="mean"),
    "max": lambda: DeepSets(3, 2, pool="max"),
    "equivariant": lambda: Equivariant(3, 2),
    "equivariant max": lambda: Equivariant(3, 2, pool="max"),
    "pointnet": lambda: PointNet(3, 2, **NARROW),
}
EACH: dict[str, Any] = {
    "deepsets": lambda: DeepSets(3, 2, each=True),
    "equivariant": lambda: Equivariant(3, 2, each=True),
    "pointnet": lambda: PointNet(3, 2, each=True, **NARROW),
}


def moves(points: int, count: int = 20) -> list[Any]:
    found = orders(count, points, torch.Generator().manual_seed(0))
    return [lambda x, order=order: x[:, order] for order in found]


def ready(net: nn.Module) -> nn.Module:
    """With matrices that are not the identity, as after training."""
    for module in net.modules():
        if isinstance(module, Transform):
            nn.init.normal_(module.rho.last.weight, std=0.3)  # type: ignore[union-attr]
    return net.eval()


@pytest.mark.catalogue("S18", "S31", "S4-114", "S4-116")
@pytest.mark.parametrize("name", WHOLE)
def test_answers_for_sets_know_no_order(name: str) -> None:
    torch.manual_seed(0)
    net, x = ready(WHOLE[name]()), torch.randn(4, 7, 3)
    with torch.no_grad():
        assert invariance_gap(net, moves(7), x) < 1e-5
        assert net(torch.randn(2, 19, 3)).shape == (2, 2)  # sets of any size


@pytest.mark.catalogue("S18", "S4-115", "S4-117", "S4-121")
@pytest.mark.parametrize("name", EACH)
def test_answers_for_points_follow_their_order(name: str) -> None:
    torch.manual_seed(0)
    net, x = ready(EACH[name]()), torch.randn(4, 7, 3)
    turn = moves(7)[0]  # a cycle of three, whose inverse is another one
    with torch.no_grad():
        assert equivariance_gap(net, moves(7), x) < 1e-5
        assert (net(x) - turn(net(turn(x)))).abs().max() > 1e-3  # P f(PX), as it is sometimes printed


@pytest.mark.catalogue("S4-113", "S4-114")
def test_points_side_by_side_have_an_order_and_a_number(tmp_path: Path) -> None:
    bodies = {"name": "clouds", "clouds": 40, "points": 7, "batch_size": 20}
    config = {
        "data": bodies,
        "model": {"name": "mlp", "hidden": [16]},
        "optimizer": "adam",
        "trainer": {"epochs": 1, "device": "cpu", "diagnose": False},
        "probes": {"node_order": {}},
    }
    done = points.run(config, tmp_path)
    (gap,) = (value for name, value in done.figures.items() if name.endswith("order_gap_relative"))
    assert gap > 1e-2
    net = pegboard.load(done, which="last")
    with torch.no_grad():
        assert invariance_gap(net, moves(7), torch.randn(4, 7, 3)) > 1e-3
    with pytest.raises(RuntimeError, match="shapes"):
        net(torch.randn(4, 8, 3))
    refused = {"sets of one size": {"name": "sets", "sets": 40}, "one class": {**bodies, "task": "part"}}
    for told, data in refused.items():
        with pytest.raises(pegboard.PegboardError, match=told):
            pegboard.plan({**config, "data": data})


@pytest.mark.parametrize("name", [*WHOLE, *(f"each {name}" for name in EACH)])
def test_points_that_are_not_there_change_nothing(name: str) -> None:
    kinds = {**WHOLE, **{f"each {k}": v for k, v in EACH.items()}}
    torch.manual_seed(0)
    net: Any = ready(kinds[name]())
    x = torch.randn(2, 5, 3)
    filled = torch.cat((x, torch.full((2, 4, 3), torch.nan)), 1)
    with torch.no_grad():
        expected = net(x)
        net.padded = True
        found = net(filled)
    found = found[:, :5] if name.startswith("each") else found
    assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("name", [*WHOLE, *(f"each {name}" for name in EACH)])
@pytest.mark.parametrize("training", [False, True])
def test_a_set_without_points_has_an_answer_and_leaves_the_others_theirs(name: str, training: bool) -> None:
    kinds = {**WHOLE, **{f"each {k}": v for k, v in EACH.items()}}
    torch.manual_seed(0)
    net: Any = ready(kinds[name]()).train(training)
    net.padded = True
    x = torch.randn(3, 5, 3)
    x[1] = torch.nan
    found = net(x)
    assert torch.isfinite(found).all() and found.abs().max() < 1e3
    found.square().sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in net.parameters())
    assert all(torch.isfinite(b).all() for b in net.buffers())
    if not training:
        assert (found[[0, 2]] - net(x[[0, 2]])).abs().max() < 1e-5


def test_statistics_of_a_norm_are_of_the_points_that_are_there() -> None:
    torch.manual_seed(0)
    one: Any = PointNet(3, 2, **NARROW)
    two: Any = PointNet(3, 2, padded=True, **NARROW)
    two.load_state_dict(one.state_dict())
    x = torch.randn(6, 5, 3)
    found = two(torch.cat((x, torch.full((6, 4, 3), torch.nan)), 1))
    assert (found - one(x)).abs().max() < 1e-4
    for a, b in zip(one.buffers(), two.buffers(), strict=True):
        assert (a - b).abs().max() < 1e-4


@pytest.mark.catalogue("S30")
def test_a_linear_map_that_permutations_commute_with_has_two_numbers() -> None:
    layer = PermutationLinear(1.5, -0.4)
    assert sum(p.numel() for p in layer.parameters()) == 2
    x = torch.randn(3, 6)
    with torch.no_grad():
        assert equivariance_gap(layer, moves(6), x) <= 1e-6
        full = torch.full((6, 6), -0.4).fill_diagonal_(1.5)
        assert (layer(x) - x @ full).abs().max() < 1e-6
    for size in (3, 4, 5, 6):  # matrices M with P M = M P for a swap and a turn, which make all others
        swap, turn = torch.eye(size), torch.eye(size).roll(1, 0)
        swap[[0, 1]] = swap[[1, 0]]
        eye = torch.eye(size)
        rules = torch.cat([torch.kron(eye, p) - torch.kron(p.T.contiguous(), eye) for p in (swap, turn)])
        assert size**2 - int(torch.linalg.matrix_rank(rules)) == 2
    assert sum(p.numel() for p in SetLinear(1, 1, bias=False).parameters()) == 2


@pytest.mark.catalogue("S20")
def test_what_follows_a_swap_and_a_turn_follows_every_permutation() -> None:
    swap, turn = (1, 0, 2, 3), (1, 2, 3, 0)
    assert generated([swap, turn]) == set(permutations(range(4)))
    layer, x = SetLinear(2, 2), torch.randn(1, 4, 2)
    with torch.no_grad():
        for order in permutations(range(4)):
            assert equivariance_gap(layer, [lambda t, o=list(order): t[:, o]], x) < 1e-6


@pytest.mark.catalogue("S19")
def test_invariant_functions_are_constant_on_components() -> None:
    found = components(12, [lambda x: (x + 4) % 12])
    assert len(found) == 4 and {frozenset(c) for c in found} == {
        frozenset({i, i + 4, i + 8}) for i in range(4)
    }
    move = torch.eye(12).roll(4, 0)
    invariant = 12 - int(torch.linalg.matrix_rank(move - torch.eye(12)))
    assert invariant == 4


@pytest.mark.catalogue("S21")
def test_permutations_act_by_their_inverse() -> None:
    def act(order: tuple[int, ...], x: Tensor) -> Tensor:
        return x[torch.tensor(order).argsort()]  # x_{order^-1(i)}

    def wrongly(order: tuple[int, ...], x: Tensor) -> Tensor:
        return x[list(order)]  # x_{order(i)}

    x = torch.tensor([10.0, 20.0, 30.0])
    every = list(permutations(range(3)))
    assert torch.equal(act((0, 1, 2), x), x)
    for g in every:
        for h in every:
            both = tuple(g[i] for i in h)
            assert torch.equal(act(g, act(h, x)), act(both, x))
            assert torch.equal(wrongly(g, wrongly(h, x)), wrongly(tuple(h[i] for i in g), x))
    three, two = (1, 2, 0), (1, 0, 2)
    assert not torch.equal(wrongly(three, wrongly(two, x)), wrongly(tuple(three[i] for i in two), x))
    shift = [lambda t, k=k: t + 3 * k for k in range(-2, 3)]  # the group of periods
    assert torch.equal(shift[0](shift[4](x)), x) and torch.equal(shift[3](shift[3](x)), shift[4](x))


@pytest.mark.catalogue("S16")
def test_distances_do_not_see_rigid_motions() -> None:
    from pegboard_gnn.mesh import rotations

    turns = rotations(5, torch.Generator().manual_seed(0))
    assert (turns @ turns.mT - torch.eye(3)).abs().max() < 1e-5 and (
        torch.linalg.det(turns) - 1
    ).abs().max() < 1e-5
    x = torch.randn(20, 3)
    moved = [lambda p, r=r: p @ r + torch.tensor([1.0, -2.0, 0.5]) for r in turns]
    assert invariance_gap(distances, moved, x) < 1e-5
    assert invariance_gap(lambda p: p, moved, x) > 0.1


@pytest.mark.catalogue("S31", "S4-116")
def test_a_sum_that_was_learned_on_small_sets_holds_for_larger_ones(tmp_path: Path) -> None:
    config = {
        "data": {"name": "sets", "sets": 400, "seed": 1, "batch_size": "all"},
        "model": {"name": "deepsets", "point": [16], "rest": []},  # what follows the sum is linear
        "optimizer": {"name": "adam", "lr": 0.3, "schedule": "linear"},
        "trainer": {"epochs": 400, "eval_every": 400, "device": "cpu", "diagnose": False},
    }
    done = points.run(config, tmp_path)
    assert done.figures["val/loss"] < 1e-2
    net, splits = pegboard.load(done, which="last"), sets(Sets(sets=400, seed=1), Context())
    assert isinstance(splits.test, Resident) and isinstance(splits.train, Resident)
    assert splits.test.target is not None
    with torch.no_grad():
        large = splits.test.target[:, 0] > 0
        relative = (net(splits.test.inputs[0]) - splits.test.target).abs()[large] / splits.test.target[large]
        for order in moves(20):  # the sets of the test have up to twenty, in any order
            swapped = order(splits.test.inputs[0])
            assert (net(swapped) - net(splits.test.inputs[0])).abs().max() < 1e-4 * splits.test.target.max()
    assert relative.mean() < 0.05
    assert splits.spec.inputs[0].count == 20 and torch.isnan(splits.train.inputs[0][:, 10:]).all()


@pytest.mark.catalogue("S4-116", "S4-120")
def test_a_point_that_is_there_twice_counts_twice_in_a_sum_alone() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 6, 3)
    twice = torch.cat((x, x[:, :1]), 1)
    with torch.no_grad():
        for pool, differs in (("sum", True), ("max", False)):
            net = DeepSets(3, 2, pool=pool)
            assert bool((net(x) - net(twice)).abs().max() > 1e-4) == differs
        net = ready(PointNet(3, 2, **NARROW))
        assert (net(x) - net(twice)).abs().max() < 1e-6


@pytest.mark.catalogue("S4-117")
def test_a_point_sees_the_others_through_their_sum_alone() -> None:
    torch.manual_seed(0)
    net = DeepSets(1, 2, (), (8,), each=True)  # the sum of the points themselves
    x, y = torch.tensor([[[1.0], [2.0], [5.0]]]), torch.tensor([[[1.0], [3.0], [4.0]]])
    with torch.no_grad():
        assert (net(x)[0, 0] - net(y)[0, 0]).abs().max() < 1e-6
        assert (net(x)[0, 0] - net(y + torch.tensor([[0.0], [1], [0]]))[0, 0]).abs().max() > 1e-4


def sums_of_powers(points: Tensor, count: int) -> Tensor:
    """The sum that deepsets takes over a set of numbers, of their powers up to `count`: (count,)."""
    net = DeepSets(count, count, (), ()).double()
    (last,) = [m for m in net.modules() if isinstance(m, nn.Linear)]
    nn.init.eye_(last.weight), nn.init.zeros_(last.bias)
    powers = torch.stack([points**k for k in range(1, count + 1)], -1)
    with torch.no_grad():
        found: Tensor = net(powers[None])[0]
    return found


@pytest.mark.catalogue("S4-118")
def test_a_sum_as_wide_as_the_set_tells_all_and_a_narrower_one_does_not() -> None:
    given = torch.tensor([0.1, 0.4, 0.9], dtype=torch.float64)
    p = sums_of_powers(given, 3).tolist()
    e1 = p[0]  # by Newton's identities
    e2 = (e1 * p[0] - p[1]) / 2
    e3 = (e2 * p[0] - e1 * p[1] + p[2]) / 3
    assert numpy.abs(numpy.sort(numpy.roots([1, -e1, e2, -e3])) - given.numpy()).max() < 1e-8
    one = torch.tensor([0, 0.5, 0.5], dtype=torch.float64)
    # On the circle of equal sums and sums of squares, by its angle.
    centre, radius = torch.full((3,), 1 / 3, dtype=torch.float64), float((one - 1 / 3).norm())
    u = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64) / 2**0.5
    v = torch.tensor([1.0, 1.0, -2.0], dtype=torch.float64) / 6**0.5
    largest = torch.tensor(0.6518, dtype=torch.float64)
    angle = torch.acos((largest - 1 / 3) / radius / (2 / 3) ** 0.5) + torch.pi / 6
    two = centre + radius * (u * angle.cos() + v * angle.sin())
    assert two.sort().values.tolist() == pytest.approx([0.0888, 0.2594, 0.6518], abs=2e-4)
    assert one.max() == 0.5 and two.max() == pytest.approx(0.652, abs=1e-3)
    assert (sums_of_powers(one, 2) - sums_of_powers(two, 2)).abs().max() < 1e-12
    assert (sums_of_powers(one, 3) - sums_of_powers(two, 3)).abs().max() > 1e-3
    # Whatever stands behind a sum of two numbers, it gives both sets the same.
    torch.manual_seed(0)
    for width, apart in ((2, False), (3, True)):
        net = DeepSets(width, 1, (), (16,)).double()
        with torch.no_grad():
            outputs = [net(torch.stack([x**k for k in range(1, width + 1)], -1)[None]) for x in (one, two)]
        assert bool((outputs[0] - outputs[1]).abs().max() > 1e-6) == apart


@pytest.mark.catalogue("S4-119")
def test_a_predicted_matrix_begins_as_the_identity_and_knows_no_order() -> None:
    torch.manual_seed(0)
    net = Transform(3, (8, 16), (8,), "relu", True).eval()
    x = torch.randn(4, 9, 3)
    with torch.no_grad():
        assert (net(x, None) - torch.eye(3)).abs().max() < 1e-6
        assert (x @ net(x, None) - x).abs().max() < 1e-6
        ready(net)
        assert (net(x, None) - torch.eye(3)).abs().max() > 1e-3
        assert invariance_gap(lambda t: net(t, None), moves(9), x) < 1e-6
    turn = torch.linalg.qr(torch.randn(1, 3, 3))[0]
    assert orthogonality(turn) < 1e-6 and abs(float(orthogonality(torch.zeros(1, 3, 3))) - 3) < 1e-6


@pytest.mark.catalogue("S4-120")
def test_a_cloud_is_known_by_a_few_critical_points() -> None:
    torch.manual_seed(0)
    net: Any = PointNet(3, 2, transform_input=False, transform_features=False).eval()
    x = torch.randn(1, 200, 3)
    with torch.no_grad():
        local, whole = net.see(x)
        assert local.shape == (1, 200, 64) and whole.shape == (1, 1024)
        critical = net.climb(x)[1].argmax(1).unique()
        assert len(critical) < 200
        assert torch.equal(net.see(x[:, critical])[1], whole)


@pytest.mark.catalogue("S4-121")
def test_parts_are_told_by_a_point_and_its_cloud() -> None:
    net: Any = PointNet(3, 4, each=True)
    assert net.head.maps[0].in_features == 1088
    assert net(torch.randn(2, 6, 3)).shape == (2, 6, 4)


@pytest.mark.catalogue("S4-120")
@pytest.mark.parametrize("seed", first_of_each([0, 1, 2]))
def test_bodies_are_told_apart_after_150_steps(seed: int, tmp_path: Path) -> None:
    bare = {"transform_input": False, "transform_features": False}
    done = points.run(
        {
            "seed": seed,
            "data": {"name": "clouds", "clouds": 300, "points": 48, "seed": seed, "batch_size": 32},
            "model": {"name": "pointnet", "first": [32], "second": [64], "head": [32], **bare},
            "optimizer": {"name": "adam", "lr": 3e-3},
            "trainer": {"steps": 150, "eval_every": 150, "device": "cpu", "diagnose": False},
        },
        tmp_path,
    )
    assert done.figures["test/accuracy"] >= 0.95


@pytest.mark.parametrize("body", ["sphere", "cube", "torus", "cylinder", "cone"])
def test_points_lie_on_their_body_with_normals_of_length_one(body: str) -> None:
    points, normals, parts = body_points(body, (4, 500), torch.Generator().manual_seed(0))
    assert (normals.norm(dim=-1) - 1).abs().max() < 1e-5
    x, y, z = points.unbind(-1)
    flat = (x**2 + y**2).sqrt()
    off = {
        "sphere": (points.norm(dim=-1) - 1).abs(),
        "cube": (points.abs().amax(-1) - 1).abs(),
        "torus": (((flat - 1) ** 2 + z**2).sqrt() - 0.4).abs(),
        "cylinder": torch.minimum((flat - 1).abs(), (z.abs() - 1).abs()),
        "cone": torch.minimum((flat - (1 - z) / 2).abs(), (z + 1).abs()),
    }[body]
    assert off.max() < 1e-5
    counts = torch.bincount(parts.flatten()) / parts.numel()
    shares = {
        "sphere": [1 / 2] * 2, "cube": [1 / 6] * 6, "torus": [0.5 + 0.4 / torch.pi, 0.5 - 0.4 / torch.pi],
        "cylinder": [2 / 3, 1 / 6, 1 / 6], "cone": [5**0.5 / (1 + 5**0.5), 1 / (1 + 5**0.5)],
    }[body]  # fmt: skip
    assert (counts - torch.tensor(shares)).abs().max() < 0.05


def test_parts_of_bodies_are_numbered_through_all_of_them() -> None:
    splits: Any = clouds(Clouds(task="part", clouds=30, points=64, normals=True), Context())
    assert str(splits.spec) == "Points(64, 6) -> Tokens(10, 64)"
    target = splits.train.target
    assert set(target[0].tolist()) <= {0, 1} and set(target[1].tolist()) <= set(range(2, 8))
    assert set(target[2].tolist()) <= {8, 9}


def test_pixels_become_points_once_before_any_comes_again() -> None:
    picture = torch.zeros(2, 5, 5)
    picture[0, 0, 4], picture[0, 2, 2], picture[0, 4, 0] = 1.0, 0.5, 0.8
    found = pixel_points(picture, 6, 0.3, torch.Generator().manual_seed(0))
    seen = sorted({tuple(round(v, 4) for v in point) for point in found[0].tolist()})
    assert seen == [(-1.0, -1.0, 0.8), (0.0, 0.0, 0.5), (1.0, 1.0, 1.0)]
    assert len({tuple(point) for point in found[0, :3].tolist()}) == 3
    assert found[1].abs().max() == 0  # a dark picture is its middle
