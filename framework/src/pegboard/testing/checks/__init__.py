"""The checks, a module for each thing they look at; importing this registers them all."""

from . import building, cards, devices, imports, manners, records, running, samples, shapes, stepping

__all__ = [
    "building",
    "cards",
    "devices",
    "imports",
    "manners",
    "records",
    "running",
    "samples",
    "shapes",
    "stepping",
]
