"""`pegboard plugins list`"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .doctor import printable

if TYPE_CHECKING:
    from ...registry.installed import Plugin

HELP = "List the plugins: status, distribution, version, parts, import time."
EXAMPLE = "pegboard plugins list --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to add")


def run(args: argparse.Namespace) -> int:
    import sys

    from ...registry.discovery import Registry
    from ...registry.enabled import Switches

    plugins = Registry.discover(local=args.local).plugins
    if args.json:
        import json

        print(json.dumps([_record(p) for p in plugins], indent=1))
        return 0
    from ...report.console import Console

    rows = [
        [
            p.name,
            p.state,
            f"{p.dist} {p.version}",
            f"{p.milliseconds:.1f} ms",
            printable("; ".join(filter(None, (", ".join(p.offered), p.reason)))),
        ]
        for p in plugins
    ]
    Console().table("", ["plugin", "status", "distribution", "import", "parts, or what is wrong"], rows)
    for remark in Switches().strays({name for p in plugins for name in (p.name, p.dist)}):
        print(f"warning: {remark}", file=sys.stderr)
    return 0


def _record(plugin: Plugin) -> dict[str, Any]:
    fields = ("name", "dist", "version", "status", "phase", "reason", "milliseconds")
    return {name: getattr(plugin, name) for name in fields} | {"parts": plugin.offered}
