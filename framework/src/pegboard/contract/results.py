"""What build functions return: splits, objectives, trackers, probes. No torch at import."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypedDict, Unpack

from .specs import DataSpec

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure
    from torch import Tensor, nn

    from ..data import Resident, Sequences


class BatchFields(TypedDict, total=False):
    """The fields of a batch, as `Batch.replace` takes them."""

    inputs: tuple[Tensor, ...]
    target: Tensor | None
    weight: Tensor | None
    rows: Tensor | None


class Batch(NamedTuple):
    """Samples that are trained on together. `model(*batch.inputs)` is the forward pass.

    `batch.replace(inputs=...)` is a batch with other inputs and the same target, weights and row numbers.
    """

    inputs: tuple[Tensor, ...]
    target: Tensor | None = None
    weight: Tensor | None = None  # (batch,) weight of each sample, None for all equal
    rows: Tensor | None = None  # (batch,) number of each sample in its split

    def replace(self, **fields: Unpack[BatchFields]) -> Batch:
        """The same batch with other fields; tensors that are not named stay those of this batch."""
        return self._replace(**fields)

    @property
    def samples(self) -> int:
        """How many samples it has: of graphs the first input does not tell."""
        return len(
            self.rows if self.rows is not None else self.inputs[0] if self.target is None else self.target
        )


# What an optimizer's record may give besides `step`: gradients of all groups, then the rate of each group.
Update = Callable[["Sequence[Tensor]", "Sequence[float | Tensor]"], None]


Columns = Mapping[str, Sequence[Any]]
# (asked, answers) -> the table of answers, as `Splits.table` says.
ToTable = Callable[[str | Columns, Mapping[str, list[Any]]], Mapping[str, list[Any]]]
# Paths -> columns of what is asked, as `Splits.read` says.
ReadFiles = Callable[[Sequence[str]], Columns | None]


class SourceLike(Protocol):
    """The least that a source has. Of one that is no `Source` a run makes one, and finds more by name."""

    def __len__(self) -> int: ...
    def gather(self, index: Tensor, /) -> Batch: ...
    def to(self, device: str, /) -> SourceLike: ...


class Source:
    """The samples of one split: `__len__`, `gather` and `to`; all else has a default.

    A wrapper around a source is a `pegboard.data.Wrapped`, which hands all of it on.
    """

    # Of samples that differ in length, (samples,) on the CPU: those of like length are drawn together.
    lengths: Tensor | None = None
    # Where samples have several sequences, (samples, sequences), of which `lengths` are the longest.
    widths: Tensor | None = None
    # Of all samples: one that has them need not be read to draw by them. With a target, no weight means that
    # all samples weigh alike.
    target: Tensor | Sequences | None = None
    weight: Tensor | None = None
    varied: bool = False  # batches differ in shape, as those of graphs
    whole: bool = False  # any samples cost as much as all, as nodes of one graph: it is evaluated at once

    def __len__(self) -> int:
        """How many samples there are."""
        raise NotImplementedError

    def gather(self, index: Tensor) -> Batch:
        """The samples with these numbers, on the device; one read, no Python for each sample."""
        raise NotImplementedError

    def to(self, device: str) -> Source:
        """The same samples on a device."""
        raise NotImplementedError

    def begin(self, order: Sequence[Tensor], workers: int, epoch: int = 0) -> None:
        """Hear which batches come, before each epoch and each evaluation; numbers are on the CPU."""

    def close(self) -> None:
        """End what `begin` began, at the end of an evaluation and of the run."""

    def padded(self, spec: DataSpec) -> Source:
        """The same samples, all as long as the spec says."""
        return self

    def channels_last(self) -> Source:
        """The same samples, images with their channels innermost in memory where they are held as tensors."""
        return self

    def targets(self) -> Tensor | None:
        """The target of all samples as a tensor, where it is known without reading the inputs."""
        return self.target  # type: ignore[return-value]  # one that holds sequences says otherwise

    @classmethod
    def picked(cls, parts: Sequence[Any], index: Tensor) -> Source | None:
        """The samples with these numbers, counted through parts of this class; None: they are read to cut."""
        return None

    @property
    def streamed(self) -> bool:
        """True if it overrides `begin`: its batches are announced, and not all listed beforehand."""
        return type(self).begin is not Source.begin

    @property
    def index_on_cpu(self) -> bool:
        """True if `gather` gets its numbers on the CPU, where lengths and shapes are known."""
        return self.varied or self.streamed or self.lengths is not None

    @property
    def resident(self) -> Resident | None:
        """The tensors that it is or is wrapped around, which steps and tricks may read by themselves."""
        return None

    @property
    def tensors(self) -> tuple[Tensor | None, ...] | None:
        """All that it holds, for a fingerprint; None where samples are read for one."""
        return None

    @property
    def nbytes(self) -> int | None:
        """Bytes on the device, of samples that may as well stay on the CPU and be copied in batches."""
        return None


@dataclass(kw_only=True)
class Splits:
    """What a data set builds: sources for each split, and what they hold."""

    spec: DataSpec
    train: Source
    val: Source | None = None
    test: Source | None = None
    # Columns of a table a person wrote -> the model's inputs, as the training data was treated. A column
    # that is not there is a KeyError of its name, or an error of the data set's own.
    encode: Callable[[Mapping[str, Sequence[Any]]], tuple[Tensor, ...]] | None = None
    columns: tuple[str, ...] = ()  # the names `encode` reads
    # Symbols (rows, length) of a target that is text -> the text of each row, up to its end.
    decode: Callable[[Tensor], list[str]] | None = None
    # The number of an input that is text, and symbols of it -> their texts in the same way.
    decode_input: Callable[[int, Tensor], list[str]] | None = None
    # Columns as for `encode` -> where an answer for every step counts, as at the first symbol of each word:
    # booleans (rows, length). None: at all steps.
    asked: Callable[[Mapping[str, Sequence[Any]]], Tensor] | None = None
    # The first input of samples -> what it was before it was scaled; pictures between 0 and 1.
    invert: Callable[[Tensor], Tensor] | None = None
    # What was asked, columns as for `encode` or the name of a split, and columns of answers, one for each
    # sample -> a table for people, as a row for each step of a forecast. None: the answers are the table.
    table: ToTable | None = None
    # Files and folders that a person names -> columns as for `encode`; None for those that every run reads
    # alike: csv and json tables, pictures, texts.
    read: ReadFiles | None = None
    # What a rule without learning answers, by its name and by split: outputs as a model's, (samples, ...).
    # The figures of a run stand beside theirs, and a run that ends behind the best of them says so.
    baselines: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    # What `encode` and `decode` need to know, as a trained tokenizer: written to the folder data/ of the run,
    # from which the record's `restore` makes them again without the data.
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)  # provenance: licence, source, statistics
    # (`about` is told when a run begins and in its plan: one line on what the samples are)
    warnings: tuple[str, ...] = ()  # what a person should know of the data before the run begins

    if TYPE_CHECKING:  # sources of any class are taken; a plan makes each a `Source`

        def __init__(
            self,
            *,
            spec: DataSpec,
            train: SourceLike,
            val: SourceLike | None = None,
            test: SourceLike | None = None,
            encode: Callable[[Mapping[str, Sequence[Any]]], tuple[Tensor, ...]] | None = None,
            columns: tuple[str, ...] = (),
            decode: Callable[[Tensor], list[str]] | None = None,
            decode_input: Callable[[int, Tensor], list[str]] | None = None,
            asked: Callable[[Mapping[str, Sequence[Any]]], Tensor] | None = None,
            invert: Callable[[Tensor], Tensor] | None = None,
            table: ToTable | None = None,
            read: ReadFiles | None = None,
            baselines: Mapping[str, Mapping[str, Tensor]] = ...,
            files: Mapping[str, bytes] = ...,
            notes: Mapping[str, Any] = ...,
            warnings: tuple[str, ...] = (),
        ) -> None: ...


class Codec(NamedTuple):
    """How a trained model's inputs are read and its answers written, as in `Splits`, without the data."""

    encode: Callable[[Mapping[str, Sequence[Any]]], tuple[Tensor, ...]]
    columns: tuple[str, ...]
    decode: Callable[[Tensor], list[str]] | None = None
    decode_input: Callable[[int, Tensor], list[str]] | None = None
    asked: Callable[[Mapping[str, Sequence[Any]]], Tensor] | None = None
    invert: Callable[[Tensor], Tensor] | None = None
    table: ToTable | None = None
    read: ReadFiles | None = None


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How the symbols of a text are chosen, one after the other.

    A model of text has a method `generate(*inputs, how: Decoding, generator=None) -> Tensor`: for inputs as
    those of `forward`, (rows, symbols) that continue or answer them, at most `how.length`, each row filled up
    with its end symbol after the first. A model of one input continues it; one that translates reads the
    first and no other.
    """

    length: int = 256  # most symbols
    temperature: float = 1.0  # divides the logits; 0 takes the likeliest symbol
    top_k: int | None = None  # only among so many of the likeliest
    top_p: float | None = None  # only among the likeliest that together reach this probability
    beams: int = 1  # texts followed at once; with more than one, nothing is drawn
    length_penalty: float = 0.0  # beams: log-probabilities are divided by the length to this power
    whole: bool = False  # go on to the whole length, whoever has ended, and so never wait for the device


class Metric(Protocol):
    """A running measurement, as in torchmetrics.

    Where samples have weights, an `update(preds, target, weight)` with a third argument of that name gets
    them, (batch,); any other gets the samples whose weight is not 0.
    """

    def update(self, preds: Tensor, target: Tensor) -> None: ...
    def compute(self) -> Tensor: ...
    def reset(self) -> None: ...
    def to(self, device: str) -> Any: ...


class Table(NamedTuple):
    """Rows for people: a confusion matrix, sample predictions."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass
class Player:
    """One loss with the parameters that it moves.

    `loss(model, batch)` gives the loss to descend and the output that tricks and metrics see. A
    player takes `steps` updates for every one of the player that takes fewest. Where it is not the target of
    the data that it learns, `target(batch)` gives what takes its place in the batch, for tricks and the loss.
    Where its loss reads no target at all, `learns` is False, and tricks on targets leave it alone.
    """

    name: str
    parameters: Sequence[tuple[str, nn.Parameter]]
    loss: Callable[[nn.Module, Batch], tuple[Tensor, Any]]
    steps: int = 1
    target: Callable[[Batch], Tensor] | None = None
    learns: bool = True


class Objective:
    """A loss with its metrics. Outputs hold their classes or features in the last axis.

    An output may be any nest of tensors that the objective itself understands. What needs more than the
    output and the target, as a loss that reads the inputs, overrides `evaluate`.
    """

    formula: str = "loss(f(x), y)"  # of the loss, in terms of f(x) and y
    monitor: tuple[str, Literal["min", "max"]] = ("loss", "min")  # what "best" means

    def loss(self, output: Any, target: Any, weight: Tensor | None = None) -> Tensor:
        """The mean loss of a batch: a scalar; `weight` (batch,) weighs samples, None weighs all alike.

        The target is a tensor, or None where the data has none.
        """
        raise NotImplementedError

    def evaluate(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Any]:
        """The mean loss of a batch, and the output that tricks and metrics see.

        What it draws in an evaluation comes from a random stream of its own, each time the same.
        """
        output = model(*batch.inputs)
        return self.loss(output, batch.target, batch.weight), output

    def look(self, splits: Splits) -> None:
        """Look at the data before a run begins; a PegboardError says why it cannot be learned."""

    def mass(self, batch: Batch) -> Tensor | float:
        """How much a batch counts in a mean over several: the sum of its weights, or its samples."""
        return batch.samples if batch.weight is None else batch.weight.sum()

    def metrics(self) -> dict[str, Metric]:
        """Fresh metrics besides the loss, each updated with (output, target) of an evaluation."""
        return {}

    def predict(self, output: Any) -> dict[str, Tensor]:
        """Columns for people: the predicted class, its probability, a value. (batch,) or (batch, k).

        None at all where an output says nothing of a sample.
        """
        return {"output": output}

    def tables(self, output: Any, target: Tensor) -> dict[str, Table]:
        """Tables that sum up an evaluation (a confusion matrix), from all outputs and targets."""
        return {}

    def players(self, model: nn.Module) -> list[Player]:
        """Who trains: by default one player with all parameters and the loss of `evaluate`."""
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        return [Player("model", named, self.evaluate)]


@dataclass(kw_only=True)
class RunInfo:
    """What a tracker is told of the run it follows."""

    folder: Path
    name: str
    id: str  # unique, and the same after a resume
    config: Mapping[str, Any]  # resolved, plain
    plan: str  # the text of `explain`
    environment: Mapping[str, Any]
    resumed: bool = False
    previous: Sequence[Mapping[str, Any]] = ()  # rows already logged, when resumed
    warn: Callable[[str], object] = warnings.warn  # shows a line to the person at the console
    group: str = ""  # id of the cross-validation that it is a fold of


class Tracker:
    """Where numbers, pictures and files go. Called outside the step, in a thread of its own.

    An exception is reported once and switches this tracker off; it never stops the run.
    """

    def start(self, run: RunInfo) -> None:
        """Before the first step."""

    def log(self, row: Mapping[str, Any]) -> None:
        """One row of metrics.jsonl, as it is written there."""

    def table(self, name: str, table: Table) -> None:
        """A table that sums up an evaluation."""

    def figure(self, name: str, path: Path) -> None:
        """A picture or page in the run folder."""

    def checkpoint(self, path: Path, aliases: Sequence[str]) -> None:
        """A checkpoint that is complete on disk; aliases are "last", "best" or both."""

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        """Once, at the end: "finished", "stopped", "interrupted" or "failed", and the last figures."""


class Probe:
    """A measurement on a trained model."""

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        """Named figures."""
        raise NotImplementedError

    def plot(self, figure: Figure) -> None:
        """Draw on an empty figure what `measure` saw last; a probe without a picture does not override it."""
        raise NotImplementedError

    @property
    def draws(self) -> bool:
        """Whether it has a picture."""
        return type(self).plot is not Probe.plot


class Reference(Probe):
    """The exact optimum of a problem, beside which a run is measured, as that of least squares."""

    formula: str = ""  # what it minimises, in terms of f(x), y and the parameters

    def solve(self, model: nn.Module, train: Batch) -> nn.Module:
        """The optimum over all training samples, as a model like the one given, which stays as it is."""
        raise NotImplementedError

    def value(self, model: nn.Module, train: Batch) -> float:
        """What it minimises, at a model."""
        raise NotImplementedError

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        """The value at the model, the least one, and how far they are apart."""
        import copy

        import torch

        model = copy.deepcopy(model).cpu().eval()
        train = splits.train.to("cpu").gather(torch.arange(len(splits.train)))
        return self.gap(model, self.solve(model, train), train)

    def gap(self, model: nn.Module, best: nn.Module, train: Batch) -> dict[str, float]:
        """The figures of `measure`, where the optimum is known."""
        objective, optimum = self.value(model, train), self.value(best, train)
        figures = {"objective": objective, "optimum": optimum, "gap": objective - optimum}
        return figures | ({"relative": (objective - optimum) / abs(optimum)} if optimum else {})
