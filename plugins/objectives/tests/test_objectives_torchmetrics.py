"""Metrics of torchmetrics that a config names."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch
import torchmetrics
from pegboard import Classes, Context, DataSpec, Facts, Labels, Tokens, Values
from pegboard_objectives import pegboard_objectives
from pegboard_objectives.torchmetrics_names import available

PARTS = {part.name: part for part in pegboard_objectives()}


def made(name, target, metric, **fields):
    part = PARTS[name]
    config = part.config(metrics=("accuracy", metric) if name != "mse" else ("mae", metric), **fields)
    return part.build(config, Context(spec=DataSpec((), target))).metrics()


def problems(name, target, *metrics):
    part = PARTS[name]
    config = part.config(metrics=metrics)
    return list(part.check(config, Facts(spec=DataSpec((), target))))


def test_classes_are_measured_as_torchmetrics_does_over_all_batches():
    metrics = made("cross_entropy", Classes(4), "torchmetrics.CohenKappa")
    assert list(metrics) == ["accuracy", "CohenKappa"]
    logits, index = torch.randn(60, 4), torch.randint(4, (60,))
    index[:5] = -100  # not known
    for piece in range(0, 60, 20):
        metrics["CohenKappa"].update(logits[piece : piece + 20], index[piece : piece + 20])
    expected = torchmetrics.classification.MulticlassCohenKappa(4)(logits[5:], index[5:])
    assert float(metrics["CohenKappa"].compute()) == pytest.approx(float(expected))
    metrics["CohenKappa"].reset()
    assert metrics["CohenKappa"].compute().isnan()


def test_tokens_labels_and_values_are_measured_too():
    padded = made("cross_entropy", Tokens(5, 3, padding=0), "torchmetrics.MatthewsCorrCoef")[
        "MatthewsCorrCoef"
    ]
    logits, index = torch.randn(8, 3, 5), torch.randint(0, 5, (8, 3))
    padded.update(logits, index)
    known = index.flatten() != 0
    measured = torchmetrics.classification.MulticlassMatthewsCorrCoef(5)
    expected = measured(logits.flatten(0, 1)[known], index.flatten()[known])
    assert float(padded.compute()) == pytest.approx(float(expected))

    labels = made("binary_cross_entropy", Labels(3), "torchmetrics.HammingDistance")["HammingDistance"]
    output, target = torch.randn(9, 3), torch.randint(2, (9, 3)).float()
    labels.update(output, target)
    expected = torchmetrics.classification.MultilabelHammingDistance(3)(output.sigmoid(), target.long())
    assert float(labels.compute()) == pytest.approx(float(expected))

    values = made("mse", Values(2), "torchmetrics.PearsonCorrCoef")["PearsonCorrCoef"]
    output, target = torch.randn(9, 2), torch.randn(9, 2)
    values.update(output, target)
    expected = torchmetrics.regression.PearsonCorrCoef()(output.flatten(), target.flatten())
    assert float(values.compute()) == pytest.approx(float(expected))


def test_which_is_better_is_what_torchmetrics_says():
    assert made("cross_entropy", Classes(3), "torchmetrics.CohenKappa")["CohenKappa"].higher_is_better
    assert (
        made("mse", Values(1), "torchmetrics.MeanSquaredError")["MeanSquaredError"].higher_is_better is False
    )


@pytest.mark.parametrize("target", [Classes(3), Labels(3), Values(1)])
def test_every_name_on_its_list_is_a_class_of_torchmetrics(target):
    from pegboard_objectives.torchmetrics_names import home_of

    module, begin = home_of(target)
    names = available(module, begin)
    assert len(names) > 10
    assert all(isinstance(getattr(getattr(torchmetrics, module), begin + name), type) for name in names)


def test_a_name_that_torchmetrics_has_not_is_a_mistake():
    (problem,) = problems("cross_entropy", Classes(3), "torchmetrics.CohenKapa")
    assert "CohenKapa" in problem.message and "torchmetrics.CohenKappa" in problem.expected
    assert not problems("cross_entropy", Classes(3), "accuracy", "torchmetrics.CohenKappa")
    assert problems("mse", Values(1), "torchmetrics.CohenKappa")


def test_where_torchmetrics_is_missing_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    available.cache_clear()
    try:
        (problem,) = problems("cross_entropy", Classes(3), "torchmetrics.CohenKappa")
    finally:
        available.cache_clear()
    assert "not installed" in problem.message and problem.hint == "pip install torchmetrics"


def test_names_stand_in_rows_without_their_prefix():
    part = PARTS["cross_entropy"]
    config = part.config(metrics=("topk", "torchmetrics.CohenKappa"))
    assert tuple(part.metrics(config, Classes(9))) == ("top5", "CohenKappa")
    assert dataclasses.is_dataclass(config) and "torchmetrics" in sys.modules
