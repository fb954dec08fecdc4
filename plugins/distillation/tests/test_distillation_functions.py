"""The soft losses against torch, closed forms and the catalogue."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from pegboard_distillation.functional import (
    average,
    binary_divergence,
    counted,
    mix_losses,
    soft_cross_entropy,
    soft_divergence,
    squared_distance,
)


@pytest.fixture(autouse=True)
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


def entropy(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    p = (logits / temperature).softmax(-1)
    return -(p * p.log()).sum(-1)


@pytest.mark.catalogue("S4-163")
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_soft_cross_entropy_is_torchs_divergence_plus_the_teachers_entropy(temperature):
    student, teacher = torch.randn(16, 5), torch.randn(16, 5)
    reference = F.kl_div(
        (student / temperature).log_softmax(-1), (teacher / temperature).softmax(-1), reduction="none"
    ).sum(-1)
    torch.testing.assert_close(
        soft_cross_entropy(student, teacher, temperature),
        reference + entropy(teacher, temperature),
        rtol=0,
        atol=1e-6,
    )
    torch.testing.assert_close(soft_divergence(student, teacher, temperature), reference, rtol=0, atol=1e-12)


@pytest.mark.catalogue("S4-163")
def test_both_written_forms_of_the_loss_agree_and_are_positive():
    student, teacher, t = torch.randn(16, 5), torch.randn(16, 5), 3.0
    p = (teacher / t).softmax(-1)
    second = -(p * (student / t - torch.logsumexp(student / t, -1, keepdim=True))).sum(-1)
    torch.testing.assert_close(soft_cross_entropy(student, teacher, t), second)
    assert (second > 0).all()


@pytest.mark.catalogue("S4-163")
def test_the_minimum_is_the_teachers_entropy_where_logits_differ_by_a_constant():
    teacher, t = torch.randn(16, 5), 2.0
    shifted = (teacher + torch.randn(16, 1)).requires_grad_()
    loss = soft_cross_entropy(shifted, teacher, t)
    torch.testing.assert_close(loss.detach(), entropy(teacher, t))
    loss.sum().backward()
    assert shifted.grad is not None and shifted.grad.abs().max() < 1e-12
    torch.testing.assert_close(soft_divergence(shifted.detach(), teacher, t), torch.zeros(16))
    worse = soft_cross_entropy(teacher + 0.1 * torch.randn(16, 5), teacher, t)
    assert (worse > entropy(teacher, t)).all()


@pytest.mark.catalogue("S4-163")
@pytest.mark.parametrize(
    "loss",
    [soft_cross_entropy, soft_divergence, binary_divergence, squared_distance],
    ids=lambda f: f.__name__,
)
def test_the_teacher_receives_no_gradient(loss):
    student, teacher = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    loss(student, teacher).sum().backward()
    assert student.grad is not None and student.grad.abs().sum() > 0
    assert teacher.grad is None


@pytest.mark.catalogue("S4-164")
@pytest.mark.parametrize("loss", [soft_cross_entropy, soft_divergence], ids=lambda f: f.__name__)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_gradient_is_the_difference_of_tempered_probabilities(loss, temperature):
    student, teacher = torch.randn(16, 5, requires_grad=True), torch.randn(16, 5)
    loss(student, teacher, temperature).sum().backward()
    q, p = (student.detach() / temperature).softmax(-1), (teacher / temperature).softmax(-1)
    torch.testing.assert_close(student.grad, (q - p) / temperature, rtol=0, atol=1e-7)


@pytest.mark.catalogue("S4-164")
@pytest.mark.parametrize("seed", range(5))
def test_at_high_temperature_the_gradient_compares_logits(seed):
    torch.manual_seed(seed)
    student, teacher = torch.randn(16, 5), torch.randn(16, 5)
    student, teacher = (x - x.mean(-1, keepdim=True) for x in (student, teacher))
    student.requires_grad_()
    errors = {}
    for t in (10.0, 100.0, 1000.0):
        (grad,) = torch.autograd.grad(soft_divergence(student, teacher, t).sum(), student)
        matched = student.detach() - teacher
        errors[t] = ((5 * t**2 * grad - matched).norm() / matched.norm()).item()
    assert errors[100.0] < 1e-2
    # Ten times the temperature, a tenth of the error.
    assert errors[10.0] / errors[100.0] == pytest.approx(10, rel=0.2)
    assert errors[100.0] / errors[1000.0] == pytest.approx(10, rel=0.2)


def test_divergence_of_labels_is_that_of_two_classes_each():
    student, teacher, t = torch.randn(8, 3), torch.randn(8, 3), 2.0
    # One logit z stands for the two logits (0, z).
    pairs = [torch.stack([torch.zeros_like(z), z], -1) for z in (student, teacher)]
    torch.testing.assert_close(
        binary_divergence(student, teacher, t), soft_divergence(*pairs, temperature=t).mean(-1)
    )
    bce = F.binary_cross_entropy_with_logits
    p = (teacher / t).sigmoid()
    reference = bce(student / t, p) - bce(teacher / t, p)
    torch.testing.assert_close(binary_divergence(student, teacher, t).mean(), reference)


@pytest.mark.parametrize("loss", [soft_divergence, binary_divergence], ids=lambda f: f.__name__)
def test_extreme_logits_stay_finite(loss):
    student = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    value = loss(student, -student.detach(), 1.0).sum()
    value.backward()
    assert value.isfinite() and student.grad is not None and student.grad.isfinite().all()


def test_half_precision_is_compared_in_single():
    student, teacher = torch.randn(4, 3).bfloat16(), torch.randn(4, 3).bfloat16()
    for loss in (soft_divergence, binary_divergence, squared_distance):
        assert loss(student, teacher).dtype == torch.float32
        torch.testing.assert_close(loss(student, teacher), loss(student.float(), teacher.float()))


def test_squared_distance_averages_to_torchs_mse():
    student, teacher = torch.randn(8, 3), torch.randn(8, 3)
    torch.testing.assert_close(squared_distance(student, teacher).mean(), F.mse_loss(student, teacher))


def test_mean_is_over_places_that_count_with_the_weights_of_their_samples():
    losses = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    counts = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    weight = torch.tensor([1.0, 3.0])
    assert average(losses).item() == 3.5
    assert average(losses, counts=counts).item() == pytest.approx(7 / 3)
    assert average(losses, weight).item() == pytest.approx((6 + 45) / 12)
    assert average(losses, weight, counts).item() == pytest.approx((3 + 12) / 5)
    assert average(losses[:, 0], weight).item() == pytest.approx((1 + 12) / 4)
    assert average(losses, counts=torch.zeros(2, 3)).item() == 0


def test_places_that_the_labels_leave_out_do_not_count():
    losses = torch.zeros(2, 3)
    index = torch.tensor([[0, -100, 1], [-100, 3, 2]])
    expected = [[1, 0, 1], [0, 1, 1]]
    counts = counted(losses, index)
    assert counts is not None and counts.tolist() == expected
    counts = counted(losses, index, padding=3)
    assert counts is not None and counts.tolist() == [[1, 0, 1], [0, 0, 1]]
    counts = counted(losses[:, 0], index[:, :1])
    assert counts is not None and counts.tolist() == [1, 0]
    soft = F.one_hot(index.clamp(min=0), 4) * (index != -100).unsqueeze(-1)
    counts = counted(losses, 0.9 * soft.double())
    assert counts is not None and counts.tolist() == expected
    assert counted(losses, None) is None
    assert counted(losses, torch.zeros(2, 3)) is None  # a label that is off still counts


def test_mixing_leaves_the_other_loss_out_at_either_end():
    hard, soft = torch.tensor(2.0), torch.tensor(10.0)
    assert mix_losses(hard, soft, 0.25).item() == 4
    assert mix_losses(hard, soft, 0.0) is hard
    assert mix_losses(torch.tensor(float("nan")), soft, 1.0) is soft
