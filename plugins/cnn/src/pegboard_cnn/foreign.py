"""Weights that other implementations wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pegboard import Peg
from torch import Tensor, nn


def adopt(
    model: nn.Module, state: Mapping[str, Tensor], rules: Sequence[tuple[str, str]]
) -> dict[str, Tensor]:
    """`state` under the names of `model`: by each rule, a pattern and what takes its place, in turn.

    What a name then says of a peg is meant for the batch normalisation that hangs there.
    """
    norms = {
        path: name
        for path, peg in model.named_modules()
        if isinstance(peg, Peg)
        for name, module in peg.named_children()
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))
    }
    found = {}
    for name, tensor in state.items():
        for pattern, new in rules:
            name = re.sub(pattern, new, name)
        path, _, rest = name.rpartition(".")
        # A network's own normalisation may have left its place to another.
        peg = path if path in norms else path.removesuffix(".norm")
        found[f"{peg}.{norms[peg]}.{rest}" if peg in norms else name] = tensor
    return found
