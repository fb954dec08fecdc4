"""`pegboard train`"""

from __future__ import annotations

import argparse

from .resume import add_insistence

HELP = "Train a config and leave a run folder."
EXAMPLE = """pegboard train configs/quickstart.yaml model.hidden=[64] trainer.epochs=5
         pegboard train configs/quickstart.yaml trainer.folds=5
         pegboard train configs/quickstart.yaml trainer.steps=100 --profile
         pegboard train configs/quickstart.yaml trainer.epochs=40 --from runs/quickstart/latest"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="a YAML file")
    parser.add_argument("overrides", nargs="*", default=[], help="values to change, as trainer.epochs=5")
    parser.add_argument("--root", default="runs", help="where run folders are made (default: runs)")
    parser.add_argument(
        "--from", dest="origin", metavar="RUN", help="go on from where this run stands, in a new folder"
    )
    add_insistence(parser)
    parser.add_argument("--quiet", action="store_true", help="print warnings and errors only")
    parser.add_argument(
        "--strict", action="store_true", help="what would wait on a GPU in every step is an error"
    )
    parser.add_argument(
        "--profile", action="store_true", help="print where the time went, and write a trace of some steps"
    )


def run(args: argparse.Namespace) -> int:
    if args.profile:
        return _profiled(args)
    from ..config.check import check

    settings = check(args.config, args.overrides)  # before torch is imported: mistakes answer at once
    from pathlib import Path

    from ..report.console import Console

    console, root = Console(args.quiet), Path(args.root)
    if args.origin:
        from ..run.resume import Resumption, continue_run

        how = Resumption(overrides=args.overrides, other_data=args.other_data, inexact=args.inexact)
        continue_run(settings, Path(args.origin), root, console, how)
        return 0
    from ..run.training import Manner
    from ..tools import cross_validation

    cross_validation.train(settings, root, console, Manner(strict=args.strict))
    return 0


def _profiled(args: argparse.Namespace) -> int:
    """The same under a clock, which runs before anything else is imported."""
    from ..tools.ledger import Ledger

    with Ledger(args.process) as ledger:
        with ledger.phase("check"):
            from ..config.check import check

            settings = check(args.config, args.overrides)
        from pathlib import Path

        from ..base.errors import PegboardError
        from ..report.console import Console

        if args.origin:
            raise PegboardError("--profile is for a run from its beginning: leave --from or --profile out")
        from ..run.training import Manner
        from ..tools import cross_validation

        ledger.console = Console(args.quiet)
        cross_validation.train(settings, Path(args.root), ledger.console, Manner(ledger, args.strict))
    return 0
