"""`pegboard schema`"""

from __future__ import annotations

import argparse

HELP = "Write the JSON Schema of configs, with the parts of every installed plugin, for editors."
EXAMPLE = "pegboard schema -o configs/pegboard.schema.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="write it to a file")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to add")


def run(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from ..base.errors import PegboardError
    from ..config.schema import HEADER, schema
    from ..registry.discovery import Registry

    registry = Registry.discover(local=args.local).insist(args.local)
    text = json.dumps(schema(registry), indent=2, ensure_ascii=False)
    if args.output is None:
        print(text)
        return 0
    path = Path(args.output)
    try:
        path.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise PegboardError(f"cannot write {path}: {error.strerror}") from error
    print(f"wrote {path}. Editors with a YAML language server use it in configs that begin with this line")
    print(f"(a path is relative to the config):\n{HEADER}{path.name}")
    return 0
