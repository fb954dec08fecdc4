"""The tricks: thin classes around the functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from pegboard import Batch, EvalWeights, Trick
from torch import Tensor, nn

from . import Ema, Lawa, Swa, functional
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


class _EpochMean(Trick):
    """Keeps a mean of the weights of each player at the ends of epochs, and statistics that belong to it."""

    def __init__(self, config: Swa | Lawa) -> None:
        self.statistics, self.use = config.statistics, config.evaluate == "average"
        self.kept: dict[str, EvalWeights] = {}  # of each player, by the name of its first weight

    def eval_weights(self, weights: Mapping[str, Tensor]) -> EvalWeights:
        kept = EvalWeights(weights={name: w.clone() for name, w in weights.items()}, use=False)
        player, names = next(iter(weights)), list(weights)

        def after_epoch(model: nn.Module, batches: Iterable[Batch]) -> None:
            places = dict(model.named_parameters())
            averages = [kept.weights[name] for name in names]
            if self.average(player, averages, [places[name].detach() for name in names]):
                kept.use = self.use
                if self.statistics and self.use:
                    _take_statistics(kept, model, batches)

        kept.after_epoch = after_epoch
        self.kept[player] = kept
        return kept

    def average(self, player: str, averages: list[Tensor], weights: list[Tensor]) -> bool:
        """Bring averages up to date after an epoch; False while there is none."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """The statistics; the averages are in checkpoints as they are."""
        return {
            f"{player}/{name}": tensor.clone()
            for player, kept in self.kept.items()
            for name, tensor in kept.weights.items()
            if name.rpartition(".")[2] in STATISTICS
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for player, kept in self.kept.items():
            device = next(iter(kept.weights.values())).device
            found = {name.removeprefix(f"{player}/"): value for name, value in state.items()
                     if name.startswith(f"{player}/") and name.rpartition(".")[2] in STATISTICS}  # fmt: skip
            kept.weights = {**kept.weights, **{name: value.to(device) for name, value in found.items()}}


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def _take_statistics(kept: EvalWeights, model: nn.Module, batches: Iterable[Batch]) -> None:
    """Add statistics of the model with averaged weights to these, and leave the model as it was."""
    own = {
        f"{name}.{buffer}"
        for name, module in functional.norms(model)
        if module.weight is None or f"{name}.weight" in kept.weights  # of this player
        for buffer in STATISTICS
    }
    if not own:
        return
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    places = {name: p.detach() for name, p in (parameters | buffers).items()}
    trained = {name: places[name].clone() for name in {*kept.weights, *buffers}}
    try:
        for name in kept.weights.keys() & parameters.keys():
            places[name].copy_(kept.weights[name])
        functional.take_statistics(model, (batch.inputs for batch in batches if batch.samples > 1))
        kept.weights = {**kept.weights, **{name: places[name].clone() for name in sorted(own)}}
    finally:
        for name, tensor in trained.items():
            places[name].copy_(tensor)


class SwaTrick(_EpochMean):
    """Averages the ends of all epochs from one on."""

    def __init__(self, config: Swa) -> None:
        super().__init__(config)
        self.start = config.start
        self.ended: dict[str, int] = {}  # epochs, of each player

    def average(self, player: str, averages: list[Tensor], weights: list[Tensor]) -> bool:
        ended = self.ended.get(player, 0)
        self.ended[player] = ended + 1
        if ended < self.start:
            return False
        functional.include(averages, weights, ended - self.start)
        return True

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **{f"{player}/ended": count for player, count in self.ended.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for player, kept in self.kept.items():
            self.ended[player] = state.get(f"{player}/ended", 0)
            kept.use = self.use and self.ended[player] > self.start


class LawaTrick(_EpochMean):
    """Averages the ends of the last epochs."""

    def __init__(self, config: Lawa) -> None:
        super().__init__(config)
        self.epochs = config.epochs
        self.ends: dict[str, deque[Sequence[Tensor]]] = {}  # of each player

    def average(self, player: str, averages: list[Tensor], weights: list[Tensor]) -> bool:
        ends = self.ends.setdefault(player, deque(maxlen=self.epochs))
        ends.append([w.clone() for w in weights])
        functional.mean(averages, ends)
        return True

    def state_dict(self) -> dict[str, Any]:
        ends = {
            f"{player}/{number}/{place}": w
            for player, sets in self.ends.items()
            for number, weights in enumerate(sets)
            for place, w in enumerate(weights)
        }
        return {**super().state_dict(), **ends}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for player, kept in self.kept.items():
            ends = self.ends[player] = deque(maxlen=self.epochs)
            device = next(iter(kept.weights.values())).device
            while f"{player}/{len(ends)}/0" in state:
                number, places = len(ends), range(len(kept.weights))
                keys = [f"{player}/{number}/{place}" for place in places]
                ends.append([state[key].to(device) for key in keys if key in state])
            kept.use = self.use and bool(ends)
