"""The functions against torch's own label smoothing, closed forms and the catalogue."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from pegboard_label_smoothing.functional import (
    confuse_binary,
    confuse_labels,
    smooth_binary,
    smooth_labels,
)

CONFUSION = ((0.8, 0.15, 0.05), (0.0, 1.0, 0.0), (0.3, 0.3, 0.4))


@pytest.fixture(autouse=True)
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


def uniform(classes: int, epsilon: float) -> torch.Tensor:
    return (1 - epsilon) * torch.eye(classes) + epsilon / classes


@pytest.mark.catalogue("S4-161")
def test_smoothing_of_four_classes_gives_the_distribution_of_the_catalogue():
    smooth = smooth_labels(torch.tensor([0]), 4, 0.1)
    torch.testing.assert_close(smooth, torch.tensor([[0.925, 0.025, 0.025, 0.025]]))
    entropy = -(smooth * smooth.log()).sum()
    assert entropy.item() == pytest.approx(0.34878, abs=5e-6)


@pytest.mark.catalogue("S4-161")
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("shape", [(64,), (8, 5)])
def test_cross_entropy_with_smoothed_targets_equals_torch(epsilon, shape):
    logits, target = torch.randn(*shape, 7), torch.randint(7, shape)
    target.view(-1)[::3] = -100
    expected = F.cross_entropy(logits.flatten(0, -2), target.flatten(), label_smoothing=epsilon)
    smooth = smooth_labels(target, 7, epsilon)
    assert smooth.shape == (*shape, 7)
    places = (target != -100).sum()
    ours = -(smooth * logits.log_softmax(-1)).sum() / places
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


@pytest.mark.catalogue("S4-161")
def test_a_uniform_confusion_matrix_is_label_smoothing():
    target = torch.randint(6, (40,))
    torch.testing.assert_close(
        confuse_labels(target, uniform(6, 0.3)), smooth_labels(target, 6, 0.3), rtol=0, atol=1e-15
    )


@pytest.mark.catalogue("S4-161")
def test_the_identity_matrix_gives_plain_cross_entropy():
    logits, target = torch.randn(40, 6), torch.randint(6, (40,))
    torch.testing.assert_close(
        F.cross_entropy(logits, confuse_labels(target, torch.eye(6))),
        F.cross_entropy(logits, target),
        rtol=0,
        atol=1e-15,
    )


@pytest.mark.catalogue("S4-161")
@pytest.mark.parametrize("kind", ["epsilon", "confusion"])
def test_the_optimum_is_the_smoothed_distribution(kind):
    target = torch.tensor([0, 1, 2])
    if kind == "epsilon":
        goal = smooth_labels(target, 4, 0.1)
    else:
        goal = confuse_labels(target, torch.tensor(((0.8, 0.15, 0.05), (0.2, 0.7, 0.1), (0.3, 0.3, 0.4))))
    logits = torch.zeros_like(goal, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=200, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(logits, goal)
        value.backward()
        return value

    optimizer.step(loss)
    torch.testing.assert_close(logits.softmax(-1).detach(), goal, rtol=0, atol=1e-5)
    if kind == "epsilon":
        gap = logits[0, 0] - logits[0, 1:]
        assert gap.tolist() == pytest.approx([math.log(0.925 / 0.025)] * 3, abs=0.01)
        assert gap.tolist() == pytest.approx([3.6109] * 3, abs=0.01)
        assert F.cross_entropy(logits, goal).item() == pytest.approx(0.34878, abs=1e-5)


def test_row_of_the_matrix_is_the_true_class():
    matrix = torch.tensor(CONFUSION)
    torch.testing.assert_close(confuse_labels(torch.tensor([2, 0]), matrix), matrix[[2, 0]])


@pytest.mark.parametrize("edit", ["smooth", "confuse"])
def test_soft_targets_are_smoothed_as_the_mixture_of_their_classes(edit):
    a, b = torch.tensor([0, 1, 2]), torch.tensor([1, 1, 0])
    mixed = 0.3 * F.one_hot(a, 3).double() + 0.7 * F.one_hot(b, 3).double()

    def change(target: torch.Tensor) -> torch.Tensor:
        if edit == "smooth":
            return smooth_labels(target, 3, 0.2)
        return confuse_labels(target, torch.tensor(CONFUSION))

    torch.testing.assert_close(change(mixed), 0.3 * change(a) + 0.7 * change(b))
    torch.testing.assert_close(change(mixed).sum(-1), torch.ones(3))


@pytest.mark.parametrize("edit", ["smooth", "confuse"])
def test_ignored_places_become_and_stay_rows_of_zeros(edit):
    target = torch.tensor([[0, -100, 2], [-100, -100, 1]])

    def change(target: torch.Tensor) -> torch.Tensor:
        if edit == "smooth":
            return smooth_labels(target, 3, 0.2)
        return confuse_labels(target, torch.tensor(CONFUSION))

    once = change(target)
    assert torch.equal((once == 0).all(-1), target == -100)
    assert torch.equal((change(once) == 0).all(-1), target == -100)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_an_index_that_is_no_class_is_an_error_as_in_cross_entropy(wrong):
    target = torch.tensor([0, wrong])
    with pytest.raises((IndexError, RuntimeError)):
        smooth_labels(target, 3, 0.1)
    with pytest.raises((IndexError, RuntimeError)):
        confuse_labels(target, torch.tensor(CONFUSION))


def test_labels_are_smoothed_one_by_one():
    target = torch.tensor([[1.0, 0.0, 1.0]])
    torch.testing.assert_close(smooth_binary(target, 0.1), torch.tensor([[0.95, 0.05, 0.95]]))
    asymmetric = torch.tensor([[0.9, 0.1], [0.3, 0.7]])  # off is seen as on in a tenth, on as off in 0.3
    torch.testing.assert_close(confuse_binary(target, asymmetric), torch.tensor([[0.7, 0.1, 0.7]]))
    torch.testing.assert_close(confuse_binary(target, uniform(2, 0.1)), smooth_binary(target, 0.1))


def test_functions_leave_their_arguments_alone():
    index, soft, labels = torch.tensor([0, -100]), torch.eye(3), torch.ones(2, 3)
    copies = [t.clone() for t in (index, soft, labels)]
    for target in (index, soft):
        smooth_labels(target, 3, 0.1)
        confuse_labels(target, torch.tensor(CONFUSION))
    smooth_binary(labels, 0.1)
    assert all(torch.equal(t, c) for t, c in zip((index, soft, labels), copies, strict=True))


def test_a_batch_of_runs_can_be_mapped():
    target = torch.randint(3, (4, 10))
    matrix = torch.tensor(CONFUSION)
    each = torch.stack([smooth_labels(t, 3, 0.1) for t in target])
    assert torch.equal(torch.vmap(lambda t: smooth_labels(t, 3, 0.1))(target), each)
    each = torch.stack([confuse_labels(t, matrix) for t in target])
    assert torch.equal(torch.vmap(lambda t: confuse_labels(t, matrix))(target), each)


def test_smoothing_is_a_confusion_whose_rows_are_the_smoothed_classes() -> None:
    target = torch.tensor([[0, 4], [-100, 2]])
    rows = smooth_labels(torch.arange(5), 5, 0.3)
    assert torch.equal(confuse_labels(target, rows), smooth_labels(target, 5, 0.3))
    for wrong in (-1, 5):
        with pytest.raises(IndexError):
            confuse_labels(torch.tensor([wrong]), rows)
