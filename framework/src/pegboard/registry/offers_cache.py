"""What installed plugins were found to offer, kept between commands.

A plugin whose files did not change need not be imported to know that a config names none of its parts.
What is kept is names, found under a digest of the plugin's metadata and the time stamp of its module; of one
that is installed for editing, of all its Python files. A name that is not found among what is kept makes all
plugins be imported, so that nothing is missed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Collection
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..base.files import cache_folder, write_text
from ..base.version import __version__

MOST = 10_000  # plugins that are kept, those of other environments included
_OTHERS = re.compile(r"^Requires-Dist:[ \t]*(pegboard-[\w-]+)", re.M)  # plugins that it offers more with
Offers = frozenset[tuple[str, str]]  # kind and name of every part


def key(dist: metadata.Distribution, point: metadata.EntryPoint) -> str | None:
    """What stands for a plugin's files, this core and this Python; None where its files are not found."""
    try:
        path = point.module.replace(".", "/")
        stamp = _stamp(dist, f"{path}/__init__.py") or _stamp(dist, f"{path}.py") or _edited(point.module)
        if not stamp:
            return None
        head = dist.read_text("METADATA") or ""
        beside = [find_spec(name.replace("-", "_")) is not None for name in _OTHERS.findall(head)]
        what = (__version__, sys.version, head, stamp, point.name, point.value, beside)
    except (OSError, ValueError):
        return None
    return hashlib.sha256("\0".join(map(str, what)).encode("utf-8", "replace")).hexdigest()


def _stamp(dist: metadata.Distribution, file: str) -> tuple[int, int] | None:
    """When a file of a distribution was changed, and its size."""
    try:
        found = os.stat(str(dist.locate_file(file)))
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _edited(module: str) -> list[tuple[str, int, int]]:
    """The Python files of a package that is installed for editing, when each was changed, and its size."""
    package = module.partition(".")[0]
    for folder in filter(os.path.isdir, sys.path):
        root = os.path.join(folder, package)
        if os.path.isfile(os.path.join(root, "__init__.py")):
            files = [
                os.path.join(inner, name)
                for inner, folders, names in os.walk(root)
                if "__pycache__" not in inner and folders.sort() is None
                for name in sorted(names)
                if name.endswith(".py")
            ]
            return [(file, found.st_mtime_ns, found.st_size) for file in files for found in [os.stat(file)]]
    return []


class Memo:
    """The file with what plugins offer; where it cannot be read or written, everything goes on without it."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._changed = False
        with suppress(OSError, ValueError, RuntimeError):
            known = json.loads(_file().read_text("utf-8"))
            self._known = known if isinstance(known, dict) else {}

    def lookup(
        self, dist: metadata.Distribution, point: metadata.EntryPoint
    ) -> tuple[str | None, Offers | None]:
        """The key of a plugin, and its parts, or None where it has to be imported."""
        known = key(dist, point)
        with suppress(KeyError, TypeError, ValueError):
            return known, frozenset([(str(kind), str(name)) for kind, name in self._known[known or ""]])
        return known, None

    def keep(self, key: str | None, offers: Collection[tuple[str, str]] | None) -> None:
        """Note what a plugin offers; None forgets it."""
        kept = None if offers is None else sorted(map(list, offers))
        if key is not None and self._known.get(key) != kept:
            self._known[key] = kept
            self._changed = True

    def save(self) -> None:
        """Write what is new, where there is a place for it."""
        if not self._changed:
            return
        self._changed = False
        newest = [item for item in self._known.items() if item[1] is not None][-MOST:]
        with suppress(OSError, RuntimeError):
            file = _file()
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(dict(newest)))


def _file() -> Path:
    return cache_folder() / "plugins.json"
