"""`pegboard train`"""

from __future__ import annotations

import argparse

HELP = "Train a config and leave a run folder."
EXAMPLE = """pegboard train configs/quickstart.yaml model.hidden=[64] trainer.epochs=5
         pegboard train configs/quickstart.yaml trainer.folds=5
         pegboard train configs/quickstart.yaml trainer.steps=100 --profile"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="a YAML file")
    parser.add_argument("overrides", nargs="*", default=[], help="values to change, as trainer.epochs=5")
    parser.add_argument("--root", default="runs", help="where run folders are made (default: runs)")
    parser.add_argument("--quiet", action="store_true", help="print warnings and errors only")
    parser.add_argument(
        "--profile", action="store_true", help="print where the time went, and write a trace of some steps"
    )


def run(args: argparse.Namespace) -> int:
    from ..config.check import check

    settings = check(args.config, args.overrides)  # before torch is imported: mistakes answer at once
    from pathlib import Path

    from .. import folds
    from ..report.console import Console

    folds.train(settings, Path(args.root), Console(args.quiet), args.profile)
    return 0
