"""Whether the players that a config names are those that there are. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..base.nearest import nearest
from ..config.check import written
from ..config.errors import ConfigError, Mistake, join, listed
from ..config.load import locate
from ..config.nodes import Settings
from ..contract.results import Player


def check_players(settings: Settings, players: Sequence[Player]) -> None:
    """Refuse unknown names and tricks on targets for players that learn none, all at once."""
    if wrong := [*_unknown(settings, players), *_without_target(settings, players)]:
        loaded = written(settings)
        raise ConfigError([locate(m, loaded) for m in wrong], f"config {settings.name!r}")


def _unknown(settings: Settings, players: Sequence[Player]) -> Iterator[Mistake]:
    names = [player.name for player in players]
    named = [
        (f"regularizers.{k}.players.{i}", p)
        for k, c in settings.regularizers.items()
        for i, p in enumerate(c.players)
    ]
    named += [(join("optimizer.players", player), player) for player in settings.player_optimizers]
    for path, player in named:
        if player not in names:
            yield Mistake(
                path=path,
                message=f"there is no player {player!r}: the players are {listed(names)}",
                nearest=tuple(nearest(player, names)),
                at_key=path.startswith("optimizer."),
            )


def _without_target(settings: Settings, players: Sequence[Player]) -> Iterator[Mistake]:
    learning = [player.name for player in players if player.learns]
    for key, chosen in settings.regularizers.items():
        part: Any = chosen.entry.part
        own = chosen.players or tuple(player.name for player in players)
        if set(part.stages) == {"edit_target"} and not set(own) & set(learning):
            yield Mistake(
                path=join("regularizers", key),
                message=f"{key} found nothing to act on: it edits targets, and none is learned by "
                f"{' or '.join(own)}; players that learn one: {', '.join(learning) or 'none'}",
                at_key=True,
            )
