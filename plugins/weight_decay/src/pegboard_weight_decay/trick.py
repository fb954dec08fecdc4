"""Weight decay in a training step."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pegboard import Batch, PegboardError, Trick
from torch import Tensor

from . import WeightDecay
from .functional import chosen, decayed, kinds, l1_term, l2_term, split_groups


def _named(groups: list[dict[str, Any]]) -> list[tuple[str, Tensor]]:
    return [pair for group in groups for pair in zip(group["names"], group["params"], strict=True)]


def _choose(groups: list[dict[str, Any]], config: WeightDecay) -> set[str]:
    named = _named(groups)
    names = decayed(named, bias=config.bias, norm=config.norm, embeddings=config.embeddings)
    names = chosen(names, config.only) if config.only else names
    if not names:
        counts = Counter(kinds(named).values())
        found = ", ".join(f"{n} of kind {kind}" for kind, n in sorted(counts.items())) or "none at all"
        raise PegboardError(
            f"weight_decay found no parameter to decay among {found}"
            f"{' whose name fits ' + ', '.join(config.only) if config.only else ''}. "
            "Set bias: true, norm: true or embeddings: true to decay those as well."
        )
    return names


class DecoupledDecay(Trick):
    """Puts what decays into groups with the key `decoupled_decay`, which act before every update."""

    def __init__(self, config: WeightDecay) -> None:
        self.config = config

    def edit_groups(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.config.value == 0:
            return groups
        return split_groups(groups, _choose(groups, self.config), self.config.value)


class Term(Trick):
    """Adds half the squares of what decays, or their absolute values, times the strength to the loss."""

    def __init__(self, config: WeightDecay) -> None:
        self.config = config
        self.params: list[Tensor] = []

    def edit_groups(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.config.value > 0:
            names = _choose(groups, self.config)
            known = {id(param) for param in self.params}
            # Kept over calls, as every player has groups of its own.
            self.params += [p for name, p in _named(groups) if name in names and id(p) not in known]
        return groups

    def edit_loss(self, loss: Tensor, output: Any, batch: Batch) -> Tensor:
        term = l2_term if self.config.mode == "l2" else l1_term
        return loss + term(self.params, self.config.value) if self.params else loss

    def formula(self, loss: str) -> str:
        if self.config.value == 0:
            return loss
        value = f"{self.config.value:g}"
        return f"{loss} + {value}/2 ||w||^2" if self.config.mode == "l2" else f"{loss} + {value} ||w||_1"
