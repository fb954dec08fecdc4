"""Texts that models write: symbols drawn one after the other, the likeliest, or found by beam search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pegboard import SampleMethod, SampleRequest, hookimpl

if TYPE_CHECKING:
    from .decoding import beam_search as beam_search
    from .decoding import extend as extend
    from .decoding import pick as pick


def write(trained: Any, request: SampleRequest) -> Iterable[str]:
    from .writer import write_texts

    return write_texts(trained, request)


@hookimpl
def pegboard_sample_methods() -> list[SampleMethod]:
    return [SampleMethod("generate", write)]


def __getattr__(name: str) -> Any:
    if name in ("beam_search", "extend", "pick"):  # they need torch
        from . import decoding

        return getattr(decoding, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
