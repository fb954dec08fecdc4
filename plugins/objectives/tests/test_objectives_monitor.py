"""Every metric says whether more of it is better, so that the best checkpoint is not the worst."""

from __future__ import annotations

import torchmetrics
from pegboard_objectives.checks import CLASSIFICATION, OF_LABELS, REGRESSION
from pegboard_objectives.metrics import classification, clustering, label_set, regression

HIGHER = {
    "accuracy": True,
    "top2": True,
    "f1": True,
    "auroc": True,
    "ece": False,
    "entropy": None,
    "ari": True,
}
HIGHER |= {"r2": True, "mae": False, "rmse": False, "mse": False, "max_error": False, "l3": False}


def test_metrics_say_which_way_is_better() -> None:
    made = {
        **classification(CLASSIFICATION, 3, 2, lambda output, target: (output, target)),
        **regression(REGRESSION, 3.0),
        **clustering(3),
    }
    assert {name: metric.higher_is_better for name, metric in made.items()} == HIGHER  # type: ignore[attr-defined]
    labels = label_set(OF_LABELS, 3)
    assert {name: metric.higher_is_better for name, metric in labels.items()} == {  # type: ignore[attr-defined]
        n: HIGHER[n] for n in labels
    }


def test_what_they_say_is_what_torchmetrics_says() -> None:
    theirs = {
        "accuracy": torchmetrics.classification.MulticlassAccuracy,
        "f1": torchmetrics.classification.MulticlassF1Score,
        "auroc": torchmetrics.classification.MulticlassAUROC,
        "ece": torchmetrics.classification.MulticlassCalibrationError,
        "r2": torchmetrics.regression.R2Score,
        "mae": torchmetrics.regression.MeanAbsoluteError,
        "mse": torchmetrics.regression.MeanSquaredError,
    }
    assert {name: kind.higher_is_better for name, kind in theirs.items()} == {n: HIGHER[n] for n in theirs}
