"""Whether the players that a config names are those that there are. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .config.nodes import Settings
from .contracts import Player
from .errors import PegboardError
from .nearest import nearest


def check_players(settings: Settings, players: Sequence[Player]) -> None:
    """Refuse unknown names, all at once, and tricks on targets for players that learn none."""
    names = [player.name for player in players]
    named = {f"regularizers.{key}.players": chosen.players for key, chosen in settings.regularizers.items()}
    named["optimizer.players"] = tuple(settings.player_optimizers)
    wrong = [_unknown(path, name, names) for path, of in named.items() for name in of if name not in names]
    if wrong:
        raise PegboardError("\n".join(wrong))
    learning = [player.name for player in players if player.learns]
    for key, chosen in settings.regularizers.items():
        part: Any = chosen.entry.part
        own = chosen.players or names
        if set(part.stages) == {"edit_target"} and not set(own) & set(learning):
            raise PegboardError(
                f"regularizers.{key} found nothing to act on: it edits targets, and none is learned by "
                f"{' or '.join(own)}; players that learn one: {', '.join(learning) or 'none'}"
            )


def _unknown(path: str, name: str, names: Sequence[str]) -> str:
    near = nearest(name, names, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"{path} names {name!r}, but the players are {', '.join(names)}{meant}"
