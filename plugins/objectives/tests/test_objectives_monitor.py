"""Every metric says whether more of it is better, so that the best checkpoint is not the worst."""

from __future__ import annotations

from pegboard_objectives import running
from pegboard_objectives.metrics import classification, label_set, regression

HIGHER = {"accuracy": True, "top2": True, "f1": True, "auroc": True, "ece": False}
HIGHER |= {"r2": True, "mae": False, "rmse": False, "mse": False}


def test_metrics_say_which_way_is_better() -> None:
    made = {
        **classification(
            ("accuracy", "topk", "f1", "auroc", "ece"), 3, 2, lambda output, target: (output, target)
        ),
        **regression(("r2", "mae", "rmse", "mse")),
    }
    assert {name: getattr(metric, "higher_is_better", None) for name, metric in made.items()} == HIGHER
    labels = label_set(("accuracy", "f1", "auroc", "ece"), 3)
    assert {name: metric.higher_is_better for name, metric in labels.items()} == {
        n: HIGHER[n] for n in labels
    }


def test_what_they_say_is_what_torchmetrics_says() -> None:
    sizes = {"MulticlassF1Score": (3,), "MulticlassCalibrationError": (3,), "MultilabelF1Score": (3,)}
    ours = {"F1": "f1", "CalibrationError": "ece", "MeanAbsolute": "mae", "MeanSquared": "mse"}
    for name in running.__all__:
        metric = getattr(running, name)(*sizes.get(name, ()))
        if type(metric).__module__.startswith("torchmetrics"):
            (short,) = (short for part, short in ours.items() if part in name)
            assert metric.higher_is_better is HIGHER[short], name
