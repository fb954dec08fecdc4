"""`pegboard resume`"""

from __future__ import annotations

import argparse

HELP = "Go on with a run that was interrupted, or with a finished one to another length."
EXAMPLE = """pegboard resume runs/quickstart/latest
         pegboard resume runs/quickstart/latest trainer.epochs=40"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    parser.add_argument("overrides", nargs="*", default=[], help="values to change, as trainer.epochs=40")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to run")
    add_insistence(parser)
    parser.add_argument("--quiet", action="store_true", help="print warnings and errors only")


def add_insistence(parser: argparse.ArgumentParser) -> None:
    """The options that say that what speaks against going on is meant."""
    parser.add_argument(
        "--other-data", action="store_true", help="go on although the data is not that of the run"
    )
    parser.add_argument(
        "--inexact",
        action="store_true",
        help="go on although it will not end as if asked for from the beginning",
    )


def run(args: argparse.Namespace) -> int:
    from ..tools.api import resume

    resume(
        args.run,
        quiet=args.quiet,
        local=args.local,
        overrides=args.overrides,
        other_data=args.other_data,
        inexact=args.inexact,
    )
    return 0
