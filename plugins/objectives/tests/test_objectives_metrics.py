"""The metrics against scikit-learn, fed in batches with raw outputs and original targets."""

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from pegboard import Classes, Context, DataSpec, Labels, Tokens, Values
from pegboard_objectives import pegboard_objectives
from pegboard_objectives.checks import CLASSIFICATION, OF_LABELS, REGRESSION
from pegboard_objectives.running import cumulative
from sklearn import metrics as sk

PARTS = {part.name: part for part in pegboard_objectives()}
CLASS_METRICS = ("accuracy", "topk", "f1", "auroc", "ece")


def build(name, spec, **fields):
    part = PARTS[name]
    return part.build(part.config(**fields), Context(spec=DataSpec((), spec)))


def measure(objective, output, target, batches=3):
    """The figures, with every warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = objective.metrics()
        for name, metric in metrics.items():
            moved = metric.to("cpu")
            assert isinstance(moved, type(metric)), name
            for out, y in zip(output.chunk(batches), target.chunk(batches), strict=True):
                metric.update(out, y)
        return {name: metric.compute().item() for name, metric in metrics.items()}


def logits(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def indices(count, *shape, seed=1):
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(seed))


def calibration_error(confidence, right, bins=15):
    """Expected calibration error by its definition."""
    total, edges = 0.0, np.linspace(0, 1, bins + 1)
    for low, high in pairwise(edges):
        inside = (confidence >= low) & (confidence < high)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


@pytest.mark.parametrize("name", ["cross_entropy", "hinge", "perceptron", "mse"])
def test_classification_equals_scikit_learn(name):
    wanted = CLASS_METRICS if name == "cross_entropy" else CLASS_METRICS[:-1]
    objective = build(name, Classes(7), metrics=wanted, k=3)
    output, target = logits(90, 7), indices(7, 90)
    found = measure(objective, output, target)
    chance, decision = output.softmax(-1).numpy(), output.argmax(-1).numpy()
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(target, decision))
    assert found["top3"] == pytest.approx(sk.top_k_accuracy_score(target, chance, k=3))
    assert found["f1"] == pytest.approx(sk.f1_score(target, decision, average="macro"))
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(target, chance, multi_class="ovr"), abs=1e-6)
    if name == "cross_entropy":
        expected = calibration_error(chance.max(-1), decision == target.numpy())
        assert found["ece"] == pytest.approx(expected, abs=1e-6)


def test_perplexity_is_the_exponential_of_the_log_loss_of_what_counts():
    objective = build("cross_entropy", Classes(7), metrics=("perplexity",))
    output, target = logits(90, 7), indices(7, 90)
    target[::4] = -100
    known = target != -100
    expected = math.exp(sk.log_loss(target[known], output[known].double().softmax(-1), labels=range(7)))
    assert measure(objective, output, target) == {"perplexity": pytest.approx(expected, rel=1e-5)}
    assert measure(objective, torch.zeros(90, 7), target)["perplexity"] == pytest.approx(7)


@pytest.mark.parametrize("name", ["binary_cross_entropy", "hinge", "perceptron"])
def test_one_output_for_two_classes_equals_scikit_learn(name):
    objective = build(name, Classes(2))
    output, target = 200 * logits(60, 1), indices(2, 60)  # scores at which a sigmoid is flat
    found = measure(objective, output, target)
    decision = (output > 0).squeeze(-1).numpy()
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(target, decision))
    assert found["f1"] == pytest.approx(sk.f1_score(target, decision, average="macro"))
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(target, output.squeeze(-1)))
    assert ("ece" in found) == (name == "binary_cross_entropy")


def test_one_output_and_two_agree():
    output, target = logits(60, 1), indices(2, 60)
    two = torch.cat([torch.zeros_like(output), output], -1)
    one = measure(build("binary_cross_entropy", Classes(2)), output, target)
    assert one == pytest.approx(measure(build("cross_entropy", Classes(2)), two, target))
    assert set(one) == {"accuracy", "f1", "auroc", "ece"}


def test_auroc_tells_confident_answers_apart():
    # Every probability of the right class rounds to 1; only their log-odds order the samples.
    output = torch.tensor([[30.0, 0, 0], [40, 0, 0], [50, 0, 0], [0, 30, 0], [0, 0, 30]])
    target = torch.tensor([1, 0, 0, 1, 2])
    objective = build("cross_entropy", Classes(3), metrics=("auroc",))
    odds = [output[:, c] - output[:, np.arange(3) != c].logsumexp(-1) for c in range(3)]
    each = [sk.roc_auc_score(target == c, odds[c]) for c in range(3)]
    assert each[0] == 1
    assert measure(objective, output, target)["auroc"] == pytest.approx(np.mean(each))


def test_auroc_counts_ties_as_half():
    objective = build("hinge", Classes(2), metrics=("auroc",))
    output = torch.tensor([0, 0, 1, 1, 1, 2, 2, 3]).float().unsqueeze(-1)
    target = torch.tensor([0, 1, 0, 1, 1, 0, 1, 1])
    expected = sk.roc_auc_score(target, output.squeeze(-1))
    assert measure(objective, output, target)["auroc"] == pytest.approx(expected)


def test_a_class_that_a_split_lacks_is_left_out():
    objective = build("cross_entropy", Classes(4), metrics=CLASS_METRICS, k=2)
    output, target = logits(60, 4), indices(3, 60)
    found = measure(objective, output, target)
    chance, decision = output.softmax(-1), output.argmax(-1)
    each = [sk.roc_auc_score(target == c, chance[:, c]) for c in range(3)]
    assert found["auroc"] == pytest.approx(np.mean(each), abs=1e-6)
    expected = sk.f1_score(target, decision, average="macro", zero_division=0)
    assert found["f1"] == pytest.approx(expected)


def test_auroc_of_a_single_class_does_not_exist():
    for name, count, outputs in (("binary_cross_entropy", 2, 1), ("cross_entropy", 3, 3)):
        objective = build(name, Classes(count), metrics=("auroc", "accuracy"))
        found = measure(objective, logits(9, outputs), torch.zeros(9).long())
        assert math.isnan(found["auroc"])
        assert math.isfinite(found["accuracy"])


def test_metrics_that_saw_nothing_are_nan():
    for objective in (
        build("cross_entropy", Classes(3), metrics=("accuracy", "f1", "auroc", "ece")),
        build("mse", Values(1)),
    ):
        assert all(metric.compute().isnan() for metric in objective.metrics().values())


def test_reset_forgets():
    target = indices(7, 30)
    for metric in build("cross_entropy", Classes(7), metrics=CLASS_METRICS).metrics().values():
        metric.update(logits(30, 7, seed=5), target)
        metric.compute()
        metric.reset()
        metric.update(logits(30, 7), target)
        again = metric.compute().item()
        metric.reset()
        metric.update(logits(30, 7), target)
        assert metric.compute().item() == again


@pytest.mark.catalogue("T004")
def test_decision_is_the_argmax_of_logits_and_of_probabilities():
    objective = build("cross_entropy", Classes(7))
    output, target = logits(200, 7), indices(7, 200)
    from_logits = measure(objective, output, target)["accuracy"]
    assert from_logits == measure(objective, output.softmax(-1), target)["accuracy"]
    assert (
        from_logits == measure(objective, output, torch.nn.functional.one_hot(target, 7).float())["accuracy"]
    )


def test_all_decide_alike_where_probabilities_round_alike():
    output = 1e-8 * logits(200, 7).double()
    target = output.argmax(-1)
    assert not torch.equal(output.float().softmax(-1).argmax(-1), target)
    objective = build("cross_entropy", Classes(7), metrics=("accuracy", "ece"))
    found = measure(objective, output, target)
    assert found["accuracy"] == 1 and found["ece"] == pytest.approx(6 / 7, abs=1e-6)
    assert torch.equal(objective.predict(output.float())["class"], target)
    single = build("binary_cross_entropy", Classes(2))
    near = torch.tensor([[-1e-9], [0.0], [1e-9]])
    assert single.predict(near)["class"].tolist() == [0, 0, 1]


@pytest.mark.parametrize(("padding", "mark"), [(-1, -100), (0, 0), (0, -100)])
def test_places_without_a_token_are_not_measured(padding, mark):
    objective = build("cross_entropy", Tokens(6, 5, padding), metrics=CLASS_METRICS, k=3)
    flat = build("cross_entropy", Classes(6), metrics=CLASS_METRICS, k=3)
    output, target = logits(12, 5, 6), 1 + indices(5, 12, 5)
    expected = measure(flat, output[:, :3].reshape(-1, 6), target[:, :3].reshape(-1))
    target[:, 3:] = mark
    assert measure(objective, output, target) == pytest.approx(expected, abs=1e-6)


def test_labels_equal_scikit_learn():
    objective = build("binary_cross_entropy", Labels(4), metrics=("accuracy", "f1", "auroc", "ece"))
    output, target = logits(60, 4), indices(2, 60, 4).float()
    found = measure(objective, output, target)
    decision, chance = (output > 0).int(), output.sigmoid()
    assert found["accuracy"] == pytest.approx(1 - sk.hamming_loss(target, decision))
    assert found["f1"] == pytest.approx(sk.f1_score(target, decision, average="macro"))
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(target, chance))
    flat = chance.flatten().numpy()
    assert found["ece"] == pytest.approx(calibration_error(flat, target.flatten().numpy()), abs=1e-6)


def test_a_label_that_never_occurs_has_no_auroc():
    objective = build("binary_cross_entropy", Labels(3), metrics=("auroc", "f1"))
    output, target = logits(40, 3), indices(2, 40, 3).float()
    target[:, 1] = 0
    each = [sk.roc_auc_score(target[:, c], output[:, c]) for c in (0, 2)]
    assert measure(objective, output, target)["auroc"] == pytest.approx(np.mean(each))


@pytest.mark.parametrize("name", ["mse", "l1", "huber"])
@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (1e-4, 0), (10, 2000)])
def test_regression_equals_scikit_learn(name, features, scale, shift):
    objective = build(name, Values(features), metrics=("r2", "mae", "rmse", "mse"))
    target = scale * logits(50, features) + shift
    output = target + 0.3 * scale * logits(50, features, seed=3)
    found = measure(objective, output, target)
    a, b = target.double().numpy(), output.double().numpy()
    assert found["r2"] == pytest.approx(sk.r2_score(a, b), rel=1e-5)
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(a, b), rel=1e-5)
    assert found["mse"] == pytest.approx(sk.mean_squared_error(a, b), rel=1e-5)
    # Over all numbers, where scikit-learn would average the roots of the features.
    assert found["rmse"] == pytest.approx(math.sqrt(sk.mean_squared_error(a, b)), rel=1e-5)


def test_r2_of_one_sample_does_not_exist():
    found = measure(build("mse", Values(2)), torch.zeros(1, 2), torch.ones(1, 2), batches=1)
    assert math.isnan(found["r2"])
    assert found["mae"] == 1


@pytest.mark.parametrize("value", [0.0, 0.1, 1e4])
def test_r2_of_a_constant_is_one_where_met_and_zero_elsewhere(value):
    objective, target = build("mse", Values(1), metrics=("r2",)), torch.full((30, 1), value)
    assert measure(objective, target, target)["r2"] == 1
    assert measure(objective, target + 1, target)["r2"] == 0


def test_usual_metrics_follow_the_target():
    def names(name, spec, **fields):
        return list(build(name, spec, **fields).metrics())

    assert names("cross_entropy", Classes(10)) == ["accuracy", "top5", "f1", "ece"]
    assert names("cross_entropy", Classes(3)) == ["accuracy", "f1", "ece"]
    assert names("cross_entropy", Classes(3), k=2) == ["accuracy", "top2", "f1", "ece"]
    assert names("cross_entropy", Tokens(50, 8)) == ["accuracy", "top5"]
    assert names("hinge", Classes(2)) == ["accuracy", "f1", "auroc"]
    assert names("mse", Classes(3)) == ["accuracy", "f1"]
    assert names("binary_cross_entropy", Labels(3)) == ["accuracy", "f1"]
    assert names("mse", Values(1)) == ["r2", "mae", "rmse"]
    assert names("mse", Values(1), metrics=()) == []


def test_best_means_accuracy_where_it_is_measured():
    assert build("cross_entropy", Classes(3)).monitor == ("accuracy", "max")
    assert build("binary_cross_entropy", Labels(3)).monitor == ("accuracy", "max")
    assert build("cross_entropy", Classes(3), metrics=("f1",)).monitor == ("loss", "min")
    assert build("cross_entropy", Tokens(9, 4)).monitor == ("loss", "min")
    assert build("mse", Values(1)).monitor == ("loss", "min")


EVERY = [
    ("cross_entropy", Classes(7), (*CLASS_METRICS, "entropy"), {"k": 3}),
    ("binary_cross_entropy", Classes(2), ("accuracy", "f1", "auroc", "ece", "entropy"), {}),
    ("brier", Classes(7), (*CLASS_METRICS, "entropy"), {"k": 3}),
    ("binary_cross_entropy", Labels(3), ("accuracy", "f1", "auroc", "ece", "entropy"), {"missing": True}),
    ("hinge", Classes(2), ("accuracy", "f1", "auroc"), {}),
    ("perceptron", Classes(7), ("accuracy", "topk", "f1", "auroc"), {"k": 3}),
    ("mse", Classes(7), ("accuracy", "topk", "f1", "auroc"), {"k": 3}),
    ("mse", Values(2), ("r2", "mae", "rmse", "mse", "max_error", "lp"), {"p": 3.0, "missing": True}),
    ("lp", Values(1), ("r2", "mae", "rmse", "mse", "max_error", "lp"), {"missing": True}),
    ("clustering", Classes(7), None, {}),
]


def case(name, spec, chosen, fields, rows=40):
    """An objective with metrics, random outputs and targets, and what marks a target that is not known."""
    options = fields if chosen is None else {**fields, "metrics": chosen}
    part = PARTS[name]
    config = part.config(**options)
    outputs = (part.outputs(config, spec) if part.outputs else None) or spec.size
    objective = part.build(config, Context(spec=DataSpec((), spec), outputs=outputs))
    if isinstance(spec, Classes):
        return objective, logits(rows, outputs), indices(spec.count, rows), -100
    target = logits(rows, outputs, seed=2)
    return (
        objective,
        logits(rows, outputs),
        target if isinstance(spec, Values) else (target > 0).float(),
        math.nan,
    )


def figures(objective, *batches):
    metrics = objective.metrics()
    for metric in metrics.values():
        for batch in batches:
            metric.update(*batch)
    return {name: metric.compute().item() for name, metric in metrics.items()}


every_metric = pytest.mark.parametrize(("name", "spec", "chosen", "fields"), EVERY)


def test_every_metric_is_among_those_that_are_tried_with_weights():
    tried = {part: set() for part in ("classes", "labels", "values")}
    for _, spec, chosen, _ in EVERY:
        kind = {Classes: "classes", Labels: "labels", Values: "values"}[type(spec)]
        tried[kind] |= set(chosen or ())
    assert tried == {"classes": {*CLASSIFICATION}, "labels": {*OF_LABELS}, "values": {*REGRESSION}}


@every_metric
def test_weights_of_whole_numbers_are_repetitions(name, spec, chosen, fields):
    objective, output, target, _ = case(name, spec, chosen, fields)
    times = indices(4, len(target), seed=5)
    times[:3] = torch.tensor([0, 1, 3])
    repeated = (output.repeat_interleave(times, 0), target.repeat_interleave(times, 0))
    expected = figures(objective, repeated)
    assert all(map(math.isfinite, expected.values()))
    batches = [(output[:15], target[:15], times[:15].float()), (output[15:], target[15:], times[15:].float())]
    assert figures(objective, *batches) == pytest.approx(expected, rel=1e-6)
    plain = [(output, target)]
    assert figures(objective, (output, target, torch.ones(len(target)))) == figures(objective, *plain)


@every_metric
def test_what_has_weight_zero_or_is_not_known_leaves_no_trace(name, spec, chosen, fields):
    objective, output, target, mark = case(name, spec, chosen, fields)
    hidden = torch.zeros(len(target), dtype=torch.bool)
    hidden[[0, 7, 8, 21]] = True
    expected = figures(objective, (output[~hidden], target[~hidden]))
    strange = output.clone()
    strange[hidden] = 1e6
    marked = target.clone()
    marked[hidden] = mark
    weight = (~hidden).float()
    assert figures(objective, (strange, target, weight)) == pytest.approx(expected, rel=1e-6)
    assert figures(objective, (strange, marked)) == pytest.approx(expected, rel=1e-6)
    assert figures(objective, (strange, marked, weight)) == pytest.approx(expected, rel=1e-6)
    nothing = figures(objective, (output, target, torch.zeros(len(target))))
    assert all(map(math.isnan, nothing.values())) or name == "clustering"


def test_weighted_metrics_equal_scikit_learn():
    weight = torch.rand(60, generator=torch.Generator().manual_seed(4))
    w = weight.double().numpy()
    objective = build("cross_entropy", Classes(7), metrics=CLASS_METRICS, k=3)
    output, target = logits(60, 7), indices(7, 60)
    found = figures(
        objective, (output[:20], target[:20], weight[:20]), (output[20:], target[20:], weight[20:])
    )
    chance, decision = output.double().softmax(-1).numpy(), output.argmax(-1).numpy()
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(target, decision, sample_weight=w))
    assert found["top3"] == pytest.approx(sk.top_k_accuracy_score(target, chance, k=3, sample_weight=w))
    assert found["f1"] == pytest.approx(sk.f1_score(target, decision, average="macro", sample_weight=w))
    each = [sk.roc_auc_score(target == c, chance[:, c], sample_weight=w) for c in range(7)]
    assert found["auroc"] == pytest.approx(np.mean(each), abs=1e-6)
    values = build("mse", Values(3), metrics=("r2", "mae", "mse"))
    a, b = logits(60, 3), logits(60, 3, seed=9)
    found = figures(values, (b, a, weight))
    assert found["r2"] == pytest.approx(sk.r2_score(a.double(), b.double(), sample_weight=w))
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(a.double(), b.double(), sample_weight=w))
    assert found["mse"] == pytest.approx(sk.mean_squared_error(a.double(), b.double(), sample_weight=w))


@pytest.mark.catalogue("S3-026", "S4-040")
def test_distances_of_regression():
    objective = build("mse", Values(3), metrics=("lp", "max_error"), p=3.0)
    output, target = logits(50, 3), logits(50, 3, seed=7)
    found = measure(objective, output, target)
    error = (output - target).double()
    assert list(found) == ["l3", "max_error"]
    assert found["l3"] == pytest.approx(torch.linalg.vector_norm(error, 3, dim=-1).mean().item())
    assert found["max_error"] == pytest.approx(error.abs().max().item())
    assert list(build("mse", Values(1), metrics=("lp",), p=math.inf).metrics()) == ["linf"]


@pytest.mark.catalogue("S4-040")
def test_the_largest_error_is_the_uniform_distance_of_two_functions():
    objective = build("mse", Values(1), metrics=("max_error",))
    x = torch.linspace(0, 1, 2001, dtype=torch.float64).unsqueeze(-1)

    def distance(f, g):
        return measure(objective, f(x), g(x))["max_error"]

    assert distance(torch.square, lambda x: x) == pytest.approx(0.25, abs=1e-4)
    coefficients = logits(30, 5).double()
    functions = [
        lambda x, c=c: torch.cat([x**k for k in range(5)], -1) @ c.unsqueeze(-1) for c in coefficients
    ]
    for f, g, h in zip(functions[::3], functions[1::3], functions[2::3], strict=True):
        assert distance(f, g) == distance(g, f) > 0 == distance(f, f)
        assert distance(f, h) <= distance(f, g) + distance(g, h) + 1e-12


def test_rand_index_equals_scikit_learn():
    for seed in range(5):
        groups, classes = indices(4, 60, seed=seed), indices(3, 60, seed=seed + 10)
        classes[:30] = groups[:30] % 3
        scores = torch.nn.functional.one_hot(groups, 4).float()
        found = measure(build("clustering", Classes(3)), scores, classes)
        assert found == {"ari": pytest.approx(sk.adjusted_rand_score(classes, groups))}
    same = torch.nn.functional.one_hot(indices(3, 60), 3).float()
    assert measure(build("clustering", Classes(3)), same, indices(3, 60)) == {"ari": 1}
    one = torch.ones(5, 1)
    assert measure(build("clustering", Classes(1)), one, torch.zeros(5).long(), 1) == {"ari": 1}


def test_mean_entropy_of_predictions():
    objective = build("cross_entropy", Classes(4), metrics=("entropy",))
    output, target = 3 * logits(30, 4), indices(4, 30)
    expected = torch.distributions.Categorical(logits=output.double()).entropy().mean().item()
    assert measure(objective, output, target)["entropy"] == pytest.approx(expected, rel=1e-6)
    assert measure(objective, 1e4 * output, target)["entropy"] == pytest.approx(0, abs=1e-6)
    labels = build("binary_cross_entropy", Labels(4), metrics=("entropy",))
    expected = torch.distributions.Bernoulli(logits=output.double()).entropy().mean().item()
    assert measure(labels, output, (output > 1).float())["entropy"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64, 1000])
def test_sums_without_cumsum_are_the_same_for_cases_that_count_once(count):
    ones = (logits(3, count) > 0).float()
    assert torch.equal(cumulative(ones), ones.cumsum(-1))


def test_sums_without_cumsum_are_as_exact_for_weights():
    weights = logits(2, 5000).square()
    exact = weights.double().cumsum(-1)
    assert torch.allclose(cumulative(weights).double(), exact, rtol=5e-7)
