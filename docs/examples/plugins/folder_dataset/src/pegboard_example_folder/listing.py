"""What stands in a folder, by names alone: enough to check a config, and to say who is in which split."""

from __future__ import annotations

import hashlib
import os
from typing import Literal

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


def find_classes(folder: str) -> list[str]:
    """The folders with a picture in them, sorted: their numbers do not depend on the file system."""
    with os.scandir(os.path.expanduser(folder)) as entries:
        names = [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    return [name for name in sorted(names) if pictures(folder, name, first=True)]


def pictures(folder: str, name: str, *, first: bool = False) -> list[str]:
    """The names of the pictures of a class, sorted; with `first` no more than one of them."""
    found = []
    with os.scandir(os.path.join(os.path.expanduser(folder), name)) as entries:
        for entry in entries:
            if entry.name.lower().endswith(SUFFIXES) and entry.is_file():
                found.append(entry.name)
                if first:
                    break
    return sorted(found)


def split_of(name: str, val: float, test: float) -> Literal["train", "val", "test"]:
    """Where a picture belongs, by its name alone: a new file never moves another one.

    Its hash is as good as a number drawn from 0 to 1, and the same on every machine.
    """
    drawn = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) / 2**64
    return "test" if drawn < test else "val" if drawn < test + val else "train"
