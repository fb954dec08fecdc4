"""`pegboard resume`"""

from __future__ import annotations

import argparse

HELP = "Go on with a run that was interrupted, from its last checkpoint."
EXAMPLE = "pegboard resume runs/quickstart/latest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to run")
    parser.add_argument(
        "--other-data", action="store_true", help="go on although the data is not that of the run"
    )
    parser.add_argument("--quiet", action="store_true", help="print warnings and errors only")


def run(args: argparse.Namespace) -> int:
    from ..api import resume

    resume(args.run, quiet=args.quiet, local=args.local, other_data=args.other_data)
    return 0
