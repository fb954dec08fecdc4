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
    """Make a link to what lies beside it under the name `target`, in one operation."""
    fresh = beside(link)
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(target)
        fresh.replace(link)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise


def cache_folder() -> Path:
    """Where things are kept between commands that can be made again; RuntimeError where there is no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pegboard"


def config_folder() -> Path:
    """Where a person's own settings are; RuntimeError where there is no home."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pegboard"
