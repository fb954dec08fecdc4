"""BERT: an encoder that sees a whole text at once, pretrained on symbols that are hidden from it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pegboard import Peg
from torch import Tensor, nn

from .adoption import Rules, join, rename
from .bert_options import SEGMENTS
from .blocks import Form, Stack, key_mask
from .embedding import lasting
from .initial import normal
from .positions import Learned


class Bert(nn.Module):
    """Reads symbols (rows, length), and of which sentence each is, 0 or 1; a `head` says what it gives.

    The first place stands for the text as a whole. `longest` texts have that many places; `padding` is the
    symbol that pads, -1 where none does; weights begin normal with deviation `std`.
    """

    def __init__(
        self,
        vocab: int,
        longest: int,
        layers: int,
        form: Form,
        head: nn.Module,
        *,
        padding: int = -1,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        self.padding = padding
        self.words = nn.Embedding(vocab, form.width)
        self.positions = Learned(longest, form.width, std)
        self.segments = nn.Embedding(SEGMENTS, form.width)
        self.norm = nn.LayerNorm(form.width, form.eps)
        self.embedding = Peg("embedding", form.width, "NLC")
        self.encoder = Stack(layers, form)
        self.head = head
        normal(self, std)

    def encode(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """The places of a text (rows, length, width), each after it looked at all others."""
        lasts = lasting(tokens, self.padding)
        of = self.segments.weight[0] if segments is None else self.segments(segments)
        x = self.norm(self.words(tokens) + self.positions(tokens.shape[1]) + of)
        x = self._modules["embedding"](x, lasts)  # type: ignore[misc]
        encoded: Tensor = self.encoder(x, None if lasts is None else key_mask(lasts), lasts)
        return encoded

    def forward(self, *inputs: Tensor) -> Tensor:
        lasts = lasting(inputs[0], self.padding)
        output: Tensor = self.head(self.encode(*inputs), lasts, inputs, self.words)
        return output

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Names of BERT by Hugging Face to those of this model."""
        return bert_names(state)


_END = r"(weight|bias)"
_AT, _TO = r"(?:bert\.)?encoder\.layer\.(\d+)\.", r"encoder.blocks.\1."
_RULES: Rules = (
    (r"(?:bert\.)?embeddings\.word_embeddings\.weight", "words.weight"),
    (r"(?:bert\.)?embeddings\.position_embeddings\.weight", "positions.weight"),
    (r"(?:bert\.)?embeddings\.token_type_embeddings\.weight", "segments.weight"),
    (rf"(?:bert\.)?embeddings\.LayerNorm\.{_END}", r"norm.\1"),
    (rf"{_AT}attention\.output\.dense\.{_END}", rf"{_TO}attention.out.\2"),
    (rf"{_AT}attention\.output\.LayerNorm\.{_END}", rf"{_TO}attention_norm.\2"),
    (rf"{_AT}intermediate\.dense\.{_END}", rf"{_TO}feed.up.\2"),
    (rf"{_AT}output\.dense\.{_END}", rf"{_TO}feed.down.\2"),
    (rf"{_AT}output\.LayerNorm\.{_END}", rf"{_TO}feed_norm.\2"),
    (rf"(?:bert\.)?pooler\.dense\.{_END}", r"head.pooler.\1"),
    (rf"cls\.predictions\.transform\.dense\.{_END}", r"head.transform.\1"),
    (rf"cls\.predictions\.transform\.LayerNorm\.{_END}", r"head.norm.\1"),
    (r"cls\.predictions\.(?:decoder\.)?bias", "head.bias"),
    (rf"cls\.seq_relationship\.{_END}", r"head.follows.\1"),
    (rf"classifier\.{_END}", r"head.classifier.\1"),
    (rf"qa_outputs\.{_END}", r"head.ends.\1"),
)
# What the first checkpoints call them.
_OLDER: Rules = ((r"(.*LayerNorm\.)gamma", r"\1weight"), (r"(.*LayerNorm\.)beta", r"\1bias"))
# The decoder is the table of words once more, and the numbers of the positions are no weights.
_NEEDLESS = r"cls\.predictions\.decoder\.weight|(?:bert\.)?embeddings\.position_ids"


def bert_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names of BERT by Hugging Face, where the first of two logits says that a sentence follows."""
    kept = {name: tensor for name, tensor in state.items() if not re.fullmatch(_NEEDLESS, name)}
    turned = {n: t.flip(0) if n.startswith("cls.seq_relationship.") else t for n, t in kept.items()}
    part = rf"{_AT}attention\.self\.(?P<part>query|key|value)\.(?P<end>weight|bias)"
    joined = join(turned, part, ("query", "key", "value"), rf"{_TO}attention.qkv.\g<end>")
    return rename(rename(joined, _OLDER), _RULES)
