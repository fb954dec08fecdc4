"""What a data set says of its inputs and targets, as types; no torch at import.

A size that is known only once the data is read is None. A plugin may define specs of its own by subclassing
`Spec` as a frozen dataclass in its light module: files of a run then name them with its distribution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from ..base.errors import PegboardError

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from .results import Batch


_UNSHOWN = ("names", "begin", "end", "padded", "shift", "scale")  # fields that tell a person little
UNASKED = -100  # in a target of symbols, where nothing is asked


class NoExample(PegboardError, NotImplementedError):
    """A spec that does not override `example`."""


class NoEncoding(PegboardError, NotImplementedError):
    """A spec that does not override `encode`."""


class NoPicture(PegboardError, NotImplementedError):
    """A spec that does not override `draw`."""


@dataclass(frozen=True)
class Spec:
    """One input or target of a sample."""

    counted: ClassVar[bool] = True  # the first axis counts samples; that of nodes of graphs does not
    most_drawn: ClassVar[int] = 40  # samples of a split that are read for a picture
    scattered: ClassVar[bool] = False  # a sample is a point: many are drawn, of all splits
    stepwise: ClassVar[bool] = False  # as a target, it says something of every step of an input
    decoded: ClassVar[bool] = False  # `describe` needs the functions by which the data set writes texts
    file_kind: ClassVar[str] = ""  # "picture", "text": of the files that `predict` takes one by one
    file_suffixes: ClassVar[tuple[str, ...]] = ()  # of those that are looked for in a folder

    @property
    def size(self) -> int | None:
        """How many real numbers a model gives to predict it, or that it has as a flat input."""
        return None

    def example(self, rows: int, device: str) -> torch.Tensor:
        """A tensor of the right shape and type for `rows` samples (any valid values).

        Where a spec has none, what needs no data for the core's specs reads the data.
        """
        raise NoExample(
            f"the spec {type(self).__name__} gives no example: define example(rows, device) in it"
        )

    @classmethod
    def forms(cls) -> Mapping[str, DataSpec]:
        """Small data with such a spec, by names; the kit tries parts with it, on what `example` gives."""
        return {}

    def pieces(self, inputs: Sequence[torch.Tensor], rows: Sequence[int]) -> list[torch.Tensor] | None:
        """Of a batch that is no stack of samples: what it holds of each of these; None: not told here."""
        return None

    @classmethod
    def draws(cls) -> bool:
        """Whether samples of this kind are drawn."""
        return cls.draw is not Spec.draw

    @property
    def drawn_numbers(self) -> int:
        """How many real numbers of a sample are read for a picture, so that large ones are fewer."""
        return self.size or 1

    def draw(self, figure: Figure, batches: Mapping[str, Batch], data: DataSpec) -> bool | None:
        """Draw samples of the splits, on the CPU, of which this is the first input.

        True where all inputs are in the picture; else a line above it says which one is.
        """
        raise NoPicture(f"{type(self).__name__} has no picture: define draw(figure, batches, data) in it")

    @classmethod
    def draws_samples(cls) -> bool:
        """Whether samples of a model have a picture."""
        return cls.draws() or cls.draw_samples is not Spec.draw_samples or cls.raster is not Spec.raster

    def draw_samples(self, figure: Figure, x: torch.Tensor, real: torch.Tensor | None = None) -> None:
        """Draw samples of a model, beside those of the data where samples are points; as data is drawn."""
        from .results import Batch

        given = {} if real is None else {"train": Batch((real,))}
        self.draw(figure, {**given, "samples": Batch((x,))}, DataSpec((self,)))

    def raster(
        self, x: torch.Tensor, columns: int | None = None, ends: tuple[float, float] | None = None
    ) -> torch.Tensor | None:
        """Samples of a model as one picture of bytes (height, width, 3); None where a figure has to be drawn.

        `columns` samples stand side by side. `ends` are the values that are black and white.
        """
        return None

    # In tables that a person gives, and in those of predictions.
    @classmethod
    def encodes(cls) -> bool:
        """Whether cells of a table are read by the spec itself."""
        return cls.encode is not Spec.encode

    def encode(self, cells: Sequence[Any]) -> torch.Tensor:
        """The input of samples that a person gives, a cell of a table or the path of a file for each.

        It is asked where the data set has no `encode`, which knows how the data was scaled.
        """
        raise NoEncoding(f"{type(self).__name__} reads no cells: define encode(cells) in it")

    def describe(self, columns: Mapping[str, Sequence[torch.Tensor]], **known: Any) -> dict[str, list[Any]]:
        """Columns of a table for people: what an objective predicts of this target, a value for each sample.

        Under "target" is what the data says. `known` are `inputs`, and, where the data set gives them and a
        spec is `decoded`, its `decode` and `decode_input`; there may be more later.
        """
        names = getattr(self, "names", ())
        return {
            key: [readable(value, names if key in ("class", "target") else ()) for value in values]
            for key, values in columns.items()
        }

    def lengths_of(self, x: torch.Tensor) -> torch.Tensor | None:
        """How many steps each sample of such an input has, (batch,); None where all have the same."""
        return None

    def steps_asked(self, target: torch.Tensor) -> torch.Tensor | None:
        """At which steps the target says something, (batch, length); None for at all."""
        return None

    # What it says as a target in the pictures of inputs.
    def name_of(self, place: int) -> str:
        """The name of one of several classes, labels or values."""
        return _name(self, "value", place)

    def caption(self, target: torch.Tensor) -> list[str]:
        """A few words above the picture of each sample."""
        return [""] * len(target)

    def sort_out(self, targets: Sequence[torch.Tensor]) -> tuple[list[str], list[torch.Tensor]] | None:
        """Names of classes, and of each sample of each split the number (batch,) of its own."""
        return None

    def grade(self, target: torch.Tensor) -> torch.Tensor | None:
        """Numbers (batch, values) by which samples are coloured or placed."""
        return None

    def output_shape(self, outputs: int) -> tuple[int, ...]:
        """The shape of what a model gives for a sample to predict it, of `outputs` numbers at a place."""
        return (outputs,)

    def __str__(self) -> str:
        told = (getattr(self, f.name) for f in fields(self) if f.name not in _UNSHOWN)
        shown = ("?" if v is None else str(v) for v in told if v != -1)  # -1 is a symbol that there is not
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def known(self) -> bool:
        """Whether every size is known."""
        return all(getattr(self, f.name) is not None for f in fields(self))


def _dense(spec: Spec, rows: int, device: str, *shape: int | None) -> torch.Tensor:
    import torch

    if None in shape:
        raise ValueError(f"{spec} has sizes that are known only once the data is read")
    return torch.zeros(rows, *(s for s in shape if s is not None), device=device)


def readable(value: torch.Tensor, names: Sequence[str] = ()) -> Any:
    """One cell of a table: a number, the name of a class, or a list."""
    plain = value.tolist()
    if isinstance(plain, list):
        return plain[0] if len(plain) == 1 else plain
    return names[plain] if names and isinstance(plain, int) and 0 <= plain < len(names) else plain


def _name(spec: Spec, kind: str, place: int) -> str:
    names: tuple[str, ...] = getattr(spec, "names", ())
    return names[place] if place < len(names) else f"{kind} {place}"


def _product(*sizes: int | None) -> int | None:
    return None if None in sizes else math.prod(s for s in sizes if s is not None)


@dataclass(frozen=True)
class Vector(Spec):
    """Real features: a float tensor (batch, features)."""

    most_drawn: ClassVar[int] = 5000
    scattered: ClassVar[bool] = True

    features: int | None = None

    @property
    def size(self) -> int | None:
        return self.features

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device, self.features)

    def draw(self, figure: Figure, batches: Mapping[str, Batch], data: DataSpec) -> bool | None:
        from .drawing import plots

        plots().draw_vectors(figure, plots().points_of(batches), data.target or Spec())
        return None


@dataclass(frozen=True)
class Image(Spec):
    """A picture: a float tensor (batch, channels, height, width)."""

    file_kind: ClassVar[str] = "picture"
    file_suffixes: ClassVar[tuple[str, ...]] = tuple(
        ".png .jpg .jpeg .gif .bmp .webp .tif .tiff .ppm .pgm .pbm".split()
    )

    channels: int | None = None
    height: int | None = None
    width: int | None = None

    @property
    def size(self) -> int | None:
        return _product(self.channels, self.height, self.width)

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device, self.channels, self.height, self.width)

    def draw(self, figure: Figure, batches: Mapping[str, Batch], data: DataSpec) -> bool | None:
        from .drawing import plots

        plots().draw_images(figure, plots().points_of(batches), data.target or Spec())
        return None

    def raster(
        self, x: torch.Tensor, columns: int | None = None, ends: tuple[float, float] | None = None
    ) -> torch.Tensor | None:
        from .drawing import plots

        pixels: torch.Tensor = plots().raster(x, columns, ends)
        return pixels


@dataclass(frozen=True)
class Voxels(Spec):
    """A solid: a float tensor (batch, channels, depth, height, width)."""

    channels: int | None = None
    depth: int | None = None
    height: int | None = None
    width: int | None = None

    @property
    def size(self) -> int | None:
        return _product(self.channels, self.depth, self.height, self.width)

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device, self.channels, self.depth, self.height, self.width)

    def draw(self, figure: Figure, batches: Mapping[str, Batch], data: DataSpec) -> bool | None:
        from .drawing import plots

        plots().draw_solids(figure, plots().points_of(batches), data.target or Spec())
        return None


@dataclass(frozen=True)
class Views(Spec):
    """Several pictures of one thing: a float tensor (batch, views, channels, height, width)."""

    views: int | None = None
    channels: int | None = None
    height: int | None = None
    width: int | None = None

    @property
    def size(self) -> int | None:
        return _product(self.views, self.channels, self.height, self.width)

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device, self.views, self.channels, self.height, self.width)

    def draw(self, figure: Figure, batches: Mapping[str, Batch], data: DataSpec) -> bool | None:
        from .drawing import plots

        plots().draw_views(figure, plots().points_of(batches), data.target or Spec())
        return None


@dataclass(frozen=True)
class Series(Spec):
    """A sequence of real vectors: a float tensor (batch, length, features).

    Where `padded`, samples may be shorter: the steps after their end are nan in every feature. As a target
    it is a vector for every step, and one that is nan does not count.
    """

    stepwise: ClassVar[bool] = True
    most_drawn: ClassVar[int] = 5000

    length: int | None = None
    features: int | None = None
    padded: bool = False  # some samples end before the last step

    @property
    def size(self) -> int | None:
        return _product(self.length, self.features)

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device, self.length, self.features)

    def draw(self, figure: Figure, batches: Mapping[str, Batch], data: DataSpec) -> bool | None:
        from .drawing import plots

        points, dashed = plots().points_of(batches), isinstance(data.target, Series)
        plots().draw_series(figure, points, data.target or Spec(), dashed)
        return None

    def lengths_of(self, x: torch.Tensor) -> torch.Tensor | None:
        return (~x.isnan().all(-1)).sum(1) if self.padded else None

    def output_shape(self, outputs: int) -> tuple[int, ...]:
        return (outputs,) if self.length is None or self.features is None else (self.length, self.features)


@dataclass(frozen=True)
class Choices(Spec):
    """As a target, one of several at each of several places: int64 (batch, places), -100 where none is asked.

    A model predicts it by a logit for each of them, in the last axis. What is true of all such targets, as of
    symbols, tricks need not know of each.
    """

    @property
    def choices(self) -> int | None:
        """Among how many."""
        return self.size


@dataclass(frozen=True)
class Tokens(Choices):
    """A sequence of symbols: an int64 tensor (batch, length); `padding` marks the places after the end."""

    stepwise: ClassVar[bool] = True
    decoded: ClassVar[bool] = True
    file_kind: ClassVar[str] = "text"
    file_suffixes: ClassVar[tuple[str, ...]] = (".txt", ".text", ".md")
    most_drawn: ClassVar[int] = 5000

    vocab: int | None = None
    length: int | None = None  # of the longest sample; a batch of shorter ones may be shorter
    padding: int = -1  # the symbol that pads; -1 where nothing is padded
    begin: int = -1  # the symbol that every sample begins with; -1 where there is none
    end: int = -1  # the symbol that ends a text; -1 where there is none

    @property
    def size(self) -> int | None:
        return self.vocab

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device, self.length).long()

    @property
    def drawn_numbers(self) -> int:
        return 0

    def draw(self, figure: Figure, batches: Mapping[str, Batch], data: DataSpec) -> bool | None:
        from .drawing import plots

        inputs = next(iter(batches.values())).inputs
        texts = [entry for entry in data.inputs if isinstance(entry, Tokens)]
        if len(texts) < len(data.inputs):
            plots().draw_symbols(figure, inputs[:1], [self.padding], ())
            return None
        plots().draw_symbols(figure, inputs, [text.padding for text in texts], data.names)
        return True

    def lengths_of(self, x: torch.Tensor) -> torch.Tensor | None:
        return (x != self.padding).sum(1) if self.padding >= 0 else None

    def steps_asked(self, target: torch.Tensor) -> torch.Tensor | None:
        return None if target.is_floating_point() else target != UNASKED

    def describe(self, columns: Mapping[str, Sequence[torch.Tensor]], **known: Any) -> dict[str, list[Any]]:
        found = super().describe(columns, **known)
        decode: Any = known.get("decode")
        for key, cells in columns.items() if decode is not None else ():
            if key in ("class", "target") and all(cell.dim() == 1 for cell in cells):
                found[key] = [decode(cell[cell >= 0].unsqueeze(0))[0] for cell in cells]
        return found

    def output_shape(self, outputs: int) -> tuple[int, ...]:
        return (outputs,) if self.length is None else (self.length, outputs)


@dataclass(frozen=True)
class Points(Spec):
    """Points of a set or cloud, in no order: a float tensor (batch, points, features).

    Where `padded`, sets may be smaller: the points that are not there are nan in every feature.
    """

    count: int | None = None  # of the largest set
    features: int | None = None
    padded: bool = False  # some sets have fewer points

    @property
    def size(self) -> int | None:
        return _product(self.count, self.features)

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device, self.count, self.features)


@dataclass(frozen=True)
class Classes(Spec):
    """One of `count` classes: an int64 tensor (batch,), or a float distribution (batch, count)."""

    count: int | None = None
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        return self.count

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device).long()

    def name_of(self, place: int) -> str:
        return _name(self, "class", place)

    def caption(self, target: torch.Tensor) -> list[str]:
        names, (numbers,) = self.sort_out([target])
        return [names[number] for number in numbers.tolist()]

    def sort_out(self, targets: Sequence[torch.Tensor]) -> tuple[list[str], list[torch.Tensor]]:
        numbers = [
            t.argmax(-1) if t.is_floating_point() and t.dim() > 1 else t.long().flatten() for t in targets
        ]
        count = self.count or max(int(n.max()) for n in numbers) + 1
        return [self.name_of(i) for i in range(count)], numbers


@dataclass(frozen=True)
class Labels(Spec):
    """Any subset of `count` labels: a float tensor of zeros and ones (batch, count)."""

    count: int | None = None
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        return self.count

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device, self.count)

    def name_of(self, place: int) -> str:
        return _name(self, "label", place)

    def caption(self, target: torch.Tensor) -> list[str]:
        names, (numbers,) = self.sort_out([target])
        return [names[number] for number in numbers.tolist()]

    def sort_out(self, targets: Sequence[torch.Tensor]) -> tuple[list[str], list[torch.Tensor]]:
        """A set of labels is a class."""
        import torch

        rows = [[tuple(row.nonzero().flatten().tolist()) for row in t] for t in targets]
        found = sorted({row for split in rows for row in split}, key=lambda row: (len(row), row))
        place = {row: i for i, row in enumerate(found)}
        names = [" + ".join(self.name_of(i) for i in row) or "none" for row in found]
        return names, [torch.tensor([place[row] for row in split]) for split in rows]


@dataclass(frozen=True)
class Values(Spec):
    """Real numbers to predict: a float tensor (batch, features).

    Where they were scaled, `shift` and `scale` of each feature say what they were: metrics and predictions
    are in the units of the data, and losses in those of the tensor.
    """

    features: int | None = None
    names: tuple[str, ...] = ()
    shift: tuple[float, ...] = ()  # of each feature, of none where the numbers are as in the data
    scale: tuple[float, ...] = ()

    def invert(self, values: torch.Tensor) -> torch.Tensor:
        """Numbers (..., features) in the units of the data."""
        if not self.scale:
            return values
        import torch

        shift, scale = (
            torch.tensor(one, dtype=values.dtype, device=values.device) for one in (self.shift, self.scale)
        )
        return values * scale + shift

    @property
    def size(self) -> int | None:
        return self.features

    def example(self, rows: int, device: str) -> torch.Tensor:
        return _dense(self, rows, device, self.features)

    def caption(self, target: torch.Tensor) -> list[str]:
        """None for several values."""
        if self.size not in (None, 1):
            return [""] * len(target)
        return [f"{value:.3g}" for value in self.grade(target)[:, 0].tolist()]

    def grade(self, target: torch.Tensor) -> torch.Tensor:
        return target.reshape(len(target), -1)

    def describe(self, columns: Mapping[str, Sequence[torch.Tensor]], **known: Any) -> dict[str, list[Any]]:
        """The target in the units of the data, as predictions are."""
        import torch

        given = {
            key: [*self.invert(torch.stack([*cells]))] if key == "target" and cells else cells
            for key, cells in columns.items()
        }
        return super().describe(given, **known)


@dataclass(frozen=True)
class DataSpec:
    """What every sample of a data set holds: inputs in the order the model takes them, and a target."""

    inputs: tuple[Spec, ...] = ()
    target: Spec | None = None
    names: tuple[str, ...] = field(default=())  # names of the inputs, for people

    def encode(self, columns: Mapping[str, Sequence[Any]]) -> tuple[torch.Tensor, ...]:
        """Inputs of samples from the columns of a table, each read by its spec."""
        return tuple(spec.encode(columns[name]) for spec, name in zip(self.inputs, self.columns, strict=True))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the inputs, or input1 and so on; none where the specs read no cells."""
        if not self.inputs or not all(spec.encodes() for spec in self.inputs):
            return ()
        numbered = tuple(f"input{i}" for i in range(1, 1 + len(self.inputs)))
        return self.names if len(self.names) == len(numbered) else numbered

    @property
    def known(self) -> bool:
        return all(s.known for s in (*self.inputs, self.target) if s is not None)

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.inputs)) or 'nothing'} -> {self.target or 'nothing'}"


SpecType = type[Spec]


def subclasses(cls: SpecType = Spec) -> list[SpecType]:
    """All classes below `cls` that there are in this process."""
    return [one for sub in cls.__subclasses__() for one in (sub, *subclasses(sub))]


def core_specs() -> dict[str, SpecType]:
    """The specs of the core by their names."""
    return {cls.__name__: cls for cls in subclasses() if cls.__module__ == __name__}


def fits(accepted: tuple[type[Spec], ...], spec: Spec | None) -> bool:
    """Whether `spec` is one of the accepted types; an empty tuple accepts all."""
    return not accepted or (spec is not None and isinstance(spec, accepted))
