"""Fields that left the core for plugins: a config or a run of before still has them where they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..registry.discovery import Registry
from .errors import Mistake, flow

if TYPE_CHECKING:
    from .load import Loaded

# What they were before a config said otherwise. Which part has taken one over says its record (`replaces`).
LEFT: dict[str, Any] = {"trainer.clip": None, "trainer.clip_by": "norm", "trainer.ema": None}
SWITCHES = {"trainer.clip_by": "trainer.clip"}  # those without which one has no effect


@dataclass
class Moved:
    """The sections of a config without such fields, with the parts that stand for them."""

    trainer: dict[str, Any]
    regularizers: dict[str, Any]
    places: dict[str, str] = field(default_factory=dict)  # dotted path now -> the one where it was written
    mistakes: list[Mistake] = field(default_factory=list)
    remarks: list[Mistake] = field(default_factory=list)  # what the command line alone leaves without effect

    def without_effect(self, path: str, value: Any, switch: str, loaded: Loaded, begun: bool) -> None:
        """Note a field that belongs to one that is off; a run that has begun is not judged again."""
        message = f"found {value}, but {switch} is null: it has no effect"
        mistake = Mistake(path=path, message=message, expected=f"{LEFT[path]}, or a value of {switch}")
        asked = loaded.locate(path).word is None and loaded.locate(switch).word is not None
        if not begun:
            (self.remarks if asked else self.mistakes).append(mistake)

    def notes(self) -> Iterator[tuple[str, str]]:
        """For each part, the first of the fields that it replaces, and what to write instead."""
        for key in dict.fromkeys(path.split(".")[1] for path in self.places):
            old = self.places[f"regularizers.{key}"]
            new = f"regularizers: {{{key}: {flow(self.regularizers[key])}}}"
            yield old, f"{old} is deprecated: it has become regularizer {key!r}; write {new}"


def move(
    trainer: Mapping[str, Any], regularizers: Mapping[str, Any], loaded: Loaded, by: Registry, begun: bool
) -> Moved:
    """Hand such fields to the parts that have taken them over; those at their old defaults are dropped."""
    moved = Moved(dict(trainer), dict(regularizers))
    given = {path: moved.trainer.pop(_name(path)) for path in LEFT if _name(path) in trainer}
    for path, value in given.items() if "???" not in given.values() else ():
        idle, switch = value == LEFT[path], SWITCHES.get(path, path)
        if idle and loaded.locate(path).word is None:
            continue
        key, name = by.replacement(path) or ("", "")
        if not key:
            moved.trainer[_name(path)] = value  # nothing is known of it: an unknown key like others
        elif regularizers.get(key) is not None:
            new = f"regularizers.{key}"
            hint = f"leave it out, or write {new}{'=null' if value is None else f'.{name}={value}'}"
            message = f"{path} has become {new}.{name}, and {new} is given too"
            moved.mistakes.append(Mistake(path=path, message=message, hint=hint, at_key=True))
        elif idle or key in regularizers:
            continue
        elif given.get(switch) is None:
            moved.without_effect(path, value, switch, loaded, begun)
        else:
            moved.regularizers[key] = {**moved.regularizers.get(key, {}), name: value}
            moved.places.setdefault(f"regularizers.{key}", path)
            moved.places[f"regularizers.{key}.{name}"] = path
    return moved


def _name(path: str) -> str:
    return path.removeprefix("trainer.")
