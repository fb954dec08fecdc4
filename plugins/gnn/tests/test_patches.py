"""Patches of neighbours by where they lie: on a grid the convolution of images."""

from __future__ import annotations

import math

import pytest
import torch
from graphs_at_hand import model, random_graph, relabelled
from pegboard_gnn.made_graphs import grid
from pegboard_gnn.monet import Ball, Gaussians, Located, PatchConv
from torch import nn


@pytest.mark.catalogue("S3-182")
def test_nine_narrow_gaussians_on_a_grid_are_a_convolution_of_images() -> None:
    edges, offsets = grid(9, 9, diagonals=True)
    weights = Gaussians(9, 2).double()
    steps = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    with torch.no_grad():
        weights.mu.copy_(torch.tensor(steps))
        weights.factor.mul_(8)  # so narrow that a neighbour belongs to one alone
    layer = PatchConv(2, 3, weights, 9, mean=False, bias=True).double()
    conv = nn.Conv2d(2, 3, 3, padding=1).double()
    with torch.no_grad():
        layer.map.weight.copy_(conv.weight.flatten(2).transpose(1, 2).flatten(1))
        layer.map.bias.copy_(conv.bias)  # type: ignore[arg-type]
    picture = torch.randn(2, 9, 9, dtype=torch.float64)
    structure = Located(True)(edges, offsets.double(), 81)
    found = layer(picture.flatten(1).T, structure).T.view(3, 9, 9)
    assert (found - conv(picture)).abs().max() < 1e-6
    found.square().sum().backward()
    for p in (weights.mu, weights.factor):
        assert p.grad is not None and p.grad.abs().max() > 0


@pytest.mark.catalogue("S3-182")
def test_a_gaussian_is_one_at_its_centre_and_a_share_of_e_at_its_width() -> None:
    weights = Gaussians(1, 2)
    with torch.no_grad():
        weights.mu.zero_()
    found = weights(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, -2.0]]))[:, 0].tolist()
    assert found == pytest.approx([1, math.exp(-1), math.exp(-4)])
    with torch.no_grad():
        weights.factor.copy_(torch.randn(1, 2, 2))
    inverse = weights.factor[0] @ weights.factor[0].T
    assert torch.linalg.eigvalsh(inverse).min() > -1e-6  # whatever is learned
    assert weights(torch.randn(50, 2)).max() <= 1


@pytest.mark.catalogue("S3-183")
def test_a_ball_is_the_mean_of_the_neighbourhood() -> None:
    edges, offsets = grid(5, 5, diagonals=True)
    layer = PatchConv(2, 2, Ball(1.1), 1, mean=True, bias=False)
    x = torch.randn(25, 2)
    structure = Located(True)(edges, offsets, 25)
    near = torch.cdist(*[torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0))] * 2) <= 1.1
    mean = near.float() @ x / near.sum(1, keepdim=True)
    assert (layer.patches(x, structure)[:, 0] - mean).abs().max() < 1e-6


@pytest.mark.catalogue("S3-183")
def test_any_function_of_the_place_can_weigh_neighbours() -> None:
    edges, offsets = grid(5, 5, diagonals=True)
    falling = PatchConv(1, 1, lambda u: 1 / (1 + u.norm(dim=1, keepdim=True)), 1, mean=False, bias=False)
    structure = Located(True)(edges, offsets, 25)
    one = torch.zeros(25, 1)
    one[12] = 1
    seen = falling.patches(one, structure)[:, 0, 0]
    assert seen[12] == 1 and seen[11] == pytest.approx(1 / 2) and seen[6] == pytest.approx(1 / (1 + 2**0.5))
    near = Gaussians(1, 2)
    with torch.no_grad():
        near.mu.zero_()
    for weights in (near, Ball(1.1)):
        away = torch.linspace(0, 3, 20).unsqueeze(1) * torch.tensor([[0.6, -0.8]])
        weight = weights(away)[:, 0]
        assert weight[0] == 1 and (weight.diff() <= 0).all() and weight[-1] < 1e-3


@pytest.mark.catalogue("S3-182")
@pytest.mark.parametrize("edges", [0, 3])
def test_patches_follow_the_names_of_nodes(edges: int) -> None:
    pairs, x, asked = random_graph(12), torch.randn(12, 5), torch.arange(12)
    known = [torch.randn(pairs.shape[1], 3)] if edges else []
    net = model("monet", edges=edges)
    with torch.no_grad():
        before = net(x, pairs, *known, asked)
        order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
        moved, named = relabelled(x, pairs, order)
        assert (net(moved, named, *known, asked)[order] - before).abs().max() < 1e-5
