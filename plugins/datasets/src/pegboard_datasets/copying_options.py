"""Config of pairs of texts of which one is the other again, and what they hold. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pegboard import Context, Dataset, DataSpec, Facts, Ge, Problem, Splits, Tokens

from .options import Shares, check_cut, frozen

if TYPE_CHECKING:
    from pegboard import Codec

PADDING, BEGIN, END, MARKS = 0, 1, 2, 3  # symbols of no meaning, and how many there are


@frozen
class Copying(Shares):
    """Copy task: random tokens and their copies, in order or reversed, for sequence to sequence models."""

    samples: Annotated[int, Ge(1)] = 2000  # in all splits together
    symbols: Annotated[int, Ge(1)] = 8  # that texts are made of, besides those that pad, begin and end
    length: Annotated[int, Ge(1)] = 5  # symbols in a text, the longest where they differ
    shortest: Annotated[int, Ge(1)] | None = None  # symbols in the shortest text; None: all are `length` long
    reverse: bool = False  # the copy has the last symbol first
    seed: Annotated[int, Ge(0)] | None = None  # of all that is drawn; None takes the run's seed


def copying_spec(config: Copying) -> DataSpec:
    """What `copying` holds: the text, its copy behind the symbol that begins, and the copy up to its end."""
    vocab = config.symbols + MARKS
    copy = Tokens(vocab, config.length + 1, PADDING, BEGIN, END)
    return DataSpec((Tokens(vocab, config.length, PADDING), copy), copy, ("source", "copy"))


def check_copying(config: Copying, facts: Facts) -> Iterable[Problem]:
    """The shortest text is no longer than the longest."""
    yield from check_cut(config, facts)
    if config.shortest is not None and config.shortest > config.length:
        yield Problem(
            f"the shortest text has {config.shortest} symbols and the longest {config.length}",
            "shortest",
            f"at most {config.length}",
        )


def copying_part() -> Dataset[Copying]:
    """The record."""

    def build(config: Copying, context: Context) -> Splits:
        from . import copying

        return copying.build(config, context)

    def restore(config: Copying, folder: Path) -> Codec:
        from . import copying

        return copying.codec(config)

    return Dataset(
        "copying",
        Copying,
        build,
        check=check_copying,
        spec=copying_spec,
        trial=lambda folder: {"samples": 60},
        restore=restore,
    )
