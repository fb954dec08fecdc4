"""`pegboard plugins`"""

from __future__ import annotations

import argparse

HELP = "List the plugins: status, distribution, version, parts, import time."
EXAMPLE = "pegboard plugins list --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help=HELP, epilog=f"example: {EXAMPLE}")
    listing.add_argument("--json", action="store_true", help="print a JSON list")
    listing.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to add")


def run(args: argparse.Namespace) -> int:
    from ..registry import Registry

    plugins = Registry.discover(local=args.local).plugins
    if args.json:
        import json

        print(json.dumps([_record(p) for p in plugins], indent=1))
        return 0
    from ..report.console import Console

    rows = [
        [
            p.name,
            p.state,
            f"{p.dist} {p.version}",
            f"{p.milliseconds:.1f} ms",
            "; ".join(filter(None, (", ".join(_parts(p)), p.reason))),
        ]
        for p in plugins
    ]
    Console().table("", ["plugin", "status", "distribution", "import", "parts, or what is wrong"], rows)
    return 0


def _parts(plugin: object) -> list[str]:
    return [f"{part.kind} {part.name}" for part in getattr(plugin, "parts", ())]


def _record(plugin: object) -> dict[str, object]:
    fields = ("name", "dist", "version", "status", "phase", "reason", "milliseconds")
    return {name: getattr(plugin, name) for name in fields} | {"parts": _parts(plugin)}
