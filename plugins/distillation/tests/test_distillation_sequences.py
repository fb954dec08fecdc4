"""A teacher whose own texts are learnt, and real series with steps that are not known."""

from __future__ import annotations

import pytest
import torch
from pegboard import Batch, DataSpec, Decoding, Facts, PegboardError, Series, Tokens
from pegboard_distillation import Distillation, check
from pegboard_distillation.trick import DistillationTrick, SequenceTrick
from torch import Tensor, nn

PAD, BEGIN, END = 0, 1, 2
TEXT = Tokens(9, 5, PAD, BEGIN, END)
PAIR = DataSpec((TEXT, TEXT), TEXT)
WRITTEN = torch.tensor([[5, 6, END, END, END], [7, 7, 7, 7, 7]])  # the second never ends


class Writer(nn.Module):
    """A teacher that writes what it is told to."""

    def generate(self, source: Tensor, *, how: Decoding, generator: torch.Generator | None = None) -> Tensor:
        assert how.whole and how.temperature == 0 and how.beams == 1
        return WRITTEN[source[:, 0] - 3, : how.length]


def batch(first: tuple[int, ...] = (3, 4)) -> Batch:
    source = torch.tensor([[f, END, PAD] for f in first])
    read = torch.tensor([[BEGIN, 8, 8, PAD, PAD]] * len(first))
    target = torch.tensor([[8, 8, END, PAD, PAD]] * len(first))
    return Batch((source, read), target)


def trick(alpha: float) -> SequenceTrick:
    config = Distillation("t", alpha=alpha, level="sequence")
    return SequenceTrick(config, Writer() if alpha else None, PAIR, torch.Generator().manual_seed(0))


def test_the_teachers_texts_take_the_place_of_the_targets() -> None:
    edited = trick(1.0).edit_batch(batch())
    assert edited.target is not None
    assert edited.target.tolist() == [[5, 6, END, PAD, PAD], [7, 7, 7, 7, 7]]
    assert edited.inputs[1].tolist() == [[BEGIN, 5, 6, END, PAD], [BEGIN, 7, 7, 7, 7]]
    assert torch.equal(edited.inputs[0], batch().inputs[0])


def test_a_share_alpha_of_the_samples_is_the_teachers() -> None:
    many = batch((3,) * 4000)
    edited = trick(0.25).edit_batch(many)
    assert edited.target is not None and many.target is not None
    theirs = (edited.target[:, 0] == 5).float()
    assert abs(float(theirs.mean()) - 0.25) < 0.03
    kept = edited.target[:, 0] != 5
    assert torch.equal(edited.target[kept], many.target[kept])
    assert torch.equal(edited.inputs[1][kept], many.inputs[1][kept])
    assert torch.equal(edited.inputs[1][~kept][:, 1], torch.full((int(theirs.sum()),), 5))


def test_alpha_zero_hands_back_the_very_same_batch() -> None:
    same = batch()
    assert trick(0.0).edit_batch(same) is same


def test_what_cannot_write_is_refused() -> None:
    with pytest.raises(PegboardError, match="writes no texts"):
        SequenceTrick(Distillation("t", level="sequence"), nn.Linear(1, 1), PAIR, torch.Generator())
    one = DataSpec((TEXT,), TEXT)
    (problem,) = check(Distillation("zoo:x", level="sequence"), Facts(spec=one))
    assert problem.field == "level" and "translation" in problem.expected
    assert not list(check(Distillation("zoo:x", level="sequence"), Facts(spec=PAIR)))


class Add(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.nan_to_num() + 2.0


def test_steps_of_a_series_that_are_not_known_do_not_count() -> None:
    x = torch.zeros(2, 3, 2)
    target = torch.ones(2, 3, 2)
    target[1, 1:] = torch.nan
    output = torch.zeros(2, 3, 2)
    output[1, 1:] = 100.0  # far off, where nobody looks
    mixed = DistillationTrick(Distillation("t", alpha=1.0), Add(), Series(3, 2, True))
    loss = mixed.edit_loss(torch.tensor(0.0), output, Batch((x,), target))
    torch.testing.assert_close(loss, torch.tensor(4.0))
