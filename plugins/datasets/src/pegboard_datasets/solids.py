"""Solids as voxels and as pictures from around: pure functions that draw from the generator they are given.

Space is a cube from -1 to 1 whose axes are depth (away from the viewer), height (downwards, as the rows of a
picture) and width. Of voxels (samples, size, size, size) those are the last three axes.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from .made import Points

SOLIDS = ("cube", "ball", "pyramid")


def contains(solid: str, place: Tensor) -> Tensor:
    """Which places (..., 3) are inside a solid of half height 1 around the origin."""
    if solid == "ball":
        return place.square().sum(-1) <= 1
    if solid == "cube":
        return place.abs().amax(-1) <= 1
    depth, height, width = place.unbind(-1)
    return (torch.maximum(depth.abs(), width.abs()) <= (1 + height) / 2) & (height <= 1)


def rotation(turn: Tensor, tilt: float = 0.0) -> Tensor:
    """Matrices (samples, 3, 3) that lean by `tilt` towards the viewer, then turn around the upright axis."""
    c, s, flat = turn.cos(), turn.sin(), torch.zeros_like(turn)
    upright = torch.stack([c, flat, -s, flat, flat + 1, flat, s, flat, c], -1).reshape(-1, 3, 3)
    lean = torch.tensor(tilt)
    c, s = lean.cos(), lean.sin()
    return upright @ torch.stack([c, s, c * 0, -s, c, c * 0, c * 0, c * 0, c * 0 + 1]).reshape(3, 3)


def voxels(
    solid: str, reach: Tensor, middle: Tensor, turn: Tensor, size: int, *, tilt: float = 0.0
) -> Tensor:
    """1 where the centre of a cell is inside, interior included: float32 (samples, size, size, size).

    `reach` (samples,) is half the height of the solid, `middle` (samples, 3) its place; turn and tilt are
    around that place.
    """
    centre = (torch.arange(size) + 0.5) * (2 / size) - 1
    place = torch.stack(torch.meshgrid(centre, centre, centre, indexing="ij"), -1).reshape(-1, 3)
    own = (place - middle[:, None]) @ rotation(turn, tilt) / reach[:, None, None]
    return contains(solid, own).float().reshape(-1, size, size, size)


def seen(solid: Tensor) -> Tensor:
    """What the viewer sees of voxels (..., depth, height, width): near is bright, nothing is 0."""
    near = 1 - torch.arange(solid.shape[-3]) / solid.shape[-3]
    return (solid * near[:, None, None]).amax(-3)


def drawn(samples: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Class, half height, place and turn of solids that are inside the cube whichever way they turn."""
    kind = torch.arange(samples) % len(SOLIDS)
    reach = 0.4 + 0.2 * torch.rand(samples, generator=generator)
    free = 1 - reach * 2**0.5  # upright, the corners of a cube reach farthest
    middle = (2 * torch.rand(samples, 3, generator=generator) - 1) * free[:, None]
    return kind, reach, middle, 2 * torch.pi * torch.rand(samples, generator=generator)


def as_voxels(samples: int, size: int = 12, *, generator: Generator) -> Points:
    """Cubes, balls and pyramids of several sizes, anywhere: (samples, 1, size, size, size)."""
    kind, reach, middle, turn = drawn(samples, generator)
    x = torch.empty(samples, 1, size, size, size)
    for number, solid in enumerate(SOLIDS):
        mine = kind == number
        x[mine, 0] = voxels(solid, reach[mine], middle[mine], turn[mine], size)
    return Points(x, kind)


def as_views(
    samples: int, size: int = 12, views: int = 6, *, tilt: float = 0.0, generator: Generator
) -> Points:
    """The same from `views` sides, evenly around the upright axis: (samples, views, 1, size, size)."""
    kind, reach, _, turn = drawn(samples, generator)
    x = torch.empty(samples, views, 1, size, size)
    for view in range(views):
        angle = turn + 2 * torch.pi * view / views
        for number, solid in enumerate(SOLIDS):
            mine = kind == number
            still = torch.zeros(int(mine.sum()), 3)
            x[mine, view, 0] = seen(voxels(solid, reach[mine], still, angle[mine], size, tilt=tilt))
    return Points(x, kind)
