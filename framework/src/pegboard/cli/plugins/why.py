"""`pegboard plugins why`"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...config.nodes import Settings
    from ...contract.tricks import Placed

HELP = "Say in which order the tricks of a config act in each stage of a step, and by which rule."
EXAMPLE = "pegboard plugins why configs/quickstart.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="a YAML file")
    parser.add_argument("overrides", nargs="*", default=[], help="values to change, as trainer.epochs=5")
    parser.add_argument("--json", action="store_true", help="print a JSON object: stage -> tricks in order")


def run(args: argparse.Namespace) -> int:
    from ...config.check import check
    from ...contract.tricks import Use, order

    settings = check(args.config, args.overrides)
    tricks = {k: Use(c.entry.part, c.config, c.players) for k, c in settings.regularizers.items()}  # type: ignore[arg-type]
    placed, _ = order(tricks, getattr(settings.model.entry.part, "pegs", ()))  # checked: without problems
    rows = {stage: [_row(place, settings) for place in places] for stage, places in placed.items()}
    if args.json:
        import json

        print(json.dumps(rows, indent=1))
    else:
        print("\n".join(_lines(rows)))
    return 0


def _row(place: Placed, settings: Settings) -> dict[str, Any]:
    chosen = settings.regularizers[place.key]
    plugin = chosen.entry.plugin
    return {
        "key": place.key,
        "part": chosen.entry.part.name,
        "plugin": plugin.dist,
        "version": plugin.version,
        "role": place.role,
        "rule": place.rule,
        "players": list(chosen.players),
    }


def _lines(rows: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    cells = {
        stage: [(row["key"] + _part(row), row["rule"], f"{row['plugin']} {row['version']}") for row in placed]
        for stage, placed in rows.items()
    }
    wide = [max((len(c[i]) for placed in cells.values() for c in placed), default=0) for i in (0, 1)]
    for stage, placed in cells.items():
        yield stage
        for number, (key, rule, plugin) in enumerate(placed, 1):
            yield f"  {number}  {key:<{wide[0]}}  {rule:<{wide[1]}}  {plugin}"
    if not cells:
        yield "the config has no tricks"


def _part(row: dict[str, Any]) -> str:
    """What the key does not say: the part, where it has another name, and the players."""
    part = "" if row["part"] == row["key"] else f" ({row['part']})"
    return part + (f" on {', '.join(row['players'])}" if row["players"] else "")
