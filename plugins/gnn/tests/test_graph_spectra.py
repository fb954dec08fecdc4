"""Laplacians, their eigenvectors as a Fourier transform, and filters on them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs_at_hand import cycle, model, path, random_graph, relabelled
from pegboard_gnn.layers import Cheb
from pegboard_gnn.spectral import (
    Fixed,
    SpectralConv,
    Spectrum,
    convolve,
    filtered,
    inverse,
    kernels,
    polynomial,
    spectrum,
    transform,
)
from pegboard_gnn.structure import Laplacian, ScaledLaplacian, dense
from torch import Tensor


def matrix(edges: Tensor, nodes: int, normalised: bool = False, weight: Tensor | None = None) -> Tensor:
    ones = torch.ones(edges.shape[1]) if weight is None else weight
    return dense(Laplacian(normalised)(edges, ones.double().unsqueeze(1), nodes))


def operator(of: Spectrum, factors: Tensor) -> Tensor:
    """The matrix of a filter: what it makes of a signal at each node."""
    return filtered(torch.eye(len(of.vectors), dtype=torch.float64), factors, of)


@pytest.mark.catalogue("S3-171", "S4-134")
def test_a_laplacian_has_rows_that_sum_to_zero_and_measures_differences() -> None:
    edges = random_graph(12)
    weight = torch.rand(12, 12, dtype=torch.float64)
    weight = (weight + weight.T)[edges[0], edges[1]]
    found = matrix(edges, 12, weight=weight)
    assert found.sum(1).abs().max() < 1e-9 and torch.linalg.eigvalsh(found).min() > -1e-9
    x = torch.randn(12, dtype=torch.float64)
    apart = (x[edges[0]] - x[edges[1]]).square()
    assert abs(float(x @ found @ x - (weight * apart).sum() / 2)) < 1e-9


@pytest.mark.catalogue("S3-171", "S4-135")
@pytest.mark.parametrize("nodes", [5, 9, 12])
def test_eigenvalues_of_a_cycle(nodes: int) -> None:
    values = torch.linalg.eigvalsh(matrix(cycle(nodes), nodes))
    expected = 2 - 2 * torch.cos(2 * torch.pi * torch.arange(nodes, dtype=torch.float64) / nodes)
    assert (values - expected.sort().values).abs().max() < 1e-9


@pytest.mark.catalogue("S3-171", "S4-134")
def test_as_many_eigenvalues_are_zero_as_a_graph_has_components() -> None:
    edges = torch.cat((path(3), cycle(4, 3)), 1)
    for normalised in (False, True):
        assert int((torch.linalg.eigvalsh(matrix(edges, 7, normalised)).abs() < 1e-9).sum()) == 2


@pytest.mark.catalogue("S4-134")
def test_the_normalised_laplacian_has_a_spectrum_from_zero_to_two() -> None:
    edges, nodes = random_graph(12), 13  # the last has no neighbour
    plain, found = matrix(edges, nodes), matrix(edges, nodes, True)
    degree = plain.diagonal()
    root = torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0)
    assert (found - torch.diag(root) @ plain @ torch.diag(root)).abs().max() < 1e-12
    neighbours = torch.diag(degree) - plain
    other = torch.diag((degree > 0).double()) - torch.diag(root) @ neighbours @ torch.diag(root)
    assert (found - other).abs().max() < 1e-12  # where a node has neighbours, I - D^-1/2 A D^-1/2
    values = torch.linalg.eigvalsh(found)
    assert values.min() > -1e-9 and values.max() < 2 + 1e-9 and found[12].abs().sum() == 0
    assert abs(float(torch.linalg.eigvalsh(matrix(cycle(4), 4, True)).max()) - 2) < 1e-9  # two-sided


@pytest.mark.catalogue("S3-173", "S4-135")
def test_the_transform_goes_there_and_back_and_keeps_lengths() -> None:
    edges = random_graph(12)
    of = spectrum(edges, None, 12, False, None)
    x = torch.randn(12, 3, dtype=torch.float64)
    assert (of.vectors.T @ of.vectors - torch.eye(12)).abs().max() < 1e-10
    assert (inverse(transform(x, of), of) - x).abs().max() < 1e-10
    assert abs(float(transform(x, of).norm() - x.norm())) < 1e-10
    shares = transform(torch.ones(12, 1, dtype=torch.float64), of)
    assert shares[1:].abs().max() < 1e-9  # a constant is the lowest frequency alone
    smooth = (x * (matrix(edges, 12) @ x)).sum(0)
    assert (smooth - (of.values.unsqueeze(1) * transform(x, of).square()).sum(0)).abs().max() < 1e-9


@pytest.mark.catalogue("S3-174", "S4-136", "S4-137")
def test_filters_commute_and_some_are_known_by_name() -> None:
    edges = random_graph(12)
    of, plain = spectrum(edges, None, 12, False, None), matrix(edges, 12)
    x, y, z = torch.randn(3, 12, 1, dtype=torch.float64)
    assert (filtered(x, torch.ones(12, dtype=torch.float64), of) - x).abs().max() < 1e-9
    assert (filtered(x, of.values, of) - plain @ x).abs().max() < 1e-9
    heat = operator(of, torch.exp(-of.values))
    assert (heat - torch.linalg.matrix_exp(-plain)).abs().max() < 1e-9
    assert (heat @ plain - plain @ heat).norm() < 1e-10
    draw = operator(of, torch.randn(12, dtype=torch.float64))  # any factors do
    assert (draw @ plain - plain @ draw).norm() < 1e-10 and draw.norm() > 1
    assert (convolve(x, y, of) - convolve(y, x, of)).abs().max() < 1e-9
    assert (convolve(convolve(x, y, of), z, of) - convolve(x, convolve(y, z, of), of)).abs().max() < 1e-9
    assert (convolve(x, 2 * y + z, of) - 2 * convolve(x, y, of) - convolve(x, z, of)).abs().max() < 1e-9
    assert (convolve(x, y, of) - filtered(x, transform(y, of)[:, 0], of)).abs().max() < 1e-9
    far = operator(
        spectrum(path(10), None, 10, False, None), torch.exp(-torch.linalg.eigvalsh(matrix(path(10), 10)))
    )
    assert 0 < float(far[0, 9]) == pytest.approx(5.0e-7, rel=0.02)  # it reaches everywhere


@pytest.mark.catalogue("S3-175")
def test_many_features_are_filtered_column_by_column() -> None:
    of = spectrum(random_graph(12), None, 12, False, None)
    x, factors = torch.randn(12, 4, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    apart = torch.cat([filtered(x[:, i : i + 1], factors, of) for i in range(4)], 1)
    assert (filtered(x, factors, of) - apart).abs().max() < 1e-12
    layer = SpectralConv(4, 6, 12, bias=False)
    assert layer.filters.shape == (12, 4, 6)  # a filter for every pair of features
    found = layer.double()(x, Fixed(of, None))
    assert found.shape == (12, 6)
    for out in range(6):
        each = [filtered(x[:, i : i + 1], layer.filters[:, i, out], of) for i in range(4)]
        assert (found[:, out : out + 1] - sum(each)).abs().max() < 1e-12


@pytest.mark.catalogue("S3-176")
def test_filters_move_with_the_signal_on_a_cycle_and_not_on_a_path() -> None:
    def deviation(edges: Tensor, factors: Any) -> float:
        of = spectrum(edges, None, 12, False, None)
        found = operator(of, factors(of.values))
        return float((found - found.roll((1, 1), (0, 1))).abs().max())

    draw = torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert deviation(cycle(12), lambda values: torch.exp(-values)) < 1e-10
    assert deviation(cycle(12), lambda values: draw) > 0.1  # equal eigenvalues get different factors
    assert deviation(path(12), lambda values: torch.exp(-values)) > 0.1
    assert deviation(path(12), lambda values: draw) > 0.1


@pytest.mark.catalogue("S3-177")
def test_the_same_factors_are_another_filter_on_another_graph() -> None:
    factors = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one, two = (operator(spectrum(random_graph(40, s, 0.2), None, 40, False, None), factors) for s in (1, 2))
    assert (one - two).norm() / one.norm() > 0.5


@pytest.mark.catalogue("S3-177")
@pytest.mark.parametrize(
    ("name", "fields", "kept"),
    [
        ("spectral", {"filter": "plain"}, False),
        ("spectral", {"filter": "smooth", "kernels": 20}, True),
        ("cheb", {"order": 4}, True),
    ],
    ids=["plain", "smooth", "cheb"],
)
def test_what_a_number_for_each_eigenvector_learned_is_lost_on_other_edges(
    name: str, fields: dict[str, Any], kept: bool
) -> None:
    # Is a signal above 0 at a node, once it was filtered by T_4 of the graph that it lives on?
    nodes, asked, generator = 40, torch.arange(40), torch.Generator().manual_seed(0)
    net = model(name, fixed=True, nodes=nodes, hidden=(), bias=False, outputs=2, features=1, **fields)

    def filters(edges: Tensor) -> Tensor:
        scaled = matrix(edges, nodes, True) - torch.eye(nodes)
        squared = scaled @ scaled
        return (8 * squared @ squared - 8 * squared + torch.eye(nodes)).float()

    def drawn(by: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.randn(nodes, 1, generator=generator)
        return x, ((by @ x)[:, 0] > 0).long()

    optimizer = torch.optim.Adam(net.parameters(), 0.05)
    learned, rewired = cycle(nodes), random_graph(nodes, 2, 0.1)
    own = filters(learned)
    for _ in range(200):
        x, y = drawn(own)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x, learned, asked), y).backward()
        optimizer.step()

    def accuracy(edges: Tensor) -> float:
        by, right = filters(edges), 0
        with torch.no_grad():
            for _ in range(20):
                x, y = drawn(by)
                right += int((net(x, edges, asked).argmax(1) == y).sum())
        return right / (20 * nodes)

    before, after = accuracy(learned), accuracy(rewired)
    assert before > 0.85 and (after > 0.8 * before if kept else abs(after - 0.5) < 0.1)


@pytest.mark.catalogue("S3-178", "S3-179")
def test_random_factors_reach_far_smooth_ones_do_not_and_polynomials_not_at_all() -> None:
    of = spectrum(path(100), None, 100, False, None)
    away = (torch.arange(100)[:, None] - torch.arange(100)).abs()
    generator = torch.Generator().manual_seed(0)

    def beyond(factors: Tensor, hops: int) -> float:
        found = operator(of, factors).square()
        return float(found[away > hops].sum() / found.sum())

    draw = torch.randn(100, dtype=torch.float64, generator=generator)
    assert beyond(draw, 20) > 0.3
    some = torch.randn(10, dtype=torch.float64, generator=generator)
    assert beyond(kernels(of.values, 10, "gaussian", 4.0) @ some, 20) < 1e-6
    cubic = torch.randn(4, dtype=torch.float64, generator=generator)
    found = operator(of, kernels(of.values, 4, "polynomial", 4.0) @ cubic)
    assert found[away > 3].abs().max() < 1e-10 < found[away == 3].abs().min()


@pytest.mark.catalogue("S3-181")
def test_smooth_filters_have_as_many_parameters_on_every_graph() -> None:
    def parameters(nodes: int, **fields: Any) -> int:
        net = model("spectral", fixed=True, nodes=nodes, hidden=(), bias=False, **fields)
        return sum(p.numel() for p in net.parameters())

    assert parameters(50) == parameters(500) == 10 * 5 * 3
    assert parameters(500, filter="plain") == 10 * parameters(50, filter="plain")


@pytest.mark.catalogue("S4-138", "S3-179")
def test_polynomials_of_the_laplacian_need_no_eigenvectors_and_see_so_many_hops() -> None:
    alpha = torch.tensor([0.7, -0.3, 0.11, 0.02], dtype=torch.float64)
    of, nodes = spectrum(path(10), None, 10, False, None), 10
    structure = Laplacian(False)(path(10), torch.ones(18, 1, dtype=torch.float64), nodes)
    found = polynomial(torch.eye(10, dtype=torch.float64), alpha, structure)
    powers = torch.stack([of.values**k for k in range(4)], 1)
    assert (found - operator(of, powers @ alpha)).abs().max() < 1e-8
    plain = matrix(path(10), 10)
    by_hand = sum(a * plain.matrix_power(k) for k, a in enumerate(alpha))
    assert (found - by_hand).abs().max() < 1e-8
    away = (torch.arange(10)[:, None] - torch.arange(10)).abs()
    assert not found[away > 3].any()  # exactly
    assert (found[away == 3].abs() - 0.02).abs().max() < 1e-9
    # A layer of one channel has K + 1 weights, which are the coefficients.
    layer = Cheb(1, 1, 3, bias=False, powers=True).double()
    assert sum(p.numel() for p in layer.parameters()) == 4
    x = torch.randn(10, 1, dtype=torch.float64)
    learned = torch.cat([lin.weight.detach().flatten() for lin in layer.lins])
    assert (layer(x, structure) - polynomial(x, learned, structure)).abs().max() < 1e-12


@pytest.mark.catalogue("S4-139")
@pytest.mark.parametrize("powers", [False, True], ids=["chebyshev", "powers"])
def test_a_polynomial_layer_is_exactly_local_and_is_the_sum_of_its_terms(powers: bool) -> None:
    layer = Cheb(3, 5, 3, powers=powers).double()
    assert sum(p.numel() for p in layer.parameters()) == 65
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(10, 3, dtype=torch.float64)
    ones = torch.ones(18, 1, dtype=torch.float64)
    structure = (Laplacian(True) if powers else ScaledLaplacian(2.0, True))(path(10), ones, 10)
    scaled = matrix(path(10), 10, True) - (0 if powers else torch.eye(10))
    eye = torch.eye(10, dtype=torch.float64)
    terms = [eye, scaled]
    for _ in range(2):
        terms.append(scaled @ terms[-1] if powers else 2 * scaled @ terms[-1] - terms[-2])
    by_hand = sum(t @ x @ lin.weight.T for t, lin in zip(terms, layer.lins, strict=True)) + layer.bias
    found = layer(x, structure)
    assert (found - by_hand).abs().max() < 1e-8
    # The same by the eigenvectors.
    values, vectors = torch.linalg.eigh(scaled)
    factors = [torch.ones_like(values), values]
    for _ in range(2):
        factors.append(values * factors[-1] if powers else 2 * values * factors[-1] - factors[-2])
    seen = sum(
        vectors @ torch.diag(f) @ vectors.T @ x @ lin.weight.T
        for f, lin in zip(factors, layer.lins, strict=True)
    )
    assert (found - layer.bias - seen).abs().max() < 1e-8
    moved = x.clone()
    moved[4] += 1
    changed = (layer(moved, structure) - found).abs().sum(1) > 0
    assert changed.tolist() == [abs(i - 4) <= 3 for i in range(10)]
    twice = layer(2 * x, structure) - found
    assert (twice - (found - layer.bias)).abs().max() < 1e-8  # affine


@pytest.mark.catalogue("S4-139")
def test_a_polynomial_of_degree_zero_is_a_linear_layer_on_every_node() -> None:
    layer = Cheb(3, 5, 0)
    x = torch.randn(10, 3)
    structure = ScaledLaplacian(2.0, True)(path(10), None, 10)
    assert (layer(x, structure) - x @ layer.lins[0].weight.T).abs().max() < 1e-6


@pytest.mark.parametrize("filter", ["plain", "smooth"])
@pytest.mark.parametrize("laplacian", ["plain", "normalised"])
def test_eigenvectors_of_one_eigenvalue_may_be_any_of_their_space(filter: str, laplacian: str) -> None:
    # Every eigenvalue of a cycle but two is there twice; the last nodes have no neighbours at all.
    edges, asked = cycle(9), torch.arange(12)
    net = model("spectral", fixed=True, nodes=12, filter=filter, laplacian=laplacian)
    x = torch.randn(12, 5)
    with torch.no_grad():
        before = net(x, edges, asked)
        for seed in range(5):
            order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
            moved, named = relabelled(x, edges, order)
            assert (net(moved, named, asked)[order] - before).abs().max() < 1e-5


@pytest.mark.parametrize("kernel", ["gaussian", "polynomial"])
@pytest.mark.parametrize("laplacian", ["plain", "normalised"])
def test_a_graph_without_edges_has_a_spectrum_too(kernel: str, laplacian: str) -> None:
    net = model("spectral", fixed=True, nodes=4, kernel=kernel, laplacian=laplacian)
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert torch.isfinite(net(torch.randn(4, 5), none, torch.arange(4))).all()


@pytest.mark.parametrize("fields", [{"filter": "plain"}, {}, {"kernel": "polynomial", "kernels": 4}])
def test_spectral_answers_follow_the_names_of_nodes(fields: dict[str, Any]) -> None:
    # Weights at random, so that no two eigenvalues are the same.
    edges = random_graph(12)
    weight = torch.rand(12, 12)
    weight = (weight + weight.T)[edges[0], edges[1]].unsqueeze(1) + 0.1
    net = model("spectral", fixed=True, nodes=12, edges=1, **fields)
    x, asked = torch.randn(12, 5), torch.arange(12)
    with torch.no_grad():
        before = net(x, edges, weight, asked)
        for seed in range(5):
            order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
            moved, named = relabelled(x, edges, order)
            assert (net(moved, named, weight, asked)[order] - before).abs().max() < 1e-5
