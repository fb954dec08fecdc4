"""`pegboard schema`"""

from __future__ import annotations

import argparse

HELP = "Print the JSON Schema of configs, with the parts of every installed plugin."
EXAMPLE = "pegboard schema -o pegboard.schema.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="write it to a file")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to add")


def run(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from ..config.schema import schema
    from ..errors import PegboardError
    from ..registry import Registry

    registry = Registry.discover(local=args.local).insist(args.local)
    text = json.dumps(schema(registry), indent=2, ensure_ascii=False)
    if args.output is None:
        print(text)
        return 0
    try:
        Path(args.output).write_text(text + "\n", "utf-8")
    except OSError as error:
        raise PegboardError(f"cannot write {args.output}: {error.strerror}") from error
    return 0
