"""The trick: a frozen teacher, and the loss that compares the student with it."""

from __future__ import annotations

from typing import Any

import torch
from pegboard import Batch, DataSpec, Decoding, Labels, PegboardError, Series, Spec, Tokens, Trick, Values
from torch import Tensor, nn

from . import Distillation
from .functional import (
    IGNORED,
    average,
    binary_divergence,
    counted,
    known_steps,
    mix_losses,
    soft_divergence,
    squared_distance,
)


def load_teacher(reference: str, device: str) -> nn.Module:
    """The model of a run, a checkpoint or the zoo, on the device."""
    import pegboard

    teacher: nn.Module = pegboard.load(reference, device=device)
    return teacher


class DistillationTrick(Trick):
    """Mixes the teacher's soft loss into the loss of a step; with alpha 0 it does nothing at all.

    The teacher is frozen and in eval mode. It belongs to the trick and not to the model, so that
    it is in no optimizer, no checkpoint and no count of parameters.
    """

    def __init__(
        self,
        config: Distillation,
        teacher: nn.Module | None,
        target: Spec | None = None,
        outputs: int | None = None,
    ) -> None:
        if config.alpha and teacher is None:
            raise PegboardError("distillation needs a teacher unless alpha is 0, and was built without one.")
        self.alpha, self.temperature, self.name = config.alpha, config.temperature, config.teacher
        self.target, self.binary = target, isinstance(target, Labels) or outputs == 1
        # A padding of -1 says that nothing is padded.
        self.padding = target.padding if isinstance(target, Tokens) and target.padding >= 0 else IGNORED
        self.teacher = None if teacher is None else teacher.requires_grad_(False).eval()

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        if not self.alpha or self.teacher is None:
            return loss
        try:
            with torch.no_grad():
                answer = self.teacher(*batch.inputs)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError) as error:
            shapes = ", ".join(str(tuple(x.shape)) for x in batch.inputs)
            raise PegboardError(
                f"the teacher {self.name!r} cannot read the student's inputs of shape {shapes}: {error}\n"
                "Expected a teacher that was trained on the same inputs."
            ) from error
        self._compare(output, answer)
        return mix_losses(loss, self._soft(output, answer, batch), self.alpha)

    def _soft(self, output: Tensor, answer: Tensor, batch: Batch) -> Tensor:
        """The mean soft loss: over the same places, and with the same weights, as that of the labels."""
        if isinstance(self.target, Values | Series):
            losses = squared_distance(output, answer)
            return average(losses, batch.weight, known_steps(batch.target))
        scale = self.temperature**2
        if isinstance(self.target, Labels):
            return scale * average(binary_divergence(output, answer, self.temperature), batch.weight)
        # Two classes may share one logit, which is a yes or no.
        divergence = binary_divergence if output.shape[-1] == 1 else soft_divergence
        losses = divergence(output, answer, self.temperature)
        return scale * average(losses, batch.weight, counted(losses, batch.target, self.padding))

    def _compare(self, output: Any, answer: Any) -> None:
        for who, given in (("student", output), ("teacher", answer)):
            if not isinstance(given, Tensor) or given.dim() < 2:
                found = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
                raise PegboardError(
                    f"distillation compares one tensor (batch, ..., outputs) of each model, and the {who} "
                    f"gave {found}."
                )
        if output.shape != answer.shape:
            raise PegboardError(
                f"the teacher {self.name!r} does not fit the student: for the same batch it gives outputs of "
                f"shape {tuple(answer.shape)}, the student {tuple(output.shape)}.\n"
                "Expected the same shape: take a teacher that was trained for the same target."
            )

    def formula(self, loss: str) -> str:
        if not self.alpha:
            return loss
        a, t = f"{self.alpha:g}", f"{self.temperature:g}"
        if isinstance(self.target, Values | Series):
            soft = "mean((teacher(x) - f(x))^2)"
        else:
            squash = "sigmoid" if self.binary else "softmax"
            soft = f"{t}^2 * KL({squash}(teacher(x)/{t}) || {squash}(f(x)/{t}))"
        return f"(1-{a}) * {_grouped(loss)} + {a} * {soft}"


class SequenceTrick(Trick):
    """Trains on texts that the teacher writes itself: of a share `alpha` of the samples, drawn anew.

    The teacher's likeliest text takes the place of the target, and of what the model reads of it.
    """

    def __init__(
        self, config: Distillation, teacher: nn.Module | None, spec: DataSpec, generator: torch.Generator
    ) -> None:
        if config.alpha and teacher is None:
            raise PegboardError("distillation needs a teacher unless alpha is 0, and was built without one.")
        if teacher is not None and not hasattr(teacher, "generate"):
            raise PegboardError(
                f"the teacher {config.teacher!r} is a {type(teacher).__name__}, which writes no texts.\n"
                "Name a teacher that translates, or take level: output"
            )
        assert isinstance(spec.target, Tokens)
        self.alpha, self.spec, self.generator = config.alpha, spec.target, generator
        self.teacher = None if teacher is None else teacher.requires_grad_(False).eval()

    def edit_batch(self, batch: Batch) -> Batch:
        if not self.alpha or self.teacher is None:
            return batch
        source, read, *rest = batch.inputs
        assert batch.target is not None
        how = Decoding(length=read.shape[1], temperature=0.0, whole=True)
        with torch.no_grad():
            written: Tensor = self.teacher.generate(source, how=how)  # type: ignore[operator]
        if self.spec.padding >= 0:  # after the end symbol nothing counts
            written = written.masked_fill((written == self.spec.end).cumsum(1) > 1, self.spec.padding)
        shifted = torch.cat((read[:, :1], written[:, :-1]), 1)
        if self.alpha < 1:
            chance = torch.rand(len(read), 1, generator=self.generator, device=self.generator.device)
            taken = (chance < self.alpha).to(read.device)
            written, shifted = torch.where(taken, written, batch.target), torch.where(taken, shifted, read)
        return batch._replace(inputs=(source, shifted, *rest), target=written)

    def formula(self, loss: str) -> str:
        if not self.alpha:
            return loss
        return f"{loss}, y the teacher's text for a share of {self.alpha:g}"


def _grouped(loss: str) -> str:
    """The formula in parentheses where it is a sum."""
    depth = 0
    for place, sign in enumerate(loss):
        depth += (sign in "([") - (sign in ")]")
        if depth == 0 and place and sign in "+-":
            return f"({loss})"
    return loss
