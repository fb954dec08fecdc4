"""The tricks: thin classes around the functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from pegboard import EvalWeights, Trick
from torch import Tensor

from . import Ema, functional
from .functional import ema_warming_up


class EmaTrick(Trick):
    """Keeps an average of the weights of each player."""

    def __init__(self, config: Ema) -> None:
        self.config = config
        self.updates: dict[str, Tensor] = {}  # of each player, by the name of its first weight; for warm-up

    def eval_weights(self, weights: Mapping[str, Tensor]) -> EvalWeights:
        config = self.config
        averages = [w.clone() for w in weights.values()]
        kept = EvalWeights(
            weights=dict(zip(weights, averages, strict=True)),
            follow=partial(functional.lerp, averages, weight=1 - config.decay),  # `ema` without its call
            use=config.evaluate == "average",
        )
        if config.warmup:
            updates = torch.zeros((), dtype=torch.long, device=averages[0].device)
            self.updates[next(iter(weights))] = updates
            kept.follow = partial(ema_warming_up, averages, decay=config.decay, updates=updates)
            kept.state = [updates]
        return kept

    def state_dict(self) -> dict[str, Any]:
        return dict(self.updates)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, updates in self.updates.items():
            if name in state:
                updates.copy_(state[name])
