"""Initial weights, as the papers of the models have them."""

from __future__ import annotations

import math

from torch import nn

from .blocks import Attention, Block, Stack


def normal(model: nn.Module, std: float = 0.02) -> None:
    """Normal weights of linear maps and embeddings; zero biases."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def shrink_branches(stack: Stack) -> None:
    """Divide the last map of each branch by the root of their number, so that their sum does not grow."""
    ends: list[nn.Linear] = []
    for block in stack.blocks:
        assert isinstance(block, Block)
        ends += [block.attention.out, block.feed.down]
        if "cross" in block._modules:
            ends.append(block.cross.out)
    for end in ends:
        end.weight.data /= math.sqrt(len(ends))


def xavier(model: nn.Module) -> None:
    """Uniform weights of linear maps by fan-in and fan-out, zero biases; embeddings of unit length.

    A joint map to queries, keys and values is drawn as the separate maps it stands for.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    for module in model.modules():
        if isinstance(module, Attention):
            joint = module.qkv if module.context is None else module.kv
            for part in joint.weight.chunk(3 if module.context is None else 2):
                nn.init.xavier_uniform_(part.data)
