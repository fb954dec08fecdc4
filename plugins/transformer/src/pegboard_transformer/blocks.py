"""What transformers are made of: attention, feed-forward layers, blocks of both and stacks of blocks.

Masks of attention are boolean, true where a query may look at a key, and broadcast to (rows, heads, queries,
keys); `lasts` (rows, length) is true where a sample still lasts and goes to the pegs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pegboard import Peg
from torch import Tensor, nn
from torch.nn import functional as F

from .positions import rotate

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"]
Pair = tuple[Tensor, Tensor]  # keys and values, each (rows, heads, places, width of a head)


@dataclass(frozen=True, kw_only=True)
class Form:
    """Sizes and manners of the blocks of one stack."""

    width: int  # features of a place
    heads: int  # of attention
    feed: int  # units inside the feed-forward layer
    activation: Activation = "relu"
    norm: Literal["pre", "post"] = "pre"  # before each branch, or after its sum with what it started from
    eps: float = 1e-5  # of the normalisations
    bias: bool = True  # a constant in the linear maps and normalisations
    qkv_bias: bool = True  # one in the map to queries, keys and values

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by the number of heads, {self.heads}")


def key_mask(lasts: Tensor) -> Tensor:
    """A mask of attention (rows, 1, 1, keys) that leaves out padding; where all is padding, nothing."""
    return (lasts | ~lasts.any(1, keepdim=True))[:, None, None, :]


def causal_mask(
    queries: int,
    keys: int | None = None,
    lasts: Tensor | None = None,
    window: int | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """A mask (rows or 1, 1, queries, keys): each query sees the keys up to its own place.

    The queries are the last of `keys` places (None: all of them). `lasts` (rows, keys) leaves out padding,
    but each place always sees itself, so that no row is empty; `window` keeps the last so many places alone.
    """
    keys = queries if keys is None else keys
    device = lasts.device if lasts is not None else device
    last = torch.arange(keys - queries, keys, device=device).unsqueeze(1)
    places = torch.arange(keys, device=device)
    mask = places <= last
    if window is not None:
        mask = mask & (places > last - window)
    mask = mask[None, None]
    return mask if lasts is None else (mask & lasts[:, None, None, :]) | (places == last)


class Attention(nn.Module):
    """Attention of several heads; of a sequence to itself, or with `context`, the width of another, to that.

    To itself, one map gives queries, keys and values: the rows of its weight are those of all heads' queries,
    then keys, then values. While nothing hangs on its peg but dropout, torch's fused kernel does the work.
    """

    def __init__(self, form: Form, context: int | None = None) -> None:
        super().__init__()
        width = form.width
        self.heads, self.context = form.heads, context
        if context is None:
            self.qkv = nn.Linear(width, 3 * width, bias=form.qkv_bias)
        else:
            self.query = nn.Linear(width, width, bias=form.qkv_bias)
            self.kv = nn.Linear(context, 2 * width, bias=form.qkv_bias)
        self.peg = Peg("attention", form.heads, "NHLL")
        self.out = nn.Linear(width, width, bias=form.bias)

    def _split(self, x: Tensor, parts: int) -> Tensor:
        """(rows, length, parts * width) -> (parts, rows, heads, length, width of a head)."""
        rows, length = x.shape[:2]
        return x.view(rows, length, parts, self.heads, -1).permute(2, 0, 3, 1, 4)

    def project(self, x: Tensor, rotation: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of a sequence (rows, length, width) that attends to itself."""
        qkv = self._split(self.qkv(x), 3)
        if rotation is None:
            q, k, v = qkv.unbind(0)
        else:
            q, k = rotate(qkv[:2], rotation).unbind(0)
            v = qkv[2]
        return q, k, v

    def remember(self, context: Tensor) -> Pair:
        """Keys and values of another sequence (rows, places, width of the context)."""
        k, v = self._split(self.kv(context), 2).unbind(0)
        return k, v

    def ask(self, x: Tensor) -> Tensor:
        """Queries to another sequence."""
        return self._split(self.query(x), 1)[0]

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """How much each query looks at each key, (rows, heads, queries, keys)."""
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        if causal:
            seen = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
            mask = seen if mask is None else mask & seen
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return torch.softmax(scores.float(), -1).to(q.dtype)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """What the heads read, joined and mapped: (rows, queries, width)."""
        peg: Peg = self._modules["peg"]  # type: ignore[assignment]
        share = _dropped(peg)
        if share is None:
            y = peg(self.weights(q, k, mask, causal)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=share, is_causal=causal)
        read: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return read

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False, context: Tensor | None = None
    ) -> Tensor:
        """`x` (rows, length, width) after it looked at itself, or at `context` (rows, places, its width)."""
        if context is None:
            return self.attend(*self.project(x), mask, causal)
        return self.attend(self.ask(x), *self.remember(context), mask, causal)


# Private tables of a module; where one is gone, every module is taken to be watched.
HOOKS = ("_forward_pre_hooks", "_forward_hooks")


def _dropped(peg: Peg) -> float | None:
    """The share of weights that dropout drops, 0 for an empty peg; None where something else hangs there."""
    hung = peg._modules
    if not hung:
        return 0.0
    if len(hung) > 1:
        return None
    (module,) = hung.values()
    if type(module) is not nn.Dropout or any(getattr(module, hooks, True) for hooks in HOOKS):
        return None  # hooks are someone who watches: they must see it called
    return module.p if module.training else 0.0


class FeedForward(nn.Module):
    """Two linear maps with a nonlinearity between them, the same at every place.

    `swiglu` has a third: half of the units, through the sigmoid linear unit, multiply the other half.
    """

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.activation = form.activation
        inner = 2 * form.feed if form.activation == "swiglu" else form.feed
        self.up = nn.Linear(form.width, inner, bias=form.bias)
        self.affine = Peg("affine", inner, "NLC")
        self.hidden = Peg("hidden", form.feed, "NLC")
        self.down = nn.Linear(form.feed, form.width, bias=form.bias)

    def forward(self, x: Tensor, lasts: Tensor | None = None) -> Tensor:
        pegs = self._modules  # past nn.Module.__getattr__, which would cost each peg a second call
        x = pegs["affine"](self.up(x), lasts)  # type: ignore[misc]
        match self.activation:
            case "relu":
                x = F.relu(x)
            case "gelu":
                x = F.gelu(x)
            case "gelu_tanh":
                x = F.gelu(x, approximate="tanh")
            case "silu":
                x = F.silu(x)
            case _:
                gate, x = x.chunk(2, -1)
                x = F.silu(gate) * x
        read: Tensor = self.down(pegs["hidden"](x, lasts))  # type: ignore[misc]
        return read


class Block(nn.Module):
    """Attention of a sequence to itself, to `context` where its width is given, and a feed-forward layer.

    Each is a branch that is added to what it started from, with a layer normalisation before the branch
    (`norm: pre`) or after the sum (`post`). Without `context` it is a block of an encoder, or of a decoder
    that reads nothing else.
    """

    def __init__(self, form: Form, context: int | None = None) -> None:
        super().__init__()
        self.pre = form.norm == "pre"
        self.attention = Attention(form)
        self.attention_end = Peg("residual", form.width, "NLC")
        self.attention_norm = nn.LayerNorm(form.width, form.eps, bias=form.bias)
        if context is not None:
            self.cross = Attention(form, context)
            self.cross_end = Peg("residual", form.width, "NLC")
            self.cross_norm = nn.LayerNorm(form.width, form.eps, bias=form.bias)
        self.feed = FeedForward(form)
        self.feed_end = Peg("residual", form.width, "NLC")
        self.feed_norm = nn.LayerNorm(form.width, form.eps, bias=form.bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        lasts: Tensor | None = None,
        *,
        causal: bool = False,
        rotation: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """`x` (rows, length, width) a block further. `context` is what a block with `cross` looks at."""
        memory = None if context is None else self.cross.remember(context)
        return self.extend(x, mask, lasts, None, causal, rotation, memory, context_mask)[0]

    def extend(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        lasts: Tensor | None = None,
        past: Pair | None = None,
        causal: bool = False,
        rotation: Tensor | None = None,
        memory: Pair | None = None,
        memory_mask: Tensor | None = None,
    ) -> tuple[Tensor, Pair]:
        """The same for places that follow a `past`; with it come the keys and values of all places so far.

        `memory` are the keys and values of what `cross` looks at.
        """
        pegs, pre = self._modules, self.pre
        q, k, v = self.attention.project(self.attention_norm(x) if pre else x, rotation)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        x = x + pegs["attention_end"](self.attention.attend(q, k, v, mask, causal), lasts)  # type: ignore[misc]
        if not pre:
            x = self.attention_norm(x)
        if memory is not None:
            q = self.cross.ask(self.cross_norm(x) if pre else x)
            x = x + pegs["cross_end"](self.cross.attend(q, *memory, memory_mask, False), lasts)  # type: ignore[misc]
            if not pre:
                x = self.cross_norm(x)
        x = x + pegs["feed_end"](self.feed(self.feed_norm(x) if pre else x, lasts), lasts)  # type: ignore[misc]
        return (x if pre else self.feed_norm(x)), (k, v)


class Stack(nn.Module):
    """Blocks one after the other; where they normalise before their branches, with one more at the end."""

    def __init__(self, layers: int, form: Form, context: int | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(form, context) for _ in range(layers))
        self.norm: nn.Module | None = None
        if form.norm == "pre":
            self.norm = nn.LayerNorm(form.width, form.eps, bias=form.bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        lasts: Tensor | None = None,
        *,
        causal: bool = False,
        rotation: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        for block in self.blocks:
            x = block(
                x,
                mask,
                lasts,
                causal=causal,
                rotation=rotation,
                context=context,
                context_mask=context_mask,
            )
        return x if self.norm is None else self.norm(x)

    def remember(self, context: Tensor) -> list[Pair]:
        """Keys and values of `context` for each block, computed once for all that is generated."""
        return [block.cross.remember(context) for block in self.blocks]  # type: ignore[union-attr, operator]

    def extend(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        lasts: Tensor | None = None,
        *,
        past: Sequence[Pair] | None = None,
        causal: bool = False,
        rotation: Tensor | None = None,
        memory: Sequence[Pair] | None = None,
        memory_mask: Tensor | None = None,
    ) -> tuple[Tensor, list[Pair]]:
        """The same for places that follow a `past`, and all keys and values so far: the next past."""
        cache: list[Pair] = []
        for place, block in enumerate(self.blocks):
            x, pair = block.extend(  # type: ignore[operator]
                x,
                mask,
                lasts,
                None if past is None else past[place],
                causal,
                rotation,
                None if memory is None else memory[place],
                memory_mask,
            )
            cache.append(pair)
        return (x if self.norm is None else self.norm(x)), cache
