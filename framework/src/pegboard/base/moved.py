"""Public names that left the core: each with the module of a plugin that has it, and since when."""

from __future__ import annotations

GRAPHS = "Asked Bounds EdgeFeatures Edges Graph GraphSet Nodes WholeGraph sampled"
MOVED = {
    name: (module, since)
    for module, since, names in (
        ("pegboard_generation", "0.3", "beam_search extend"),
        ("pegboard_gnn", "0.3", GRAPHS),
        ("pegboard_transformer", "0.3", "Masked Span"),
    )
    for name in names.split()
}


def owner(name: str) -> str:
    """The distribution that has a name which the core had; "" for any other."""
    return MOVED[name][0].replace("_", "-") if name in MOVED else ""
