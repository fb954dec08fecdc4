"""`pegboard plugins`: each action is a small module here."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

HELP = "Look after the plugins: list them, find what is wrong, say why, test them, switch them off and on."
EXAMPLE = "pegboard plugins doctor"
ACTIONS = ("list", "doctor", "why", "test", "disable", "enable")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name in ACTIONS:
        module = _module(name)
        action = actions.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"example: {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(action)


def run(args: argparse.Namespace) -> int:
    return int(_module(args.action).run(args))


def _module(action: str) -> Any:
    return importlib.import_module(f".{action}", __name__)
