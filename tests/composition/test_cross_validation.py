"""Cross-validation and held-out risk, as a researcher uses them: to choose a model, and to trust a figure."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pegboard
import pytest
import torch
from pegboard.inference.trained import Trained
from pegboard_datasets import PolynomialTeacher, pegboard_datasets


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run writes for people takes longer than fits this small."""
    monkeypatch.setattr("pegboard.run.finish.draw_curves", lambda rows, path, *_: path)
    monkeypatch.setattr("pegboard.run.finish.write_report", lambda folder, plan, summary: folder)
    monkeypatch.setattr("pegboard.run.training.explained_plan", lambda *_: "")
    monkeypatch.setattr("pegboard.run.provenance.git_state", lambda: ({}, ""))
    monkeypatch.setattr("pegboard.run.provenance._packages", lambda plugins: [])


@pytest.mark.sweep
@pytest.mark.catalogue("S3-035")
@pytest.mark.parametrize("count", [3, 10])
def test_cross_validation_chooses_the_degree_of_a_polynomial(tmp_path: Path, quick: None, count: int) -> None:
    """30 noisy points of a cosine ask for degree 3 to 5, in how many folds they may be."""
    risk = {}
    for degree in range(1, 16):
        config: dict[str, Any] = {
            "data": {"name": "cosine", "batch_size": "all", "test": 0},
            "model": {"name": "polynomial", "degree": degree, "basis": "legendre", "domain": [0.0, 1.0]},
            "optimizer": {"name": "lbfgs", "max_iter": 100, "line_search_fn": "strong_wolfe"},
            "trainer": {"epochs": 1, "device": "cpu", "threads": 1, "folds": count, "diagnose": False},
        }
        run = pegboard.train(config, root=tmp_path / str(degree), quiet=True)
        assert [fold.folder.name for fold in run.folds] == [f"fold-{i}" for i in range(count)]
        assert {fold.status for fold in run.folds} == {"finished"}  # each of them one fit
        assert run.figures["val/loss"] == pytest.approx(mean(fold.figures["val/loss"] for fold in run.folds))
        low, high = run.summary["statistics"]["val/loss"]["interval"]
        assert low <= run.figures["val/loss"] <= high
        risk[degree] = run.figures["val/loss"]
    chosen = min(risk, key=lambda degree: risk[degree])
    assert 3 <= chosen <= 5
    assert risk[chosen] < 0.03 < 0.2 < risk[1]  # the noise has 0.01
    assert risk[15] > 10 * risk[chosen]


@pytest.mark.catalogue("S4-032")
@pytest.mark.parametrize("seed", range(3))
def test_the_risk_on_held_out_samples_is_that_on_fresh_ones(tmp_path: Path, quick: None, seed: int) -> None:
    teacher: dict[str, Any] = {"degree": 2, "coefficients": [0.5, -1.0, 2.0], "noise": 0.3}
    config = {
        "data": {"name": "polynomial_teacher", "seed": seed, "samples": 1000, "val": 0.4, **teacher},
        "model": {"name": "linear"},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "trainer": {"epochs": 1, "device": "cpu", "threads": 1},
    }
    run = pegboard.train(config, root=tmp_path, quiet=True)
    trained = Trained(run.folder)
    splits = trained.splits
    sources: list[Any] = [splits.train, splits.val, splits.test]
    everyone = [source.gather(torch.arange(len(source))) for source in sources]
    x = torch.cat([batch.inputs[0] for batch in everyone])
    assert len(x) == len(x.unique(dim=0)) == 1000  # nobody is in two splits, and nobody in none
    again = Trained(run.folder).splits
    assert torch.equal(again.val.inputs[0], splits.val.inputs[0])  # type: ignore[union-attr]

    batch = everyone[1]
    with torch.no_grad():
        output = trained.model(*batch.inputs)
        pairs = zip(output, batch.target, strict=True)
        each = torch.stack([trained.objective.loss(o[None], y[None]) for o, y in pairs])
    assert run.figures["val/loss"] == pytest.approx(float(each.double().mean()), rel=1e-6)
    assert trained.evaluate("val")["loss"] == pytest.approx(float(each.double().mean()), rel=1e-6)

    part = next(p for p in pegboard_datasets() if p.name == "polynomial_teacher")
    fresh = PolynomialTeacher(seed=seed + 100, samples=100_000, val=0, test=0, **teacher)
    source = part.build(fresh, pegboard.Context()).train
    unseen = source.gather(torch.arange(len(source)))
    with torch.no_grad():
        risk = float(trained.objective.loss(trained.model(*unseen.inputs), unseen.target))
    error = float(each.std()) / len(each) ** 0.5
    assert abs(run.figures["val/loss"] - risk) <= 4 * error
    assert error < 0.1 * risk  # so that this says something
