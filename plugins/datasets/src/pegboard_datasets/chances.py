"""Samples whose class is a matter of chance, or of a mechanism: people, plants, payments.

Pure functions that draw from the generator they are given alone. Points come as float32 x (samples,
features) and int64 classes y (samples,).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from .made import Points

Regime = Literal["separable", "slight", "heavy"]
Mechanism = Literal["feedback", "tainted", "minority"]
# Between the centres of two clouds of deviation 1 that end at REACH: the first leaves a gap of 1.
DISTANCES: dict[Regime, float] = {"separable": 6.0, "slight": 3.0, "heavy": 0.5}
REACH = 2.5
ANGLE = math.pi / 6  # of the line between the centres
# Mean, deviation, least and most of the grade point average and of the test score of applicants.
GRADES, SCORES = (3.39, 0.38, 2.0, 4.0), (588.0, 116.0, 200.0, 800.0)
# Habits of a card holder: amount, hour, weekday, online (1) or not (0); mean and deviation, and a share.
HABITS = (
    ((12.0, 3.0), (12.5, 0.5), (2.0, 1.0), 0.0, 0.45),  # lunch on a working day
    ((60.0, 12.0), (18.0, 1.0), (5.0, 0.5), 0.0, 0.30),  # groceries at the end of the week
    ((35.0, 8.0), (21.0, 1.0), (3.0, 1.5), 1.0, 0.25),  # an order from home
)


def students(samples: int, slope: float = 3.0, middle: float = 3.0, *, generator: Generator) -> Points:
    """Hours x uniform in [0, 6]; passed with the chance sigmoid(slope (x - middle))."""
    x = 6 * torch.rand(samples, 1, generator=generator)
    return Points(x, _drawn(torch.sigmoid(slope * (x[:, 0] - middle)), generator))


def plants(
    samples: int, slope: float = 8.0, low: float = 3.0, high: float = 6.0, *, generator: Generator
) -> Points:
    """Light x uniform in [0, 9]; a plant survives where it is between `low` and `high`, rarely elsewhere.

    The chance is sigmoid(slope (x - low)) sigmoid(slope (high - x)): about 1/2 at both ends.
    """
    x = 9 * torch.rand(samples, 1, generator=generator)
    chance = torch.sigmoid(slope * (x[:, 0] - low)) * torch.sigmoid(slope * (high - x[:, 0]))
    return Points(x, _drawn(chance, generator))


def admissions(samples: int, slope: float = 3.0, *, generator: Generator) -> Points:
    """Grades in [2, 4] and scores in [200, 800]; admitted with the chance sigmoid(slope (u + v)).

    Both are normal, cut off at their ends; u and v are how many deviations they are above their means.
    """
    columns, standard = [], []
    for mean, deviation, least, most in (GRADES, SCORES):
        u = _truncated((samples,), (least - mean) / deviation, (most - mean) / deviation, generator)
        columns.append(mean + deviation * u)
        standard.append(u)
    return Points(
        torch.stack(columns, 1), _drawn(torch.sigmoid(slope * (standard[0] + standard[1])), generator)
    )


def overlap(samples: int, regime: Regime = "slight", *, generator: Generator) -> Points:
    """Two round normal clouds, cut off at 2.5 deviations, whose centres are 6, 3 or 0.5 deviations apart."""
    y = torch.arange(samples) * 2 // max(samples, 1)
    # The radius of a plane normal cloud, by the inverse of its distribution.
    inside = 1 - math.exp(-(REACH**2) / 2)
    radius = (-2 * torch.log1p(-inside * torch.rand(samples, generator=generator))).sqrt()
    angle = 2 * math.pi * torch.rand(samples, generator=generator)
    cloud = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    towards = torch.tensor([math.cos(ANGLE), math.sin(ANGLE)]) * DISTANCES[regime]
    return Points(cloud + (y[:, None] - 0.5) * towards, y)


def fraud(samples: int, share: float = 0.05, *, generator: Generator) -> Points:
    """Payments (amount, hour, weekday, online) of a card's three habits, and a share far from all of them.

    What is far costs 3 to 17 times as much as the dearest habit, and is paid at any time in any way.
    """
    frauds = round(samples * share)
    usual = samples - frauds
    share_of = torch.tensor([habit[-1] for habit in HABITS])
    habit = torch.multinomial(share_of, usual, replacement=True, generator=generator)
    middle = torch.tensor([[a[0], b[0], c[0], d] for a, b, c, d, _ in HABITS])[habit]
    spread = torch.tensor([[a[1], b[1], c[1], 0.0] for a, b, c, _, _ in HABITS])[habit]
    known = middle + spread * torch.randn(usual, 4, generator=generator)
    odd = torch.rand(frauds, 4, generator=generator)
    strange = torch.stack([200 * 5 ** odd[:, 0], 24 * odd[:, 1], 7 * odd[:, 2], (odd[:, 3] < 0.5).float()], 1)
    x = torch.cat([known, strange])
    x[:, 0] = x[:, 0].clamp(min=1).mul(100).round() / 100
    x[:, 1] = x[:, 1] % 24
    x[:, 2] = x[:, 2].floor().clamp(0, 6)
    return Points(x, torch.cat([torch.zeros(usual), torch.ones(frauds)]).long())


class Groups(NamedTuple):
    """Points of two groups with classes."""

    x: Tensor  # (samples, 3): two features, and 1 for the second group
    y: Tensor  # (samples,) the label that was recorded
    shares: list[float]  # of the second group, in each round in which samples were taken


def biased(
    samples: int,
    mechanism: Mechanism = "minority",
    share: float = 0.1,
    offset: float = 1.0,
    rounds: int = 10,
    *,
    generator: Generator,
) -> Groups:
    """Two groups, a `share` of the second, and data that wrongs it in one of three ways.

    `minority`: its class depends on the second feature, that of the others on the first, and it is rare.
    `tainted`: one rule holds for all, but whoever labels asks `offset` more of the second group.
    `feedback`: one rule holds for all, but each round looks where the last one found something.
    """
    shares = watched(share, rounds) if mechanism == "feedback" else [share]
    many = torch.tensor([samples // len(shares) + (i < samples % len(shares)) for i in range(len(shares))])
    second = (many * torch.tensor(shares, dtype=torch.float64)).round().long()
    each = torch.stack([many - second, second], 1).flatten()  # round by round, the first group first
    group = torch.arange(len(each)).remainder(2).repeat_interleave(each)
    x = torch.randn(samples, 2, generator=generator)
    score = torch.where(group == 1, x[:, 1], x[:, 0]) if mechanism == "minority" else x[:, 0]
    if mechanism == "tainted":
        score = score - offset * group
    y = _drawn(torch.sigmoid(4 * score), generator)
    return Groups(torch.cat([x, group[:, None].float()], 1), y, shares)


def watched(share: float, rounds: int) -> list[float]:
    """How the share of the second group moves where each round multiplies the watch by what it found.

    Both groups are alike, so what is found is in proportion to the watch: its odds are squared every round.
    """
    shares = [share]
    for _ in range(rounds - 1):
        there, elsewhere = shares[-1] ** 2, (1 - shares[-1]) ** 2
        shares.append(there / (there + elsewhere))
    return shares


def _drawn(chance: Tensor, generator: Generator) -> Tensor:
    """1 with this chance, else 0."""
    return (torch.rand(chance.shape, generator=generator) < chance).long()


def _truncated(shape: tuple[int, ...], low: float, high: float, generator: Generator) -> Tensor:
    """Standard normal numbers between two bounds."""
    ends = torch.special.ndtr(torch.tensor([low, high], dtype=torch.float64))
    place = torch.rand(shape, generator=generator, dtype=torch.float64)
    drawn: Tensor = torch.special.ndtri(ends[0] + place * (ends[1] - ends[0]))
    return drawn.float()


def hyperplanes(
    samples: int, features: int = 2, count: int = 2, *, generator: Generator
) -> tuple[Points, Tensor, Tensor]:
    """Even points of [-1, 1]^features, the cell of each, and the normals and offsets that cut.

    Bit k of a class is 1 where normals[k] . x + offsets[k] > 0. The normals are orthogonal, so that every
    cell is there.
    """
    normals = torch.linalg.qr(torch.randn(features, features, generator=generator))[0][:count]
    offsets = 0.4 * torch.rand(count, generator=generator) - 0.2
    x = 2 * torch.rand(samples, features, generator=generator) - 1
    sides = (x @ normals.T + offsets > 0).long()
    return Points(x, (sides * 2 ** torch.arange(count)).sum(1)), normals, offsets
