"""Texts that a trained model writes: it continues what it is given, or translates it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pegboard import Codec, Decoding, PegboardError, SampleRequest, Tokens
from pegboard.base.random_keys import key_seed
from pegboard.engine.evaluate import reading_order
from pegboard.inference.readable import Decode
from pegboard.inference.sample_methods import nothing_to_sample
from pegboard.inference.tables import write_table
from pegboard.inference.trained import Trained
from torch import Tensor

BETWEEN = "-" * 20  # two texts


@dataclass(frozen=True)
class Written:
    """A text that a model wrote, with what it was given."""

    prompt: str
    text: str  # what came of it, without the prompt


def write_texts(trained: Trained, request: SampleRequest) -> Iterator[str]:
    """What `pegboard sample` prints of a model of text: the texts, or that they are in a file."""
    writer = Writer(trained, request.seed)
    if not request.prompts:
        print(f"without a prompt it begins after {writer.beginning[1]}", file=sys.stderr)
    texts = writer.write(request.prompts, request.count or 1, writer.decoding(**request.decoding))
    if request.output:
        written = list(texts)
        _save(written, Path(request.output), trained.translates)
        yield f"{len(written)} texts in {request.output}"
        return
    for place, text in enumerate(texts):
        yield from ((BETWEEN,) if place else ())
        yield _shown(text, trained.translates)


def _shown(written: Written, translated: bool) -> str:
    return written.text if translated else written.prompt + written.text


def _save(written: Sequence[Written], path: Path, translated: bool) -> None:
    if path.suffix in (".csv", ".json"):
        columns = {"prompt": [w.prompt for w in written], "text": [w.text for w in written]}
        write_table(columns, path)
    else:
        path.write_text(f"\n{BETWEEN}\n".join(_shown(w, translated) for w in written) + "\n", "utf-8")


class Writer:
    """A trained model of text, which draws by a seed; what cannot write is refused when it is made."""

    def __init__(self, trained: Trained, seed: int = 0) -> None:
        spec = trained.plan.spec
        self.trained, self.spec = trained, spec.inputs[0] if spec.inputs else None
        symbols = isinstance(self.spec, Tokens) and isinstance(spec.target, Tokens)
        if not symbols or not hasattr(trained.model, "generate"):
            raise nothing_to_sample(trained)
        self.codec, self.decode = _codec(trained)
        self.generate: Any = trained.model.generate
        self.seed = key_seed(seed, "sample")
        self.generator = torch.Generator(trained.device).manual_seed(self.seed)

    def decoding(self, **given: Any) -> Decoding:
        """How symbols are chosen, where nothing else is given: drawn, or in a translation the likeliest."""
        usual = {"length": self.trained.longest, "temperature": 0.0} if self.trained.translates else {}
        return Decoding(**{**usual, **{name: value for name, value in given.items() if value is not None}})

    def write(self, prompts: Sequence[str], count: int, how: Decoding) -> Iterator[Written]:
        """Texts one after the other, `count` for each prompt, or so many that begin by themselves."""
        if count > 1 and (how.beams > 1 or how.temperature == 0):
            why = "beams" if how.beams > 1 else "a temperature of 0"
            raise PegboardError(f"{why} leaves nothing to chance: all {count} texts would be the same")
        if "" in prompts:
            other = "" if self.trained.translates else ": without --prompt a text begins by itself"
            raise PegboardError(f"an empty prompt says nothing to go on from{other}")
        with torch.no_grad():
            for prompt in prompts:
                yield from self._answers(prompt, count, how)
            if not prompts:
                start, _ = self.beginning
                yield from (Written("", text) for text in self.decode(self._more((start,), count, how)))

    def _answers(self, prompt: str, count: int, how: Decoding) -> Iterator[Written]:
        column = self.trained.column("text")
        read = tuple(x.to(self.trained.device) for x in self.codec.encode({column: [prompt]}))
        if self.trained.translates:
            yield from (Written(prompt, text) for text in self.decode(self._more(read, count, how)))
            return
        given = self._open(read[0])
        if not given.shape[1]:
            raise PegboardError(f"nothing of the prompt {prompt!r} is a symbol of the model's vocabulary")
        (before,) = self.decode(given.cpu())
        for row in self._more((given,), count, how):
            # Together, as it is symbols before that say whether a blank is between them.
            (whole,), (alone,) = self.decode(torch.cat((given[0].cpu(), row))[None]), self.decode(row[None])
            yield Written(prompt, whole.removeprefix(before) if whole.startswith(before) else alone)

    def _more(self, inputs: Sequence[Tensor], count: int, how: Decoding) -> Tensor:
        rows = [x.expand(count, *x.shape[1:]) for x in inputs]
        with self.trained.rounding():
            more: Tensor = self.generate(*rows, how=how, generator=self.generator)
        return more.cpu()

    def _open(self, symbols: Tensor) -> Tensor:
        """A prompt (1, length) without what fills it up and what ends it: it goes on."""
        assert isinstance(self.spec, Tokens)
        row = symbols[0]
        row = row[row != self.spec.padding]
        if len(row) and int(row[-1]) == self.spec.end:
            row = row[:-1]
        return row.unsqueeze(0)

    @cached_property
    def beginning(self) -> tuple[Tensor, str]:
        """What stands before a text without a prompt, (1, 1), and what that is in words."""
        assert isinstance(self.spec, Tokens)
        if self.trained.translates:
            raise PegboardError("a model that translates needs a text: --prompt TEXT")
        for symbol, words in ((self.spec.begin, "begins a text"), (self.spec.end, "ends the text before")):
            if symbol >= 0:
                return torch.tensor([[symbol]], device=self.trained.device), f"the symbol that {words}"
        if (broken := self._line_break()) is not None:
            return broken, "a line break"
        source = self.trained.source("train")
        order = reading_order(source, self.trained.device)
        row = torch.randint(len(source), (1,), generator=torch.Generator().manual_seed(self.seed))
        return source.gather(order[row.to(order.device)]).inputs[0][:, :1], "a symbol of the training data"

    def _line_break(self) -> Tensor | None:
        try:
            (symbols, *_) = self.codec.encode({self.trained.column("text"): ["\n"]})
        except PegboardError:
            return None
        symbols = self._open(symbols)
        known = symbols.shape[1] == 1 and self.decode(symbols) == ["\n"]
        return symbols.to(self.trained.device) if known else None


def _codec(trained: Trained) -> tuple[Codec, Decode]:
    """How texts are read and written."""
    codec = trained.codec
    if codec is None or codec.decode is None:
        name = trained.plan.settings.data.entry.part.name
        raise PegboardError(
            f"data set {name!r} of {trained.ref} does not say how its symbols read as text\n"
            "expected: Splits(..., encode=..., decode=...)"
        )
    return codec, codec.decode
