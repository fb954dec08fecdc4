"""Probes of a decision between two classes, and k-means beside prototypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pegboard
import points
import pytest
import torch
from pegboard import Batch, Classes, Context, DataSpec, PegboardError, Resident, Splits, Vector
from pegboard_mlp.kmeans import KmeansReference, kmeans, lloyd
from pegboard_mlp.margins import MarginProbe, VersionSpaceProbe, share_that_separates, sphere
from pegboard_mlp.modules import LinearModel
from pegboard_mlp.reference_configs import Kmeans, Margin, VersionSpace
from pegboard_mlp.units import Prototypes
from scipy.optimize import linprog
from sklearn.cluster import KMeans
from torch import Tensor

CPU = torch.device("cpu")
SQUARE = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])


def splits(x: Tensor, classes: Tensor) -> Splits:
    return Splits(spec=DataSpec((Vector(x.shape[1]),), Classes(2)), train=Resident([x], classes))


def space(x: Tensor, classes: Tensor, bias: bool = True) -> dict[str, float]:
    probe = VersionSpaceProbe(VersionSpace(samples=20_000), Context(seed=1, key="probe"))
    return probe.measure(LinearModel(x.shape[1], 1, bias=bias), splits(x, classes), CPU)


def feasible(x: Tensor, classes: Tensor) -> bool:
    """Whether y (w x + b) >= 1 has a solution, by a linear program."""
    seen = torch.cat([x, torch.ones(len(x), 1)], 1)
    rows = -((2 * classes - 1).unsqueeze(-1) * seen).double().numpy()
    found = linprog(numpy.zeros(rows.shape[1]), rows, -numpy.ones(len(rows)), bounds=(None, None))
    return bool(found.status == 0)


@pytest.mark.catalogue("S4-004")
def test_a_version_space_is_empty_where_a_linear_program_has_no_solution() -> None:
    assert feasible(SQUARE, torch.tensor([0, 0, 0, 1])) and not feasible(SQUARE, torch.tensor([0, 1, 1, 0]))
    assert space(SQUARE, torch.tensor([0, 0, 0, 1]))["separable"] == 1
    assert space(SQUARE, torch.tensor([0, 1, 1, 0])) == {"separable": 0, "volume": 0}
    seen = set()
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        x, classes = torch.randn(7, 2, generator=generator), torch.randint(0, 2, (7,), generator=generator)
        seen.add(feasible(x, classes))
        assert space(x, classes)["separable"] == feasible(x, classes)
    assert seen == {True, False}


@pytest.mark.catalogue("S4-004")
def test_a_version_space_only_shrinks_as_points_are_added() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    y, seen = (x[:, 0] + 0.1).sign(), torch.cat([x, torch.ones(12, 1)], 1)
    drawn = sphere(100_000, 4, generator)
    torch.testing.assert_close(drawn.norm(dim=-1), torch.ones(100_000).double())
    volumes = [share_that_separates(seen[:n], y[:n], drawn) for n in range(1, 13)]
    assert volumes == sorted(volumes, reverse=True) and volumes[-1] < volumes[0]
    assert volumes[0] == pytest.approx(0.5, abs=0.01)  # half of all hyperplanes are right on one point
    # So does the probe, which draws the same hyperplanes for all of them.
    probe, model = VersionSpaceProbe(VersionSpace(), Context(seed=1, key="probe")), LinearModel(3, 1)
    classes = (y > 0).long()
    found = [probe.measure(model, splits(x[:n].float(), classes[:n]), CPU) for n in range(1, 13)]
    measured = [figures["volume"] for figures in found]
    assert VersionSpace().samples == 100_000 and all(figures["separable"] for figures in found)
    assert measured == sorted(measured, reverse=True) and 0 < measured[-1] < measured[0]
    assert measured == pytest.approx(volumes, abs=0.01)  # of other directions
    right = torch.tensor([[1.0, 0], [0, 1.0]]).double()
    quarter = share_that_separates(right, torch.ones(2).double(), sphere(100_000, 2, generator))
    assert quarter == pytest.approx(0.25, abs=0.01)


def test_the_margin_of_a_model_is_beside_the_widest_one_and_the_bound() -> None:
    x, classes = torch.tensor([[3.0, 4.0], [-1.0, -2.0]]), torch.tensor([1, 0])
    model = LinearModel(2, 1)
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[3.0, 4.0]]))
        model.head.bias.fill_(-5)
    found = MarginProbe(Margin(), Context()).measure(model, splits(x, classes), CPU)
    assert found["margin"] == pytest.approx(16 / 5, abs=1e-12)  # 4 on one side, 3.2 on the other
    assert found["widest"] == pytest.approx(52**0.5 / 2)
    assert found["radius"] == pytest.approx(26**0.5) and found["separable"] == 1
    assert found["bound"] == pytest.approx(26 / found["gamma"] ** 2)
    two = LinearModel(2, 2)
    with torch.no_grad():
        two.head.weight.copy_(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
        two.head.bias.copy_(torch.tensor([0.0, -5.0]))
    assert MarginProbe(Margin(), Context()).measure(two, splits(x, classes), CPU) == found
    crossed = MarginProbe(Margin(), Context()).measure(model, splits(SQUARE, torch.tensor([0, 1, 1, 0])), CPU)
    assert crossed["separable"] == 0 and "bound" not in crossed and crossed["margin"] < 0
    with pytest.raises(PegboardError, match="3 outputs"):
        MarginProbe(Margin(), Context()).measure(LinearModel(2, 3), splits(x, classes), CPU)


def blobs(samples: int = 90) -> Tensor:
    centres = torch.tensor([[0.0, 0], [6, 0], [0, 6]])
    generator = torch.Generator().manual_seed(0)
    return centres[torch.arange(samples) % 3] + torch.randn(samples, 2, generator=generator)


def test_k_means_is_as_good_as_that_of_scikit_learn_and_cannot_be_improved_by_a_move() -> None:
    x = blobs().double()
    share = torch.full((90,), 1 / 90, dtype=torch.float64)
    found = kmeans(x, share, 3, 10, torch.Generator().manual_seed(0))
    other = KMeans(3, n_init=10, random_state=0, tol=0).fit(x)
    assert lloyd(x, share, found)[1] == pytest.approx(other.inertia_ / 90, rel=1e-9)
    again, _ = lloyd(x, share, found)
    torch.testing.assert_close(again, found)
    assert lloyd(x, share, x[[0, 3, 6]])[1] >= lloyd(x, share, found)[1]  # three starts in one cloud


def test_prototypes_are_measured_beside_k_means() -> None:
    x, model = blobs(), Prototypes(2, 3)
    reference = KmeansReference(Kmeans(restarts=5), Context(seed=2, key="reference"))
    batch = Batch((x,), None, torch.cat([torch.ones(60), torch.zeros(30)]))
    best: Any = reference.solve(model, batch)
    kept = x[:60].double()
    by_hand = (kept.unsqueeze(1) - best.centres.double()).square().sum(-1).min(-1).values.mean().item()
    assert reference.value(best, batch) == pytest.approx(by_hand, abs=1e-9)
    figures = reference.gap(model, best, batch)
    assert figures["gap"] > 0 and "best of 5 starts" in reference.formula
    assert torch.equal(best.centres, reference.solve(model, batch).centres)  # the same starts every time
    few: Any = reference.solve(model, Batch((torch.ones(4, 2),)))  # fewer different samples than centres
    assert torch.equal(few.centres, torch.ones(3, 2))
    with pytest.raises(PegboardError, match="Use the model prototypes"):
        reference.solve(LinearModel(2, 1), batch)


def test_a_run_of_prototypes_reports_its_distance_from_k_means(tmp_path: Path) -> None:
    x = blobs()
    config = points.given(
        x, classes=torch.arange(90) % 3, model={"name": "prototypes", "centres": 3, "spread": 3.0},
        objective="clustering", reference={"name": "kmeans", "restarts": 3}, seed=1,
        optimizer={"name": "sgd", "lr": 0.5}, trainer={"epochs": 40, "eval_every": 40, "device": "cpu"},
    )  # fmt: skip
    done = pegboard.train(config, root=tmp_path, quiet=True)
    assert done.reference["figures"]["test/loss"] == pytest.approx(done.reference["optimum"], rel=1e-5)
    assert done.reference["gap"] > -1e-6 and done.reference["optimum"] < 2.5
    assert done.figures["test/loss"] == pytest.approx(done.reference["objective"], rel=1e-5)
