"""The checks, a module for each thing they look at; importing this registers them all."""

from . import building, cards, devices, imports, records, running

__all__ = ["building", "cards", "devices", "imports", "records", "running"]
