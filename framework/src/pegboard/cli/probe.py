"""`pegboard probe`"""

from __future__ import annotations

import argparse

HELP = "Measure something of a trained run with a probe."
EXAMPLE = "pegboard probe runs/quickstart/latest ridge value=0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder, a checkpoint folder or zoo:NAME")
    parser.add_argument("name", nargs="?", metavar="NAME", help="a probe; without one they are listed")
    parser.add_argument("overrides", nargs="*", default=[], metavar="FIELD=VALUE", help="fields of the probe")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="default: best")
    parser.add_argument("--device", default="auto", help="default: a GPU where there is one")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to run")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    import json

    from ..config.alone import choose
    from ..errors import PegboardError
    from ..parts import ProbePart
    from ..registry import Registry

    registry = Registry.discover(local=args.local).insist(args.local)
    if args.name is None:
        from .show import _kind

        listed = "\n".join(_kind("probe", registry)).rstrip()
        raise PegboardError(f"no probe is named: pegboard probe {args.run} NAME\n{listed}")
    chosen = choose(ProbePart, args.name, args.overrides, registry)  # before torch is imported
    from ..inference import Trained
    from ..report.console import Console

    figures = Trained(args.run, args.checkpoint, args.device, args.local).probe(chosen, args.overrides)
    if args.json:
        print(json.dumps(figures))
    else:
        title = f"{args.run}, {args.checkpoint} checkpoint, {' '.join([args.name, *args.overrides])}"
        Console().table(title, ["figure", "value"], list(figures.items()))
    return 0
