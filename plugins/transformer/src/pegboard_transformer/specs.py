"""Specs of what is asked of a text: hidden symbols, and where an answer stands. No torch at import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pegboard import Choices, DataSpec, Tokens

if TYPE_CHECKING:
    import torch

UNASKED = -100  # where nothing is asked


@dataclass(frozen=True)
class Span(Choices):
    """A stretch of a sequence: an int64 tensor (batch, 2), the places of its first and last symbol."""

    decoded: ClassVar[bool] = True

    length: int | None = None  # of the longest sequence

    @property
    def size(self) -> int | None:
        return 2

    def example(self, rows: int, device: str) -> torch.Tensor:
        import torch

        if self.length is None:
            raise ValueError(f"{self} has sizes that are known only once the data is read")
        first = torch.arange(rows, device=device) % min(self.length, 2)  # texts may end soon
        return torch.stack((first, (first + 1).clamp(max=self.length - 1)), 1)

    @property
    def choices(self) -> int | None:
        return self.length

    @classmethod
    def forms(cls) -> Mapping[str, DataSpec]:
        return {"span": DataSpec((Tokens(7, 6, 0), Tokens(2, 6)), cls(6))}

    def describe(self, columns: Mapping[str, Sequence[torch.Tensor]], **known: Any) -> dict[str, list[Any]]:
        """The text between the places too, where the data set writes one."""
        found, read = super().describe(columns, **known), known.get("decode_input")
        if read is None or not {"start", "end"} <= columns.keys():
            return found
        places = zip(known["inputs"][0], found["start"], found["end"], strict=True)
        return {"answer": [read(0, row[None, a : b + 1])[0].strip() for row, a, b in places], **found}

    def output_shape(self, outputs: int) -> tuple[int, ...]:
        return (outputs,) if self.length is None else (2, self.length)


@dataclass(frozen=True)
class Masked(Choices):
    """Symbols hidden in a text of two sentences: an int64 tensor (batch, 1 + length).

    First whether the second sentence follows the first, 1 or 0, -100 where that is not asked; then for every
    place of the text the symbol that is hidden there, -100 where none is.
    """

    stepwise: ClassVar[bool] = True
    decoded: ClassVar[bool] = True

    vocab: int | None = None
    length: int | None = None  # of the longest sample; a batch of shorter ones may be shorter

    @property
    def size(self) -> int | None:
        return self.vocab

    def example(self, rows: int, device: str) -> torch.Tensor:
        import torch

        if self.vocab is None or self.length is None:
            raise ValueError(f"{self} has sizes that are known only once the data is read")
        row = torch.arange(rows, device=device).unsqueeze(1)
        place = torch.arange(self.length, device=device)
        hidden = ((row + place) % self.vocab).masked_fill((place < 1) | (place > 2), UNASKED)
        return torch.cat((row % 2, hidden), 1)

    @classmethod
    def forms(cls) -> Mapping[str, DataSpec]:
        return {"masked": DataSpec((Tokens(7, 6, 0), Tokens(2, 6)), cls(7, 6))}

    def describe(self, columns: Mapping[str, Sequence[torch.Tensor]], **known: Any) -> dict[str, list[Any]]:
        found, read = super().describe(columns, **known), known.get("decode_input")
        if read is not None and "symbols" in columns:
            found["symbols"] = [read(0, cell.unsqueeze(0))[0] for cell in columns["symbols"]]
        return found

    def output_shape(self, outputs: int) -> tuple[int, ...]:
        return (outputs,) if self.vocab is None or self.length is None else (1 + self.length, self.vocab)
