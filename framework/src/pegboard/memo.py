"""What installed plugins were found to offer, kept between commands.

A plugin whose files did not change need not be imported to know that a config names none of its parts.
What is kept is names, found under a digest of the plugin's own record of its files; a plugin without
such a record, as one that is installed for editing, is imported every time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from .version import __version__

MOST = 10_000  # plugins that are kept, those of other environments included
Offers = frozenset[tuple[str, str]]  # kind and name of every part


def key(dist: metadata.Distribution, point: metadata.EntryPoint) -> str | None:
    """What stands for a plugin's files, this core and this Python; None where it keeps no record of them."""
    record = dist.read_text("RECORD") or ""
    path = point.module.replace(".", "/")
    if not any(f"{file},sha256=" in record for file in (f"{path}.py", f"{path}/__init__.py")):
        return None
    what = (__version__, sys.version, record, point.name, point.value)  # the record has the metadata's hash
    return hashlib.sha256("\0".join(what).encode("utf-8", "replace")).hexdigest()


class Memo:
    """The file with what plugins offer; where it cannot be read or written, everything goes on without it."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._changed = False
        with suppress(OSError, ValueError, RuntimeError):
            known = json.loads(_file().read_text("utf-8"))
            self._known = known if isinstance(known, dict) else {}

    def offers(self, key: str | None) -> Offers | None:
        """The parts of a plugin, or None where it has to be imported."""
        with suppress(KeyError, TypeError, ValueError):
            return frozenset((str(kind), str(name)) for kind, name in self._known[key or ""])
        return None

    def keep(self, key: str | None, offers: Collection[tuple[str, str]] | None) -> None:
        """Note what a plugin offers; None forgets it."""
        kept = None if offers is None else sorted(map(list, offers))
        if key is not None and self._known.get(key) != kept:
            self._known[key] = kept
            self._changed = True

    def save(self) -> None:
        """Write beside, then rename, so that no command reads half a file."""
        if not self._changed:
            return
        self._changed = False
        newest = [item for item in self._known.items() if item[1] is not None][-MOST:]
        with suppress(OSError, RuntimeError):
            file = _file()
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f".{file.name}.{os.getpid()}")
            part.write_text(json.dumps(dict(newest)), "utf-8")
            part.replace(file)


def _file() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "pegboard" / "plugins.json"
