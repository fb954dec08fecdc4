"""Meshes: whether they are surfaces, what bending keeps, and fields that must vanish somewhere."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from graphs_at_hand import model
from pegboard import Context
from pegboard_cnn.modules import Cnn
from pegboard_gnn.data_configs import Meshes
from pegboard_gnn.mesh import (
    areas,
    bent,
    cube,
    euler,
    field_index,
    flaws,
    lengths,
    mesh_edges,
    meshes,
    normals,
    octahedron,
    sheet,
    sphere,
    torus,
)
from pegboard_gnn.spectral import spectrum
from torch import Tensor, nn


@pytest.mark.catalogue("S3-163")
def test_the_number_of_euler_tells_a_sphere_from_a_torus() -> None:
    assert euler(octahedron()[1]) == 2 and euler(torus(8, 6)[1]) == 0
    assert euler(sphere(2)[1]) == 2 and euler(cube(1)[1]) == 2 and euler(sheet(4, 5)[1]) == 1
    squares = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    assert euler(squares) == 2 and not flaws(squares)  # polygons of any kind


@pytest.mark.catalogue("S3-163")
def test_what_is_no_surface_is_told() -> None:
    for _, faces in (octahedron(), torus(8, 6), sphere(2), sheet(3, 4)):
        assert not flaws(faces)
    assert flaws([[0, 1, 2], [0, 1, 3], [0, 1, 4]]) == ["edge 0-1 is in 3 faces, expected two at most"]
    assert flaws([[0, 1, 1]])[0].startswith("face 0 has corners 0, 1, 1")
    tips = [[0, 1, 2], [0, 2, 3], [0, 3, 1], [0, 4, 5], [0, 5, 6], [0, 6, 4]]
    assert flaws(tips) == ["the faces at corner 0 do not hang together"]


@pytest.mark.catalogue("S3-166")
def test_bending_a_sheet_keeps_what_is_measured_on_it_and_changes_what_is_seen_from_outside() -> None:
    corners, faces = sheet(6, 5)
    corners = corners.double()
    pairs = torch.tensor(mesh_edges(faces)).T
    edges = torch.cat((pairs, pairs.flip(0)), 1)
    rolled = bent(corners, 0.9)
    assert (areas(rolled, faces) - areas(corners, faces)).abs().max() < 1e-9

    def intrinsic(at: Tensor) -> Tensor:
        return spectrum(edges, 1 / lengths(at, edges), 30, False, None).values

    assert (intrinsic(rolled) - intrinsic(corners)).abs().max() < 1e-6

    # Networks with the same weights for both: of how long edges are, and of where in space they lead.
    signal, asked = torch.randn(30, 5), torch.arange(30)
    along = model("spectral", fixed=True, nodes=30, edges=1, laplacian="plain")
    outside = model("monet", edges=3)

    def change(net: nn.Module, known: Callable[[Tensor], Tensor], other: Tensor) -> float:
        with torch.no_grad():
            before, after = (net(signal, edges, known(at).float(), asked) for at in (corners, other))
        return float((after - before).norm() / before.norm())

    def inverse(at: Tensor) -> Tensor:
        return 1 / lengths(at, edges).unsqueeze(1)

    assert change(along, inverse, rolled) < 1e-6
    assert change(along, inverse, corners * torch.tensor([1.0, 2.0, 1.0])) > 0.01  # which is no bending
    assert change(outside, lambda at: at[edges[0]] - at[edges[1]], rolled) > 0.1


@pytest.mark.catalogue("S3-168")
def test_a_map_of_the_sphere_stretches_areas_by_one_over_the_cosine_of_the_latitude() -> None:
    flat, faces = sheet(5, 5)
    assert (areas(flat[:, :2], faces) / areas(flat, faces) - 1).abs().max() < 1e-6
    rolled = bent(flat.double(), 0.3)  # what can be unrolled is not distorted at all
    assert (areas(flat[:, :2].double(), faces) / areas(rolled, faces) - 1).abs().max() < 1e-9
    for latitude in (0.0, 0.5, 1.0, 1.3):
        here = flat.double() * 1e-3
        up, around = latitude + here[:, 0], here[:, 1]
        on_sphere = torch.stack((up.cos() * around.cos(), up.cos() * around.sin(), up.sin()), 1)
        stretched = areas(here[:, :2], faces).sum() / areas(on_sphere, faces).sum()
        assert float(stretched) == pytest.approx(1 / float(torch.tensor(latitude).cos()), rel=1e-3)


@pytest.mark.catalogue("S3-168", "S3-169")
def test_a_torus_has_translations_that_convolution_follows() -> None:
    torch.manual_seed(0)
    fields = {"padding": "circular", "pooling": "none", "activation": "tanh", "hidden": ()}
    conv = Cnn((1, 8, 6), 1, channels=[3, 2], kernel=3, **fields).body
    signal = torch.randn(1, 1, 8, 6)  # on the two angles
    assert conv(signal).shape == (1, 2, 8, 6)
    for shift in product(range(8), range(6)):
        assert (conv(signal.roll(shift, (2, 3))) - conv(signal).roll(shift, (2, 3))).abs().max() < 1e-6


@pytest.mark.catalogue("S3-169")
def test_every_field_on_a_sphere_vanishes_somewhere_and_one_on_a_torus_does_not() -> None:
    corners, faces = sphere(3)
    corners = corners.double()
    # Seen from outside, so that normals point there.
    assert (normals(corners, faces) * corners).sum(1).min() > 0.9
    generator = torch.Generator().manual_seed(0)
    fields = [
        torch.linalg.cross(corners, torch.tensor([[0.3, 0.2, 1.0]]).double().expand_as(corners)),
        corners @ torch.randn(3, 3, dtype=torch.float64, generator=generator),
        corners.square() @ torch.randn(3, 3, dtype=torch.float64, generator=generator)
        + torch.tensor([0.1, 0.2, 0.3]),
    ]
    for field in fields:
        tangent = field - (field * corners).sum(1, keepdim=True) * corners
        each, total = field_index(corners, faces, tangent)
        assert total == pytest.approx(2, abs=1e-6)
        assert (each - each.round()).abs().max() < 1e-6 and each.round().abs().max() >= 1
    rings, through = 24, 16
    corners, faces = torus(rings, through)
    corners = corners.double()
    angle = 2 * torch.pi * torch.arange(rings).repeat_interleave(through).double() / rings
    around = torch.stack((-angle.sin(), angle.cos(), torch.zeros_like(angle)), 1)
    each, total = field_index(corners, faces, around)
    assert total == pytest.approx(0, abs=1e-6) and each.abs().max() < 1e-6


def test_meshes_of_bodies_are_graphs_with_steps_along_their_edges() -> None:
    splits: Any = meshes(Meshes(graphs=30, resolution=3, noise=0.0, turned=False), Context())
    x, edges, steps, bounds = splits.train.gather(torch.arange(3)).inputs
    assert (x[edges[0]] - x[edges[1]] - steps).abs().max() < 1e-6
    assert len(bounds) == 4 and bounds[-1] == len(x)
    again: Any = meshes(Meshes(graphs=30, resolution=3), Context())
    turned = again.train.gather(torch.arange(3)).inputs[0]
    assert (turned - x).abs().max() > 0.1
