"""Which installed plugins may be imported: what the config, the environment and their user say.

A plugin that is switched off is listed, and none of its code runs. A person's own list is a small text file
with a name on each line, which `pegboard plugins disable` and `enable` write.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import PegboardError
from ..base.files import config_folder, write_text
from ..base.nearest import nearest
from .installed import Plugin, canonical

NONE = "PEGBOARD_NO_PLUGINS"
ONLY = "PEGBOARD_PLUGINS"
DISABLE = "PEGBOARD_PLUGINS_DISABLE"
OWN = "pegboard plugins disable"
NAME = re.compile(r"\w[\w .-]*")
HEAD = "# Plugins that are never imported, a name on each line; by pegboard plugins disable and enable\n"


def matches(word: str, plugin: Plugin) -> bool:
    """Whether a word names a plugin: by its entry point or by its distribution."""
    return word in (plugin.name, plugin.dist) or canonical(word) == plugin.dist


def absent(words: Iterable[str], known: Collection[str]) -> list[str]:
    """Those of the words that name no installed plugin; `known` has their names and distributions."""
    return [word for word in words if word not in known and canonical(word) not in known]


@dataclass(frozen=True)
class Switch:
    """A list of names, and where it stands."""

    source: str
    names: tuple[str, ...]
    allows: bool = False  # whether it names all that may be imported, or what may not
    place: str = ""  # where it stands, in words

    def off(self, plugin: Plugin) -> str:
        """Why it keeps a plugin from being imported, and how to undo that; "" where it does not."""
        word = next((name for name in self.names if matches(name, plugin)), None)
        if self.allows:
            why = f"switched off by {self.source}{self.place}, which does not name it; add it there"
            return why if word is None else ""
        if word is None:
            return ""
        if self.source == OWN:
            return f"switched off by you; undo it: pegboard plugins enable {word}"
        return f"switched off by {self.source}{self.place}; take it out there"


class Switches:
    """All of them together, as they stand now. `disable` and `only` are those of a config."""

    def __init__(self, disable: Sequence[str] = (), only: Sequence[str] | None = None) -> None:
        self.none = os.environ.get(NONE, "") not in ("", "0")
        self.own = read_own()
        allowed = _listed(ONLY)
        self.lists = [
            Switch(DISABLE, _listed(DISABLE)),
            *([Switch(ONLY, allowed, allows=True)] if allowed else []),
            Switch(OWN, self.own.names),
            Switch("plugins.disable", tuple(disable), place=" in the config"),
        ]
        if only is not None:
            self.lists.append(Switch("plugins.only", tuple(only), allows=True, place=" in the config"))
        self.given = self.none or any(switch.names or switch.allows for switch in self.lists)

    def off(self, plugin: Plugin) -> str:
        """Why an installed plugin must not be imported, and how to undo that; "" where it may be."""
        if self.none:
            return f"switched off with all others by --no-plugins or {NONE}=1; leave that out"
        return next(filter(None, (switch.off(plugin) for switch in self.lists)), "")

    def check(self, known: Collection[str]) -> None:
        """Names that are not installed are an error; a person's own list is for other environments too."""
        wrong = [
            f"{switch.source} names the plugin {name!r}, which is not installed." + did_you_mean(name, known)
            for switch in self.lists
            if switch.source != OWN
            for name in absent(switch.names, known)
        ]
        if wrong:
            raise PegboardError("\n".join((*wrong, "List them: pegboard plugins list")))
        if self.own.damage:
            _remark(f"{self.own.damage}; its other lines hold")

    def strays(self, known: Collection[str]) -> list[str]:
        """A remark for each name of the person's own list that is not installed here."""
        return [
            f"{own_file()} names the plugin {name!r}, which is not installed here.{did_you_mean(name, known)}"
            f" Take it out: pegboard plugins enable {name}"
            for name in absent(self.own.names, known)
        ]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    near = nearest(word, known)
    return f" Did you mean {near[0]!r}?" if near else ""


@functools.cache
def _remark(text: str) -> None:
    """Once a process, on standard error."""
    print(f"warning: {text}", file=sys.stderr)


def _listed(variable: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in os.environ.get(variable, "").split(",") if name.strip())


# A person's own list.


@dataclass(frozen=True)
class Own:
    """The plugins that a person switched off for everything they run."""

    names: tuple[str, ...] = ()
    damage: str = ""  # what is wrong with the file


def own_file() -> Path:
    return config_folder() / "disabled-plugins.txt"


def read_own() -> Own:
    """The list; whatever became of its file, this does not raise."""
    try:
        file = own_file()
        lines = file.read_bytes().decode("utf-8", "replace").splitlines()
    except (FileNotFoundError, NotADirectoryError, RuntimeError):  # the last: there is no home
        return Own()
    except OSError as error:
        return Own(damage=f"{file} cannot be read: {error.strerror}")
    words = [word for word in map(str.strip, lines) if word and not word.startswith("#")]
    wrong = [word for word in words if not NAME.fullmatch(word)]
    damage = f"{file} is damaged: {wrong[0][:60]!r} is not the name of a plugin" if wrong else ""
    return Own(tuple(dict.fromkeys(word for word in words if word not in wrong)), damage)


def write_own(names: Iterable[str]) -> Path:
    """Write the list, whole or not at all."""
    try:
        file = Path(os.path.realpath(own_file()))  # where it is a link, the file behind it
    except RuntimeError as error:
        raise PegboardError("there is no home folder to write to; set XDG_CONFIG_HOME") from error
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, HEAD + "".join(f"{name}\n" for name in names))
    return file
