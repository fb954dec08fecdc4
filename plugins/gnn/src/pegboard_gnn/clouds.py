"""Sets that are made: digits to add up, points on bodies, and the bright pixels of pictures."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
from pegboard import Classes, Context, DataSpec, PegboardError, Points, Resident, Spec, Splits, Tokens, Values
from torch import Generator, Tensor

from . import splitting
from .data_configs import Clouds, PixelClouds, Sets
from .data_parts import PARTS
from .mesh import rotations


def sets(config: Sets, context: Context) -> Splits:
    """Sets of one digit to the most, padded with nan to the largest of all splits."""
    generator = torch.Generator().manual_seed(config.seed)
    most = max(config.count, config.test_count)
    sizes = (config.sets, max(config.sets // 4, 1), max(config.sets // 4, 1))
    found = []
    for rows, largest in zip(sizes, (config.count, config.count, config.test_count), strict=True):
        digits = torch.randint(10, (rows, most), generator=generator)
        lasts = torch.randint(1, largest + 1, (rows, 1), generator=generator)
        there = torch.arange(most) < lasts
        x = torch.nn.functional.one_hot(digits, 10).float() if config.one_hot else digits.unsqueeze(2) / 9
        found.append(Resident([x.masked_fill(~there.unsqueeze(2), torch.nan)], _asked(config, digits, there)))
    spec = DataSpec((Points(most, 10 if config.one_hot else 1, True),), Values(1))
    return Splits(spec=spec, train=found[0], val=found[1], test=found[2])


def _asked(config: Sets, digits: Tensor, there: Tensor) -> Tensor:
    if config.target == "sum":
        return (digits * there).sum(1, keepdim=True).float()
    if config.target == "max":
        return digits.masked_fill(~there, 0).amax(1, keepdim=True).float()
    seen = torch.zeros(len(digits), 10).scatter_reduce(1, digits, there.float(), "amax")
    return seen.sum(1, keepdim=True)


def body_points(body: str, shape: tuple[int, int], generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Points (clouds, points, 3) on the surface of a body, all places alike likely; normals, and parts.

    Parts are those that a person would name: halves of a sphere, sides of a cube, the outer and the inner
    half of a torus, side and ends of a cylinder, side and bottom of a cone.
    """
    u, v, w = (torch.rand(shape, generator=generator) for _ in range(3))
    angle = 2 * math.pi * u
    circle = torch.stack((angle.cos(), angle.sin()), -1)
    if body == "sphere":
        up = 2 * v - 1
        points = torch.cat((circle * (1 - up**2).clamp(min=0).sqrt().unsqueeze(-1), up.unsqueeze(-1)), -1)
        return points, points, (up < 0).long()
    if body == "cube":
        return _cube(u, v, (6 * w).long().clamp(max=5))
    if body == "torus":
        return _torus(circle, v, w)
    return _round(body, circle, v, w)


def _cube(u: Tensor, v: Tensor, side: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    axis, sign = side // 2, 2.0 * (side % 2) - 1
    free = torch.stack((2 * u - 1, 2 * v - 1), -1)
    normal = torch.nn.functional.one_hot(axis, 3) * sign.unsqueeze(-1)
    others = torch.stack(((axis + 1) % 3, (axis + 2) % 3), -1)
    return normal.scatter_add(-1, others, free), normal, side


def _torus(circle: Tensor, v: Tensor, w: Tensor, thickness: float = 0.4) -> tuple[Tensor, Tensor, Tensor]:
    # The outer half is longer: an angle is kept, or turned to the other half, by the length there.
    angle = 2 * math.pi * v
    outer = torch.where(w < (1 + thickness * angle.cos()) / 2, angle, math.pi - angle)
    normal = torch.cat((circle * outer.cos().unsqueeze(-1), outer.sin().unsqueeze(-1)), -1)
    flat = torch.cat((circle, torch.zeros_like(circle[..., :1])), -1)
    return flat + thickness * normal, normal, (outer.cos() < 0).long()


def _round(body: str, circle: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cylinder or cone of radius 1 from -1 to 1."""
    radius = v.sqrt().unsqueeze(-1)
    flat = torch.zeros_like(v)
    if body == "cylinder":  # the side has two thirds of the surface, each end a sixth
        part = torch.where(w < 2 / 3, 0, torch.where(w < 5 / 6, 1, 2))
        end = torch.where(part == 1, 1.0, -1.0)
        side = torch.cat((circle, (2 * v - 1).unsqueeze(-1)), -1)
        normal = torch.cat((circle, flat.unsqueeze(-1)), -1)
        ends, up = torch.cat((circle * radius, end.unsqueeze(-1)), -1), torch.stack((flat, flat, end), -1)
    else:
        slope = math.sqrt(5)  # length of the side
        part = (w >= slope / (1 + slope)).long()
        side = torch.cat((circle * radius, (1 - 2 * radius)), -1)
        normal = torch.cat((2 * circle, torch.ones_like(radius)), -1) / slope
        ends = torch.cat((circle * radius, -torch.ones_like(radius)), -1)
        up = torch.stack((flat, flat, flat - 1), -1)
    on_side = (part == 0).unsqueeze(-1)
    return torch.where(on_side, side, ends), torch.where(on_side, normal, up), part


def clouds(config: Clouds, context: Context) -> Splits:
    """Clouds of all bodies in turn, turned and noisy."""
    generator = torch.Generator().manual_seed(config.seed)
    firsts = [0]
    for body in config.bodies:
        firsts.append(firsts[-1] + PARTS[body])
    found = []
    for rows in (config.clouds, max(config.clouds // 4, 1), max(config.clouds // 4, 1)):
        made = [body_points(body, (rows, config.points), generator) for body in config.bodies]
        number = torch.arange(rows) % len(config.bodies)
        points, normals, parts = (
            torch.stack(of)[number, torch.arange(rows)] for of in zip(*made, strict=True)
        )
        turn = _turns(config.turned, rows, generator)
        points = points @ turn + config.noise * torch.randn(points.shape, generator=generator)
        x = torch.cat((points, normals @ turn), -1) if config.normals else points
        target = number if config.task == "body" else parts + torch.tensor(firsts)[number].unsqueeze(1)
        found.append(Resident([x], target))
    asked: Spec = Classes(len(config.bodies), config.bodies)
    if config.task == "part":
        asked = Tokens(firsts[-1], config.points)
    spec = DataSpec((Points(config.points, 6 if config.normals else 3),), asked)
    return Splits(spec=spec, train=found[0], val=found[1], test=found[2])


def _turns(how: str, count: int, generator: Generator) -> Tensor:
    if how == "any":
        return rotations(count, generator)
    angle = 2 * math.pi * torch.rand(count, generator=generator) * (how == "axis")
    turn = torch.eye(3).repeat(count, 1, 1)
    turn[:, 0, 0], turn[:, 0, 1] = angle.cos(), -angle.sin()
    turn[:, 1, 0], turn[:, 1, 1] = angle.sin(), angle.cos()
    return turn


def pixel_points(pictures: Tensor, count: int, threshold: float, generator: Generator) -> Tensor:
    """Place and brightness (pictures, count, 3) of pixels (pictures, height, width) above a brightness.

    Each pixel comes once before any comes again. Places are between -1 and 1; a dark picture is its middle.
    """
    _, height, width = pictures.shape
    flat = pictures.flatten(1)
    bright = flat > threshold
    chance = torch.rand(flat.shape, generator=generator).masked_fill(~bright, 2.0)
    order = chance.argsort(1)
    found = bright.sum(1, keepdim=True)
    turn = order.gather(1, torch.arange(count) % found.clamp(min=1))
    turn = torch.where(found > 0, turn, (height // 2) * width + width // 2)
    down, right = turn // width, turn % width
    scale = [2 * down / max(height - 1, 1) - 1, 2 * right / max(width - 1, 1) - 1]
    return torch.stack((scale[1], -scale[0], flat.gather(1, turn)), 2)


def pixel_clouds(config: PixelClouds, context: Context) -> Splits:
    """The pictures of a data set in the form of the Hugging Face hub."""
    train, classes = _pictures(config, "train")
    test, _ = _pictures(config, "test")
    generator = torch.Generator().manual_seed(config.seed)
    sources = []
    for pictures, target in (train, test):
        x = torch.cat([
            pixel_points(piece.float() / 255, config.points, config.threshold, generator)
            for piece in torch.split(pictures, 4096)
        ])  # fmt: skip
        sources.append(Resident([x], target))
    order = splitting.even_order(train[1], 0)
    count = max(round(config.val * len(order)), 1)
    whole = sources[0]
    parts = [Resident([whole.inputs[0][rows]], train[1][rows]) for rows in (order[count:], order[:count])]
    spec = DataSpec((Points(config.points, 3),), classes)
    notes = {"source": config.path}
    return Splits(spec=spec, train=parts[0], val=parts[1], test=sources[1], notes=notes)


def _pictures(config: PixelClouds, split: str) -> tuple[tuple[Tensor, Tensor], Classes]:
    """Grey pictures (rows, height, width) of a split in bytes, and their classes."""
    import datasets  # type: ignore[import-untyped]
    import numpy

    given = os.environ.get("PEGBOARD_DATA")
    local = Path(given) / "hub" / config.path if given else Path(config.path)
    path = str(local) if local.is_dir() else config.path
    try:
        rows: Any = datasets.load_dataset(path, split=split)
    except Exception as error:  # of whatever it needs: files, a network, an account
        raise PegboardError(f"cannot read the split {split!r} of {config.path}: {error}") from None
    for name in (config.image, config.label):
        if name not in rows.column_names:
            raise PegboardError(
                f"{config.path} has no column {name!r}: it has {', '.join(rows.column_names)}"
            )
    if config.limit is not None:
        rows = rows.select(range(min(config.limit, len(rows))))
    rows = rows.cast_column(config.image, datasets.Image())
    grey = [numpy.asarray(picture.convert("L")) for picture in rows[config.image]]
    if len({picture.shape for picture in grey}) != 1:
        raise PegboardError(f"the pictures of {config.path} differ in size; expected one size")
    names = getattr(rows.features[config.label], "names", None)
    target = torch.tensor(rows[config.label])
    count = len(names) if names else int(target.max()) + 1
    return (torch.from_numpy(numpy.stack(grey)), target), Classes(count, tuple(names or ()))
