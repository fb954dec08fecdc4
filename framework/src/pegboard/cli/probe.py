"""`pegboard probe`"""

from __future__ import annotations

import argparse

HELP = "Measure something of a trained run with a probe."
EXAMPLE = """pegboard probe runs/quickstart/latest ridge value=0.1
         pegboard probe runs/translate/latest alignment --plot"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder, a checkpoint folder or zoo:NAME")
    parser.add_argument("name", nargs="?", metavar="NAME", help="a probe; without one they are listed")
    parser.add_argument("overrides", nargs="*", default=[], metavar="FIELD=VALUE", help="fields of the probe")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="default: best")
    parser.add_argument("--device", default="auto", help="default: a GPU where there is one")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to run")
    parser.add_argument("--plot", action="store_true", help="draw what it saw, where it has a picture")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="a .png or .svg file for the picture, replaced if it is there; else NAME.png",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    import json

    from ..base.errors import PegboardError
    from ..config.one_part import choose
    from ..contract.records import ProbePart
    from ..registry.discovery import Registry
    from .show import picture_path

    if args.out and not args.plot:
        raise PegboardError("--out is for a picture: add --plot")
    registry = Registry.discover(local=args.local).insist(args.local)
    if args.name is None:
        from .show import _kind

        listed = "\n".join(_kind("probe", registry)).rstrip()
        raise PegboardError(f"no probe is named: pegboard probe {args.run} NAME\n{listed}")
    chosen = choose(ProbePart, args.name, args.overrides, registry)  # before torch is imported
    picture = picture_path(args.out, chosen.entry.part.name) if args.plot else None
    from ..inference.trained import Trained
    from ..report.console import Console

    trained = Trained(args.run, args.checkpoint, args.device, args.local)
    figures = trained.probe(chosen, args.overrides, picture)
    if args.json:
        print(json.dumps(figures))
    else:
        title = f"{args.run}, {args.checkpoint} checkpoint, {' '.join([args.name, *args.overrides])}"
        Console().table(title, ["figure", "value"], list(figures.items()))
        if picture is not None:
            print(f"picture     {picture}")
    return 0
