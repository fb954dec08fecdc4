"""Plugins looked for once: a kit does not install any while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ..registry.discovery import Registry

Found = dict[Any, Registry]


@contextmanager
def plugins_once(found: Found | None = None) -> Iterator[None]:
    """Look for plugins once and not for every config; `found` keeps them from one time to the next."""
    discover: Any = Registry.discover
    kept = {} if found is None else found

    def cached(local: Sequence[Any] = (), **more: Sequence[str] | None) -> Registry:
        names = [(key, given if given is None else tuple(given)) for key, given in sorted(more.items())]
        key = (tuple(map(str, local)), *names)
        if key not in kept:
            kept[key] = discover(local, **more)
        return kept[key]

    with patch.object(Registry, "discover", cached):
        yield
