"""Every record of a plugin against every check that applies to it. Needs no pytest.

A check is a function of a `Subject`, decorated with `check`: it raises `Failed` with one clear message, or
`Skipped` where it says nothing about this record. What it is called is what its author reads in a report
and writes after `-k`.
"""

from __future__ import annotations

import os
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pluggy

from ..base.errors import PegboardError
from ..base.nearest import nearest
from ..base.version import __version__
from ..contract.kinds import KINDS
from ..registry.discovery import Entry, Registry
from ..registry.installed import Plugin
from .discovery import plugins_once
from .subjects import PARTNERS, Subject

Level = Literal["required", "advised", "new"]
ALL = tuple(KINDS)
CORE = Path(__file__).parents[1]
LIBRARIES = tuple({sysconfig.get_path("stdlib"), str(Path(pluggy.__file__).parents[1] / "torch")})
STEP = tuple(name for name, kind in KINDS.items() if kind.in_step)  # kinds that act in a training step


class Failed(PegboardError):
    """A check found something; the text says what, where and how to mend it."""


class Skipped(Exception):
    """A check has nothing to say about this record; the text says why."""


@dataclass(frozen=True)
class Check:
    """One rule that plugins keep."""

    name: str
    kinds: tuple[str, ...]  # kinds of part it applies to; ("plugin",) is the plugin as a whole
    run: Callable[[Subject], None] = field(repr=False)
    declared: Level = "required"
    since: str = ""  # the release that added it, where that is not the first

    @property
    def about(self) -> str:
        """The first line of its docstring."""
        return (self.run.__doc__ or "").strip().split("\n")[0]

    @property
    def level(self) -> Level:
        """A check that came with this minor release warns until the next one."""
        return "new" if self.since and _minor(self.since) == _minor(__version__) else self.declared


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


CHECKS: dict[str, Check] = {}


def check(
    *kinds: str, level: Level = "required", since: str = ""
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Make a function a check of these kinds of part; of none: of the plugin as a whole."""

    def register(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
        CHECKS[function.__name__] = Check(function.__name__, kinds or ("plugin",), function, level, since)
        return function

    return register


@dataclass(frozen=True)
class Outcome:
    """What came of a check."""

    id: str
    level: Level
    status: Literal["passed", "failed", "skipped", "declared"]
    message: str = ""

    @property
    def stops(self) -> bool:
        """Whether a plugin with this outcome does not pass."""
        return self.status == "failed" and self.level == "required"


@dataclass(frozen=True)
class Case:
    """One check of one record, or of the plugin as a whole."""

    subject: Subject
    check: Check
    declared: str = ""  # why it is known to fail

    @property
    def id(self) -> str:
        part = self.subject.entry.part if self.subject.entry else None
        return f"{part.kind}-{part.name}-{self.check.name}" if part else f"plugin-{self.check.name}"

    def run(self) -> Outcome:
        """Run the check; a failure that is declared must happen."""
        try:
            with plugins_once(self.subject.shared.setdefault("discovered", {})):
                self.check.run(self.subject)
        except Skipped as why:
            return self._came("skipped", str(why))
        except PegboardError as error:
            return self._came("declared" if self.declared else "failed", str(error))
        except (Exception, SystemExit) as error:  # of the part, in the midst of a step
            message = f"{self.subject.what}: {told(error, self.subject.folders, self.check.about)}"
            return self._came("declared" if self.declared else "failed", message)
        if self.declared:
            return Outcome(self.id, "required", "failed", f"declared to fail ({self.declared}), but passes")
        return self._came("passed")

    def _came(self, status: Any, message: str = "") -> Outcome:
        return Outcome(self.id, self.check.level, status, message)


# What the core was doing when it called a function of a part, by the name of that function.
PHASES = {
    "forward": "in the forward pass",
    "gather": "while samples were read",
    "__len__": "while samples were counted",
    "to": "while it was moved to a device",
    "loss": "while its loss was computed",
    "evaluate": "while its loss was computed",
    "players": "while it was asked for its players",
    "metrics": "while it was asked for its metrics",
    "update": "in an update",
    "compute": "while a metric was computed",
    "predict": "while outputs were put into columns",
    "tables": "while an evaluation was summed up",
    "step": "in a step of the optimizer",
    "measure": "while it measured",
    "solve": "while it looked for the optimum",
    "sample": "while samples were generated",
    "state_dict": "while its state was saved",
    "load_state_dict": "while its state was loaded",
}


def told(error: BaseException, own: Sequence[str] = (), doing: str = "") -> str:
    """An exception of a part in one line: when it was raised, and by which line of its source.

    `own` are the folders or files of the part, `doing` is what the kit was about.
    """
    from traceback import extract_tb

    frames = extract_tb(error.__traceback__)
    outside = [f for f in frames if not f.filename.startswith((str(CORE), *LIBRARIES, "<"))]
    mine = [f for f in outside if f.filename.startswith(tuple(own))] if own else []
    text = str(error).strip().splitlines()[0] if str(error).strip() else ""
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if not (shown := mine or outside):
        at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "the core"
        about = f" The check was: {doing}" if doing else ""
        return f"what it gave could not be used.{about} It ended at {at} with {what}"
    first, last = shown[0], shown[-1]
    during = PHASES.get(first.name) or f"in {first.name}"
    line = f" in the line `{last.line}`" if last.line else ""
    return f"{during}, {what} ({last.filename}:{last.lineno}{line and ',' + line})"


class Kit:
    """The cases of one plugin: named by its distribution, its entry point or the path of a local file."""

    def __init__(self, plugin: str, fails: Mapping[str, str] | None = None) -> None:
        # A config that names a local file names it by its absolute path.
        self.name = os.path.abspath(plugin) if plugin.endswith(".py") else plugin
        self.fails = dict(fails or {})
        self._room = tempfile.TemporaryDirectory(prefix="pegboard-kit-", ignore_cleanup_errors=True)

    @cached_property
    def registry(self) -> Registry:
        local = [self.name] if self.name.endswith(".py") else []
        return Registry.discover(local=[*local, str(PARTNERS)])

    @cached_property
    def plugin(self) -> Plugin:
        for plugin in self.registry.plugins:
            if self.name in (plugin.name, plugin.dist):
                return plugin
        known = sorted({p.dist for p in self.registry.plugins if p.version != "local"})
        near = nearest(self.name, known)
        raise PegboardError(
            f"no plugin {self.name!r} is installed"
            + (f"; did you mean {near[0]!r}?" if near else "")
            + "\nlist them: pegboard plugins list"
        )

    def subjects(self) -> list[Subject]:
        """The plugin as a whole, and each of its parts."""
        folder = Path(self._room.name).resolve()
        entries = [None, *(Entry(part, self.plugin) for part in self.plugin.parts)]
        shared: dict[str, Any] = {}
        return [Subject(self.plugin, entry, self.registry, folder, shared) for entry in entries]

    def cases(self) -> list[Case]:
        """All of them, the plugin as a whole first; a declared failure that names none is an error."""
        found = list(self._cases())
        ids = [case.id for case in found]
        for name in self.fails:
            if name not in ids:
                near = nearest(name, ids)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise PegboardError(f"no check of {self.name} is called {name!r}{hint}")
        return found

    def _cases(self) -> Iterator[Case]:
        for subject in self.subjects():
            kind = subject.part.kind if subject.entry else "plugin"
            for rule in CHECKS.values():
                if kind in rule.kinds:
                    case = Case(subject, rule)
                    yield Case(subject, rule, self.fails.get(case.id, ""))
