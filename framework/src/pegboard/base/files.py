"""Files that are written whole or not at all, links that are replaced at once, and a person's own folders."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write beside, then rename, so that a reader never sees half a file, nor one of two writers at once."""
    part = beside(path)
    try:
        part.unlink(missing_ok=True)  # in a folder from a stranger it may be a link that leads elsewhere
        part.write_text(text, "utf-8", errors="backslashreplace")  # a path may hold what UTF-8 has not
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write an object as JSON, whole or not at all."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def beside(path: Path) -> Path:
    """Where this process writes a file before it gets its name."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def point(link: Path, target: str) -> None:
    """Make a link to what lies beside it under the name `target`, in one operation.

    Where the system, the disk or the user may make none, it is a file that holds the name; `follow` reads it.
    """
    fresh = beside(link)
    fresh.unlink(missing_ok=True)
    try:
        try:
            fresh.symlink_to(target)
        except (NotImplementedError, OSError):
            fresh.write_text(target, "utf-8")
        fresh.replace(link)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise


def follow(path: Path) -> Path:
    """A path through links that `point` had to write as files; any other path as it is."""
    for place in (path, *path.parents):
        if os.path.isdir(place):
            return path
        if (target := _written_link(place)) is not None:
            return follow(target / path.relative_to(place))
    return path


def _written_link(place: Path) -> Path | None:
    """The folder beside a file that holds nothing but its name."""
    if place.suffix or not os.path.isfile(place):
        return None
    try:
        with place.open(encoding="utf-8") as file:
            name = file.read(256)
    except (OSError, ValueError):
        return None
    named = name not in ("", ".", "..") and not set(name) & set("/\\:\0\n")
    target = place.with_name(name) if named else place
    return target if os.path.isdir(target) else None


def cache_folder() -> Path:
    """Where things are kept between commands that can be made again; RuntimeError where there is no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pegboard"


def config_folder() -> Path:
    """Where a person's own settings are; RuntimeError where there is no home."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pegboard"
