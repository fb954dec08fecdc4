"""What reading and writing samples needs to know, in files that a run keeps: JSON, nothing executed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pegboard import Codec, PegboardError
from torch import Tensor

from .hub_options import END, PAD, PIPELINE, Hub, number_of
from .mistakes import mistake
from .reading import Columns
from .text import SplitVocabulary, TrainedVocabulary, Vocabulary, written

FORMAT = 1  # of these files

Keep = Callable[[Vocabulary], dict[str, Any]]  # puts a vocabulary in a file; what to write in its place
Find = Callable[[Mapping[str, Any]], Vocabulary]  # the vocabulary that was put in a file


class Form:
    """How rows that a person wrote become inputs, and symbols of the target a text."""

    name: str  # of the form, in its file
    columns: tuple[str, ...]  # that it reads
    writes = False  # whether symbols of the target become a text
    asks = False  # whether an answer for every step counts at some of them alone
    tables = False  # whether answers become rows of another table
    texts: Mapping[int, Vocabulary] = {}

    def encode(self, table: Columns) -> tuple[Tensor, ...]:
        """The inputs for the rows of a table."""
        raise NotImplementedError

    def decode(self, symbols: Tensor) -> list[str]:
        """The text of each row of symbols (rows, length)."""
        raise NotImplementedError

    def decode_input(self, number: int, symbols: Tensor) -> list[str]:
        """The text of each row of symbols of an input that is text."""
        vocabulary = self.texts[number]
        return written(symbols, vocabulary, number_of(END, vocabulary.symbols))

    def asked(self, table: Columns) -> Tensor:
        """Where in the rows of a table answers count, (rows, length)."""
        raise NotImplementedError

    def table(self, asked: str | Columns, answers: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Answers to the rows of a table, or to a split, as a table for people."""
        raise NotImplementedError

    @property
    def invert(self) -> Callable[[Tensor], Tensor] | None:
        """What makes of the first input again what it was before it was scaled, where that is known."""
        return None

    def state(self, keep: Keep) -> dict[str, Any]:
        """All that it knows, as JSON holds it."""
        raise NotImplementedError

    @property
    def codec(self) -> Codec:
        """What the core asks of it."""
        return Codec(
            self.encode,
            self.columns,
            self.decode if self.writes else None,
            self.decode_input if self.texts else None,
            self.asked if self.asks else None,
            self.invert,
            self.table if self.tables else None,
        )

    def fields(self) -> dict[str, Any]:
        """What it gives to splits."""
        return {**self.codec._asdict(), "files": files_of(self)}


def files_of(form: Form) -> dict[str, bytes]:
    """The files from which a form is made again."""
    files: dict[str, bytes] = {}
    kept: dict[int, dict[str, Any]] = {}

    def keep(vocabulary: Vocabulary) -> dict[str, Any]:
        if id(vocabulary) not in kept:
            file, data = _vocabulary_file(vocabulary, len(kept))
            files[file] = data
            kept[id(vocabulary)] = {
                "file": file,
                "sha256": hashlib.sha256(data).hexdigest(),
                "tokens": vocabulary.tokens,
                "lowercase": vocabulary.lowercase,
            }
        return kept[id(vocabulary)]

    content = {"format": FORMAT, "form": form.name, **form.state(keep)}
    pipeline = {**content, "sha256": _digest(content)}
    return {PIPELINE: json.dumps(pipeline, indent=1, ensure_ascii=False).encode(), **files}


def _vocabulary_file(vocabulary: Vocabulary, number: int) -> tuple[str, bytes]:
    if isinstance(vocabulary, TrainedVocabulary):
        return f"tokenizer-{number}.json", vocabulary.text.encode()
    return f"vocabulary-{number}.json", json.dumps(list(vocabulary.symbols), ensure_ascii=False).encode()


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Saved:
    """The files of a run, read and compared with what was written."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / PIPELINE
        self.content: dict[str, Any] = self.read(self._content)

    def read(self, act: Callable[[], Any]) -> Any:
        """What `act` makes of the files; whatever is wrong with them is one message."""
        try:
            return act()
        except PegboardError:
            raise
        except Exception as error:  # of JSON, of a tokenizer, or of a value that is not what it was
            raise self._damaged(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from None

    def _content(self) -> dict[str, Any]:
        content = json.loads(self._bytes(self.path))
        if content["format"] != FORMAT:
            raise mistake(
                f"{self.path} has format {content['format']!r}",
                f"{FORMAT}",
                "install the version that wrote it",
            )
        if content.pop("sha256") != _digest(content):
            raise self._damaged("it is not what was written")
        return dict(content)

    def vocabulary(self, entry: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary that an entry of the content names."""
        path = self.folder / Path(entry["file"]).name  # never outside the folder
        data = self._bytes(path)
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise self._damaged("it is not what was written", path)
        if path.name.startswith("tokenizer"):
            return TrainedVocabulary(data.decode(), entry["tokens"], entry["lowercase"])
        return SplitVocabulary(json.loads(data), entry["tokens"], entry["lowercase"])

    def _bytes(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise mistake(
                f"{path} cannot be read: {error.strerror or error}",
                "a file that the run wrote when it began",
                "run again, or copy it from where the run was made",
            ) from None

    def _damaged(self, why: str, path: Path | None = None) -> PegboardError:
        return mistake(
            f"{path or self.path} is damaged: {why}",
            "the file as the run wrote it",
            "copy it from where the run was made, or run again",
        )


def given_vocabulary(config: Hub, *needed: str, role: str = "vocabulary") -> Vocabulary | None:
    """The vocabulary of the run that a config names, with the symbols that are needed; None: a new one."""
    if config.vocabulary is None:
        return None
    saved = Saved(Path(config.vocabulary).expanduser() / "data")
    entries = [saved.content, *saved.content.get("inputs", ())]
    found = next((entry[role] for entry in entries if role in entry), None)
    if found is None:
        what = "that writes text" if role != "vocabulary" else "that was trained on text"
        raise mistake(f"the run {config.vocabulary!r} has no such vocabulary", f"one of a run {what}")
    vocabulary: Vocabulary = saved.read(lambda: saved.vocabulary(found))
    lacking = [symbol for symbol in needed if symbol not in vocabulary.symbols]
    if lacking or (PAD in needed and vocabulary.symbols[0] != PAD):
        raise mistake(
            f"the vocabulary of the run {config.vocabulary!r} lacks {', '.join(lacking or [PAD])}",
            f"one with {', '.join(needed)}",
            "take a run whose target is of the same kind, or one with kind: masked for marked texts",
        )
    return vocabulary
