"""The trick: a frozen teacher, and the loss that compares the student with it."""

from __future__ import annotations

from typing import Any

import torch
from pegboard import (
    Batch,
    Classes,
    DataSpec,
    Decoding,
    Labels,
    PegboardError,
    Resident,
    Series,
    Spec,
    Tokens,
    Trick,
    Values,
)
from torch import Tensor, nn

from . import Distillation
from .functional import (
    IGNORED,
    average,
    binary_divergence,
    counted,
    known_steps,
    mix_divergence,
    mix_losses,
    soft_divergence,
    soften,
    squared_distance,
)

LARGEST = 2**28  # bytes of answers that are kept


def load_teacher(reference: str, device: str) -> nn.Module:
    """The model of a run, a checkpoint or the zoo, on the device."""
    import pegboard

    teacher: nn.Module = pegboard.load(reference, device=device)
    return teacher


class DistillationTrick(Trick):
    """Mixes the teacher's soft loss into the loss of a step; with alpha 0 it does nothing at all.

    The teacher is frozen and in eval mode. It belongs to the trick and not to the model, so that
    it is in no optimizer, no checkpoint and no count of parameters. Where every sample is the same in
    every epoch it is asked once, and a step looks its answers up.
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
        self.cache = config.cache
        self.answers: Tensor | None = None  # of the teacher to every sample, where they are kept
        self.softened: tuple[Tensor, Tensor] | None = None  # or all that the loss needs of them

    def prepare(self, train: Resident, size: int) -> None:
        """Ask the teacher about all samples, where there is room for what it says."""
        if not self.cache or not self.alpha or self.teacher is None:
            return
        kept: list[Tensor] = []
        for rows in torch.split(torch.arange(len(train), device=train.inputs[0].device), size):
            answer = self._ask(train.gather(rows))
            alike = isinstance(answer, Tensor) and answer.dim() > 1 and len(answer) == len(rows)
            if not alike or answer[0].nbytes * len(train) > LARGEST:
                return  # what is wrong with it is said in the first step
            kept.append(answer)
        answers = torch.cat(kept)
        if isinstance(self.target, Classes) and answers.shape[-1] > 1 and train.weight is None:
            counts = counted(answers[..., 0], train.target, self.padding)
            if counts is None or counts.is_meta or bool(counts.all()):  # which on meta nobody knows
                self.softened = soften(answers, self.temperature)
                return
        self.answers = answers

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        if self.softened is not None and batch.rows is not None:
            p, logs = self.softened
            p, logs = p.index_select(0, batch.rows), logs.index_select(0, batch.rows)
            if getattr(output, "shape", None) != p.shape:
                self._compare(output, p)
            return mix_divergence(loss, output, p, logs, self.temperature, self.alpha)
        if not self.alpha or self.teacher is None:
            return loss
        if self.answers is not None and batch.rows is not None:
            answer = self.answers.index_select(0, batch.rows)
        else:
            answer = self._ask(batch)
        self._compare(output, answer)
        return mix_losses(loss, self._soft(output, answer, batch), self.alpha)

    def _ask(self, batch: Batch) -> Any:
        assert self.teacher is not None
        try:
            with torch.no_grad():
                return self.teacher(*batch.inputs)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError) as error:
            shapes = ", ".join(str(tuple(x.shape)) for x in batch.inputs)
            raise PegboardError(
                f"the teacher {self.name!r} cannot read the student's inputs of shape {shapes}: {error}\n"
                "Expected a teacher that was trained on the same inputs."
            ) from error

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
