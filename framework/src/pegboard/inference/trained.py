"""What a trained run is used for: measuring it on a split or with a probe, and predicting for new rows."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ..base.errors import PegboardError
from ..base.nearest import nearest
from ..config.nodes import Chosen
from ..config.one_part import insist_on_fit
from ..contract.drawing import draw_figure, plots
from ..contract.records import Context, Facts
from ..contract.results import Batch, Codec, Decoding, Objective, Probe, Source, Splits
from ..contract.specs import UNASKED, DataSpec, Tokens
from ..data import Resident, place, reading
from ..engine.evaluate import Evaluator, eval_mode, measure_rules, on_cpu, reading_batches
from ..engine.precision import choose_device, choose_precision, full_precision, rounding
from ..planning.plan import build, private_rng, read_data
from .loading import load_model, restore
from .readable import Decode, Read, worded
from .tables import Given, refuse

PIECE = 256  # pictures or texts that are in memory at a time
TRUTH = "target"  # column of what the data says
Advance = Callable[[int], None]  # told how many samples are done


def ignored(done: int) -> None:
    """Nobody wants to know."""


class Trained:
    """A trained model with the data and the objective of its run."""

    def __init__(
        self,
        ref: str | Path,
        which: str = "best",
        device: str = "auto",
        local: Sequence[str | Path] = (),
    ) -> None:
        self.ref, self.which, self.device = ref, which, choose_device(device)
        self.model, self.plan = load_model(ref, self.device, which, local=local)
        trainer = self.plan.settings.trainer
        full = full_precision(self.plan, self.model)
        self.precision = choose_precision(trainer.precision, self.device, full)
        context = Context(spec=self.plan.spec, outputs=self.plan.outputs, device=self.device, key="objective")
        self.objective: Objective = build(self.plan.objective, context)
        batches = self.plan.settings.batches
        self.batch, self.workers = batches.eval_size, batches.workers
        self._splits: Splits | None = None

    @property
    def splits(self) -> Splits:
        """The data of the run, read when it is first needed."""
        if self._splits is None:
            self._splits = read_data(self.plan.settings)
        return self._splits

    def source(self, split: str) -> Source:
        source: Source | None = getattr(self.splits, split)
        if source is None:
            there = [name for name in ("train", "val", "test") if getattr(self.splits, name) is not None]
            raise PegboardError(f"the data has no {split} split: it has {', '.join(there)}")
        return source.to(self.device)

    def evaluate(self, split: str) -> dict[str, float]:
        """Loss and metrics on a split."""
        with self.rounding():
            return self._evaluator().measure(self.model, self.source(split))

    def rules(self, split: str, failed: Callable[[str, Exception], None]) -> dict[str, dict[str, float]]:
        """The same figures of each rule without learning that the data set has, as `measure_rules`."""
        found = measure_rules(self._evaluator(), self.splits, [split], failed)
        return {name: by_split[split] for name, by_split in found.items()}

    def _evaluator(self) -> Evaluator:
        return Evaluator(
            objective=self.objective,
            precision=self.precision,
            metrics={name: m.to(self.device) for name, m in self.objective.metrics().items()},
            batch_size=self.batch,
            device=self.device,
            workers=self.workers,
            seed=self.plan.settings.seed,
        )

    def rounding(self) -> AbstractContextManager[None]:
        """Products of 32 bits are rounded as they were in training."""
        return rounding(self.precision.name == "tf32")

    def probe(
        self, chosen: Chosen, words: Sequence[str] = (), picture: Path | None = None
    ) -> dict[str, float]:
        """What a probe measures on the model and the splits, and its picture; each time the same.

        One whose own rules refuse the run is a mistake, told before it measures; `words` gave its fields.
        """
        settings = self.plan.settings
        model: Any = settings.model.entry.part
        objective: Any = self.plan.objective.entry.part
        optimizer: Any = settings.optimizer.entry.part
        tricks = tuple(sorted(c.entry.part.name for c in settings.regularizers.values()))
        known = Facts(
            spec=self.plan.spec, model=model, objective=objective, optimizer=optimizer, tricks=tricks
        )
        insist_on_fit(chosen, known, f"probe {chosen.entry.part.name!r}, which does not fit the run", words)
        seed = self.plan.settings.seed
        context = Context(
            spec=self.plan.spec, outputs=self.plan.outputs, device=self.device, seed=seed, key="probe"
        )
        probe: Probe = build(chosen, context)
        if picture is not None and not probe.draws:
            raise PegboardError(f"probe {chosen.entry.part.name!r} has no picture: leave --plot out")
        if picture is not None:
            plots()  # told before it measures, where nothing draws
        splits = replace(self.splits)
        place(splits, self.device)
        with self.rounding(), private_rng(seed, "probe"):
            figures = probe.measure(self.model, splits, torch.device(self.device))
        if picture is not None:
            title = " ".join((self.plan.settings.name, chosen.entry.part.name, *words))
            draw_figure(picture, textwrap.fill(title, 80), probe.plot)
        return figures

    @cached_property
    def codec(self) -> Codec | None:
        """How inputs are read and answers written: from the run folder, else from the data, which is read."""
        kept = restore(self.ref, self.which, self.plan.settings)
        if kept is not None:
            return kept
        splits = self.splits
        encode, columns = splits.encode, splits.columns
        if encode is None and (columns := splits.spec.columns):
            encode = splits.spec.encode
        return None if encode is None else Codec(
            encode, columns, splits.decode, splits.decode_input, splits.asked, splits.invert,
            splits.table, splits.read,
        )  # fmt: skip

    def table(
        self, asked: str | Mapping[str, Sequence[Any]], answers: Mapping[str, list[Any]]
    ) -> Mapping[str, list[Any]]:
        """Answers to a split or to the rows of a table, as the data set has them written for people."""
        to_table = self.splits.table if isinstance(asked, str) else self._reads().table
        if to_table is not None:
            return to_table(asked, answers)
        if not isinstance(asked, str):
            return answers
        known = {name: answers[name] for name in (TRUTH,) if name in answers}
        count = len(next(iter(answers.values()), ()))
        return {"row": list(range(count)), **known, **answers}

    def refuse_generator(self, given: bool) -> None:
        """Refuse a model that makes samples and answers nothing about those of the data or `given` ones."""
        part: Any = self.plan.settings.model.entry.part
        spec = self.plan.spec
        first = spec.inputs[0] if spec.inputs else None
        if (
            isinstance(first, Tokens)
            and isinstance(spec.target, Tokens)
            and not self.translates
            and not given
            and hasattr(self.model, "generate")
            and spec.target.vocab == first.vocab
        ):
            raise PegboardError(
                f"model {part.name!r} of {self.ref} goes on with a text, and answers nothing about one\n"
                f"what it writes: pegboard sample {self.ref} --prompt TEXT\n"
                f"how likely it finds the data: pegboard eval {self.ref}"
            )
        compares = spec.target is not None and type(self.objective).loss is not Objective.loss
        if part.samples and not compares and not hasattr(self.model, "encode"):
            raise PegboardError(
                f"model {part.name!r} of {self.ref} generates samples, and answers nothing about given ones\n"
                f"what it generates: pegboard sample {self.ref}"
            )

    @property
    def translates(self) -> bool:
        """Whether it answers a text with a text."""
        spec = self.plan.spec
        two = len(spec.inputs) == 2 and isinstance(spec.target, Tokens)
        return two and hasattr(self.model, "generate")

    @property
    def longest(self) -> int:
        """Most symbols of an answer that is a text: as many as the longest of the data has."""
        return getattr(self.plan.spec.target, "length", None) or Decoding.length

    def predict(
        self,
        source: Source,
        how: Decoding | None = None,
        advance: Advance = ignored,
        truth: bool = False,
    ) -> dict[str, list[Any]]:
        """Columns for people, a value for each sample; `how` says how a text is answered.

        With `truth`, what the data says stands beside it under `target`, where that has a target.
        No more than the outputs of a batch is in memory at a time.
        """
        numbers = reading_batches(source, self.device, self.batch)
        found: dict[str, list[Any]] = {}
        forward = self.precision.wrap(self.model)
        stream = private_rng(self.plan.settings.seed, "evaluate", device=self.device)
        reads = reading(source, numbers, self.workers)
        with self.rounding(), stream, eval_mode(self.model), reads as batches:
            done = 0
            for batch in batches:
                if self.translates:
                    columns = self._translated(batch, how or Decoding(length=self.longest, temperature=0.0))
                else:
                    columns = self._worded(on_cpu(forward(*batch.inputs)), batch, truth)
                for key, values in columns.items():
                    found.setdefault(key, []).extend(values)
                done += batch.samples
                advance(done)
        if source.lengths is None:
            return found
        back = torch.argsort(torch.cat(list(numbers))).tolist()
        return {key: [values[i] for i in back] for key, values in found.items()}

    def _worded(self, output: Any, batch: Batch, truth: bool) -> dict[str, list[Any]]:
        """What an output says, in words."""
        said = self.objective.predict(output)
        if not said:
            raise PegboardError(self._silent())
        spec, target = self.plan.spec, batch.target
        if truth and target is not None:
            said = {TRUTH: target.cpu(), **said}
        asked = None if spec.target is None or target is None else spec.target.steps_asked(target)
        decode, read = self._texts()
        return worded(said, batch.inputs, spec, decode, read, asked)

    def _silent(self) -> str:
        settings, part = self.plan.settings, self.plan.objective.entry.part
        model: Any = settings.model.entry.part
        hint = "\nwhat it generates: pegboard sample" if model.samples else ""
        return f"objective {part.name!r} of {self.ref} says nothing of a single sample{hint}"

    def _texts(self) -> tuple[Decode | None, Read | None]:
        """What makes texts of symbols of the target and of the inputs, where the target is text."""
        target = self.plan.spec.target
        codec = self.codec if target is not None and target.decoded else None
        return (None, None) if codec is None else (codec.decode, codec.decode_input)

    def _translated(self, batch: Batch, how: Decoding) -> dict[str, list[Any]]:
        """What is read, where the data tells, its translation, and that of the data where there is one."""
        generate: Any = self.model.generate
        columns, (decode, _) = {"class": generate(*batch.inputs, how=how)}, self._texts()
        if batch.target is not None:
            columns["target"] = batch.target
        spec = DataSpec((), self.plan.spec.target)
        found = {"translation": [], **worded(columns, (), spec, decode)}
        found["translation"] = found.pop("class")
        read = self._splits.decode_input if self._splits is not None else None
        return found if read is None else {"source": read(0, batch.inputs[0]), **found}

    def column(self, kind: str) -> str:
        """The only column that the model's inputs come from, where its cells are files of this kind."""
        spec, codec = self.plan.spec, self._reads()
        if len(codec.columns) == 1 and spec.inputs and spec.inputs[0].file_kind == kind:
            return codec.columns[0]
        shown = ", ".join(codec.columns[:8]) + (", ..." if len(codec.columns) > 8 else "")
        raise PegboardError(
            f"the model reads {', '.join(map(str, spec.inputs))}, from the columns {shown or 'of its data'}: "
            f"no {kind} alone\nexpected .csv, .json or .jsonl with these columns: --input rows.csv"
        )

    def _reads(self) -> Codec:
        if self.codec is None:
            raise PegboardError(f"data set {self.plan.settings.data.entry.part.name!r} cannot read tables")
        return self.codec

    def answer(
        self, given: Given, kind: str, how: Decoding | None = None, advance: Advance = ignored
    ) -> dict[str, list[Any]]:
        """The table of answers to pictures or texts; all that cannot be read are told in one message."""
        column = self.column(kind)
        found: dict[str, list[Any]] = {}
        wrong: list[str] = []
        for start in range(0, len(given.values), PIECE):
            piece = given.values[start : start + PIECE]
            try:
                parts = [self._source({column: piece})]
            except PegboardError:  # one of them is wrong, or they do not go together
                parts = []
                for name, value in zip(given.names[start:], piece, strict=False):
                    try:
                        parts.append(self._source({column: [value]}))
                    except PegboardError as error:
                        wrong.append(f"{name}: {str(error).splitlines()[0]}")
            for part in parts if not wrong else ():
                answers = self.predict(part, how)
                for key, values in answers.items():
                    found.setdefault(key, []).extend(values)
            advance(start + len(piece))
        refuse(wrong, len(given.values))
        return {**given.columns, **found}

    def read(self, paths: Sequence[str]) -> Mapping[str, Sequence[Any]] | None:
        """The columns of files that the data set reads itself; None for what every run reads alike."""
        reads = None if self.codec is None else self.codec.read
        return None if reads is None else reads(paths)

    def encode(self, columns: Mapping[str, Sequence[Any]], where: str) -> Source:
        """Rows that a person wrote as a source, treated as the training data was."""
        try:
            return self._source(columns)
        except KeyError as error:
            name = str(error.args[0])
            near = nearest(name, columns)
            raise PegboardError(
                f"{where} lacks the column {name!r}; it has {', '.join(list(columns)[:8])}"
                + (f"; did you mean {near[0]!r}?" if near else "")
            ) from None

    def _source(self, columns: Mapping[str, Sequence[Any]]) -> Source:
        """Rows with a target that says where an answer is asked, if the data set tells."""
        codec = self._reads()
        inputs = [x.to(self.device) for x in codec.encode(columns)]
        if codec.asked is None:
            return Resident(inputs)
        return Resident(inputs, torch.where(codec.asked(columns).to(self.device), 0, UNASKED))
