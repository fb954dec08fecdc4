"""A plugin with small data sets of texts and pictures that a run can restore, and models that write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pegboard import (
    Classes,
    Codec,
    Context,
    Dataset,
    DataSpec,
    Decoding,
    Image,
    Model,
    Objective,
    ObjectivePart,
    PegboardError,
    Probe,
    ProbePart,
    Splits,
    Tokens,
    hookimpl,
)

ALPHABET = "_^$ab\n"  # what fills up, begins and ends a text, then its letters


@dataclass(frozen=True)
class Letters:
    """Texts in which a and b take turns, a line break after each pair."""

    pair: bool = False  # read one to write the other
    marked: bool = False  # every text begins with a symbol of its own
    keep: bool = True  # whether the run gets the alphabet
    lines: bool = True  # whether there are line breaks
    decodes: bool = True  # whether symbols can be written


def letters_spec(config: Letters) -> DataSpec:
    if config.pair:
        return DataSpec((Tokens(6, 4, 0), Tokens(6, 5, 0, 1, 2)), Tokens(6, 5, 0, 1, 2), ("read", "written"))
    tokens = Tokens(6, 8, -1, 1 if config.marked else -1)
    return DataSpec((tokens,), tokens, ("line",))


def codec(alphabet: str, config: Letters) -> Codec:
    import torch

    def encode(table: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
        texts = [str(text) for text in table["line"]]
        if wrong := [t for t in texts if set(t) - set(alphabet) or (not config.lines and "\n" in t)]:
            raise PegboardError(f"{wrong[0]!r} has other letters than {alphabet!r}")
        if not config.pair and len({len(t) for t in texts}) > 1:
            raise PegboardError("texts of several lengths")
        rows = [[alphabet.index(c) for c in text] for text in texts]
        if not config.pair:
            return (torch.tensor(rows, dtype=torch.int64).reshape(len(rows), -1),)
        filled = torch.tensor([(row + [0] * 4)[:4] for row in rows])
        return filled, torch.ones(len(rows), 1, dtype=torch.int64)

    def decode(symbols: Any) -> list[str]:
        rows = ["".join(alphabet[s] for s in row) for row in symbols.tolist()]
        return [row.partition("$")[0].replace("_", "").replace("^", "") for row in rows]

    return Codec(encode, ("line",), decode if config.decodes else None)


def build_letters(config: Letters, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    made = codec(ALPHABET, config)
    if config.pair:
        read = torch.tensor([[3, 4, 0, 0], [4, 4, 3, 0]] * 8)
        target = torch.tensor([[3, 4, 2, 0, 0], [4, 4, 3, 2, 0]] * 8)
        written = target.roll(1, 1).masked_fill(target.roll(1, 1) == 2, 0)
        written[:, 0] = 1
        source = Resident([read, written], target)
    else:
        stream = torch.tensor([3, 4, 5] * 80)
        source = Resident([stream[:-8].unfold(0, 8, 8)], stream[1:-7].unfold(0, 8, 8))
    files = {"alphabet.json": json.dumps(ALPHABET).encode()} if config.keep else {}
    return Splits(
        spec=letters_spec(config), train=source, val=source, test=source, files=files, **made._asdict()
    )


def restore_letters(config: Letters, folder: Path) -> Codec:
    return codec(json.loads((folder / "alphabet.json").read_text()), config)


@dataclass(frozen=True)
class Dots:
    """Pictures of two by two dots, dark or light; a file holds four bytes."""


DOTS = DataSpec((Image(1, 2, 2),), Classes(2, ("dark", "light")))


def build_dots(config: Dots, context: Context) -> Splits:
    import torch
    from pegboard import Resident

    def encode(table: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
        rows = [list(Path(name).read_bytes()) for name in table["dots"]]
        for name, row in zip(table["dots"], rows, strict=True):
            if len(row) != 4:
                raise PegboardError(f"{len(row)} dots\nexpected 4 of them in {name}")
        return (torch.tensor(rows, dtype=torch.float32).reshape(-1, 1, 2, 2) / 255,)

    light = torch.arange(32) % 2
    source = Resident([light.float().reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()], light)
    return Splits(spec=DOTS, train=source, test=source, encode=encode, columns=("dots",))


@dataclass(frozen=True)
class Net:
    """Has no fields."""


def build_bigram(config: Net, context: Context) -> Any:
    import torch
    from pegboard_generation import extend
    from torch import nn

    class Bigram(nn.Module):
        """The next symbol from the last."""

        def __init__(self, vocab: int) -> None:
            super().__init__()
            self.table = nn.Embedding(vocab, vocab)

        def forward(self, x: Any) -> Any:
            return self.table(x)

        def generate(self, x: Any, how: Decoding, generator: Any = None) -> Any:
            assert not torch.is_grad_enabled()
            return extend(
                lambda symbols, state: (self(symbols), state), self(x[:, -1]), (), how, generator=generator
            )

        def adopt(self, state: dict[str, Any]) -> dict[str, Any]:
            return {name.replace("lookup", "table"): value.reshape(6, 6) for name, value in state.items()}

    return Bigram(context.outputs or 0)


def build_echo(config: Net, context: Context) -> Any:
    import torch
    from torch import nn

    class Echo(nn.Module):
        """Answers with what it reads."""

        def __init__(self, vocab: int) -> None:
            super().__init__()
            self.table = nn.Embedding(vocab, vocab)

        def forward(self, x: Any, written: Any) -> Any:
            return self.table(written)

        def generate(self, x: Any, written: Any = None, *, how: Decoding, generator: Any = None) -> Any:
            end = torch.full((len(x), 1), 2)
            symbols = torch.where(x == 0, 2, x)[:, : how.length]
            return torch.cat((symbols.flip(1), end) if how.beams > 1 else (symbols, end), 1)

    return Echo(context.outputs or 0)


def build_flat(config: Net, context: Context) -> Any:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(4, context.outputs or 0))


class Symbols(Objective):
    """Cross entropy of every symbol."""

    def loss(self, output: Any, target: Any, weight: Any = None) -> Any:
        from torch.nn import functional

        return functional.cross_entropy(output.flatten(0, -2), target.flatten(), ignore_index=0)

    def predict(self, output: Any) -> dict[str, Any]:
        return {"class": output.argmax(-1), "probability": output.softmax(-1).amax(-1)}


@dataclass(frozen=True)
class Counts:
    """Counts samples, or fails."""

    factor: float = 1.0  # of the count
    fail: bool = False  # instead of measuring


class Counting(Probe):
    def __init__(self, config: Counts, context: Context) -> None:
        self.config, self.seed = config, context.seed

    def measure(self, model: Any, splits: Splits, device: Any) -> dict[str, float]:
        import torch

        if self.config.fail:
            raise ValueError("nothing to count")
        assert not model.training
        with torch.no_grad():
            for p in model.parameters():  # what a probe does to the model is its own affair
                p.zero_()
        return {"train": len(splits.train) * self.config.factor, "drawn": float(torch.rand(()))}


class Drawing(Counting):
    def plot(self, figure: Any) -> None:
        figure.add_subplot().plot([1, 2])


@hookimpl
def pegboard_datasets() -> list[Dataset[Any]]:
    return [
        Dataset("letters", Letters, build_letters, spec=letters_spec, restore=restore_letters),
        Dataset("dots", Dots, build_dots, spec=lambda config: DOTS),
    ]


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [
        Model("bigram", Net, build_bigram),
        Model("echo", Net, build_echo),
        Model("flat", Net, build_flat),
    ]


@hookimpl
def pegboard_objectives() -> list[ObjectivePart[Any]]:
    return [ObjectivePart("symbols", Net, lambda config, context: Symbols())]


@hookimpl
def pegboard_probes() -> list[ProbePart[Any]]:
    return [ProbePart("counts", Counts, Counting), ProbePart("drawing", Counts, Drawing)]
