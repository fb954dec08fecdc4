"""A teacher that is asked once: the same loss, no call in a step, and when it is asked after all."""

from __future__ import annotations

import pytest
import torch
from pegboard import Batch, Classes, Labels, Resident, Spec, Values
from pegboard_distillation import Distillation
from pegboard_distillation import trick as module
from pegboard_distillation.functional import mix_divergence, mix_losses, soft_divergence, soften
from pegboard_distillation.trick import DistillationTrick
from torch import Tensor, nn


class Counted(nn.Linear):
    """A teacher that knows how often it was asked."""

    asked = 0

    def forward(self, x: Tensor) -> Tensor:
        self.asked += 1
        return super().forward(x)


def samples(spec: Spec, *, weighted: bool = False, unknown: bool = False) -> Resident:
    torch.manual_seed(0)
    target = torch.randint(3, (50,)) if isinstance(spec, Classes) else torch.rand(50, 3).round()
    if unknown:
        target[::7] = -100
    return Resident((torch.randn(50, 4),), target, torch.rand(50) if weighted else None)


def pair(spec: Spec, data: Resident, **fields: float) -> tuple[DistillationTrick, DistillationTrick]:
    """The trick with a teacher that was asked before, and with one that is asked in every step."""
    torch.manual_seed(1)
    teacher = Counted(4, 3)
    tricks = [DistillationTrick(Distillation("t", **fields), teacher, spec) for _ in range(2)]  # type: ignore[arg-type]
    tricks[0].prepare(data, 16)
    return tricks[0], tricks[1]


def loss_and_gradient(trick: DistillationTrick, batch: Batch) -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    output = (3 * torch.randn(len(batch.inputs[0]), 3)).requires_grad_()
    loss = trick.edit_loss(output.square().mean(), output, batch)
    return loss.detach(), torch.autograd.grad(loss, output)[0]


@pytest.mark.catalogue("S4-163")
@pytest.mark.parametrize("alpha", [0.7, 1.0])
@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (Classes(3), {}),
        (Classes(3), {"weighted": True}),
        (Classes(3), {"unknown": True}),
        (Labels(3), {}),
        (Values(3), {}),
    ],
    ids=str,
)
def test_looking_up_gives_the_loss_and_gradient_of_asking(
    spec: Spec, options: dict[str, bool], alpha: float
) -> None:
    data = samples(spec, **options)
    kept, asking = pair(spec, data, alpha=alpha)
    teacher = kept.teacher
    assert isinstance(teacher, Counted)
    teacher.asked = 0
    for rows in (torch.tensor([4, 49, 7, 0, 7, 21]), torch.arange(50)):
        batch = data.gather(rows)
        found = loss_and_gradient(kept, batch)
        assert teacher.asked == 0
        torch.testing.assert_close(found, loss_and_gradient(asking, batch), rtol=1e-6, atol=1e-6)
        assert teacher.asked == 1
        teacher.asked = 0


def test_a_soft_target_counts_as_its_labels_do() -> None:
    data = samples(Classes(3))
    kept, asking = pair(Classes(3), data)
    batch = data.gather(torch.arange(8))
    assert batch.target is not None
    batch = batch._replace(target=torch.eye(3)[batch.target] * 0.8 + 0.2 / 3)
    torch.testing.assert_close(loss_and_gradient(kept, batch), loss_and_gradient(asking, batch))


def test_the_short_form_is_the_formula() -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(2, 8, 5, dtype=torch.float64)
    for temperature, alpha in ((1.0, 0.3), (4.0, 0.7), (2.5, 1.0)):
        p, logs = soften(teacher, temperature)
        found = mix_divergence(torch.tensor(2.0), student, p, logs, temperature, alpha)
        soft = temperature**2 * soft_divergence(student, teacher, temperature).mean()
        torch.testing.assert_close(found, mix_losses(torch.tensor(2.0), soft, alpha), rtol=1e-12, atol=1e-12)


def test_answers_that_are_too_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    data = samples(Classes(3))
    size = 50 * 3 * 4  # bytes
    for largest, asked in ((size, 4), (size - 1, 1)):  # all four batches, or the first that tells
        monkeypatch.setattr(module, "LARGEST", largest)
        kept, _ = pair(Classes(3), data)
        assert isinstance(kept.teacher, Counted) and kept.teacher.asked == asked
        assert (kept.softened is None) == (asked == 1) and kept.answers is None


def test_who_does_not_want_it_asks_in_every_step() -> None:
    data = samples(Classes(3))
    _, trick = pair(Classes(3), data)
    trick.cache = False
    trick.prepare(data, 16)
    assert trick.answers is None and trick.softened is None
    idle = DistillationTrick(Distillation("t", alpha=0.0), Counted(4, 3), Classes(3))
    idle.prepare(data, 16)
    assert idle.softened is None
    loss = torch.tensor(1.0)
    assert idle.edit_loss(loss, torch.zeros(2, 3), data.gather(torch.arange(2))) is loss


def test_what_is_kept_is_no_state() -> None:
    kept, _ = pair(Classes(3), samples(Classes(3)))
    assert kept.state_dict() == {}


def test_a_teacher_that_gives_something_else_is_left_to_the_step() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    trick = DistillationTrick(Distillation("t"), Two(), Classes(3))
    trick.prepare(samples(Classes(3)), 16)
    assert trick.answers is None and trick.softened is None
