"""Translations of a split, compared with those of the data."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import torch
from pegboard import Batch, Context, Decoding, PegboardError, Probe, Source, Splits, Tokens
from torch import Tensor, nn

from .bleu_options import Bleu

LINE_EVERY = 10.0  # seconds between lines that say how far it is


def corpus_bleu(
    texts: Sequence[str], references: Sequence[str], tokenizer: str = "13a", lowercase: bool = False
) -> float:
    """BLEU of all texts together, 0 to 100, with one reference for each."""
    from sacrebleu import corpus_bleu as measured

    score: float = measured(list(texts), [list(references)], tokenize=tokenizer, lowercase=lowercase).score
    return score


class BleuProbe(Probe):
    """Translates with `model.generate`, and reads symbols as texts with `splits.decode`."""

    def __init__(self, config: Bleu, context: Context) -> None:
        self.config = config
        target = context.spec.target
        assert isinstance(target, Tokens)
        length = config.length or target.length
        assert length is not None
        self.how = Decoding(
            length=length, temperature=0.0, beams=config.beams, length_penalty=config.length_penalty
        )

    def measure(self, model: nn.Module, splits: Splits, device: torch.device) -> dict[str, float]:
        split, decode = self.config.split, splits.decode
        source: Source | None = getattr(splits, split)
        if source is None:
            there = [name for name in ("train", "val", "test") if getattr(splits, name) is not None]
            raise PegboardError(f"bleu: the data has no split {split!r}: it has {', '.join(there)}")
        if decode is None:
            raise PegboardError(
                "bleu: the data set does not say how its symbols read as text\n"
                "  expected: Splits(..., decode=function), which turns symbols (rows, length) into texts"
            )
        model = model.to(device).eval()
        texts: list[str] = []
        references: list[str] = []
        for batch in self._batches(source.to(str(device)), device):
            assert batch.target is not None
            with torch.no_grad():
                symbols: Tensor = model.generate(*batch.inputs, how=self.how)  # type: ignore[operator]
            texts += decode(symbols.cpu())
            references += decode(batch.target.cpu())
        score = corpus_bleu(texts, references, self.config.tokenizer, self.config.lowercase)
        exact = sum(a == b for a, b in zip(texts, references, strict=True)) / len(texts)
        return {split: score, f"{split}_exact": exact}

    def _batches(self, source: Source, device: torch.device) -> Iterator[Batch]:
        """The samples asked for, those of like length together where the source knows them."""
        count = min(len(source), self.config.samples or len(source))
        lengths = source.lengths
        order = torch.arange(count) if lengths is None else lengths[:count].argsort(stable=True)
        order = order if source.index_on_cpu else order.to(device)
        parts = torch.split(order, self.config.batch_size)
        source.begin(parts, 0)
        shown = time.monotonic()
        try:
            for number, part in enumerate(parts):
                yield source.gather(part)
                if time.monotonic() - shown > LINE_EVERY:
                    shown = time.monotonic()
                    done = min((number + 1) * self.config.batch_size, count)
                    print(f"bleu: {done:,} of {count:,} texts translated", file=sys.stderr)
        finally:
            source.close()
