"""What importing a plugin does to the process it is imported in, seen from outside."""

from __future__ import annotations

import functools
import os
from unittest.mock import patch

from ...tools.isolated_import import Imported, import_alone
from ..kit import Failed, check
from ..subjects import Subject

OWN = 50.0  # milliseconds of the processor that a light module may take for itself
TRIES = 6  # of a measurement on a machine that does other things too


# As it was before any plugin was imported here, and without a tracer, which takes time.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("COV")}


def _alone(target: str) -> Imported:
    with patch.dict(os.environ, ENVIRONMENT, clear=True):
        return import_alone(target)


_seen = functools.cache(_alone)


def _imported(subject: Subject) -> Imported:
    """The plugin in a process of its own, once for all checks."""
    return _seen(subject.plugin.target)


@check()
def import_is_light(subject: Subject) -> None:
    """Its light module imports no large library: neither torch nor numpy."""
    if heavy := _imported(subject).heavy:
        raise Failed(
            f"{subject.what} imports {', '.join(heavy)} when it is imported; import them inside the build "
            "functions, and for types under `if TYPE_CHECKING:`"
        )


@check()
def import_is_quiet(subject: Subject) -> None:
    """Nothing is printed when it is imported."""
    if printed := _imported(subject).printed.strip():
        raise Failed(f"{subject.what} prints when it is imported: {printed.splitlines()[0]!r}")


@check()
def import_is_quick(subject: Subject) -> None:
    """Its own import takes less than 50 milliseconds of the processor."""
    taken = _imported(subject).milliseconds
    for _ in range(TRIES):
        if taken <= OWN:
            return
        taken = min(taken, _alone(subject.plugin.target).milliseconds)
    raise Failed(
        f"the import of {subject.what} takes {taken:.0f} ms of its own, more than {OWN:.0f}; every command "
        "waits for it. Import what it needs inside the build functions"
    )


@check()
def import_draws_nothing(subject: Subject) -> None:
    """No random number is drawn when it is imported."""
    if _imported(subject).drew:
        raise Failed(
            f"{subject.what} draws from Python's random stream when it is imported; a build function has "
            "context.generator()"
        )


@check()
def import_asks_no_network(subject: Subject) -> None:
    """No address is looked up or called when it is imported."""
    if asked := _imported(subject).network:
        raise Failed(f"{subject.what} asks the network when it is imported: {', '.join(asked)}")


@check()
def import_changes_nothing(subject: Subject) -> None:
    """Nothing global is changed when it is imported: environment, paths, warnings, signals, files."""
    if changed := _imported(subject).changed:
        raise Failed(f"the import of {subject.what} changes {', '.join(changed)}")
