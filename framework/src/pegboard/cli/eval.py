"""`pegboard eval`"""

from __future__ import annotations

import argparse

HELP = "Measure a trained run on a split of its data."
EXAMPLE = "pegboard eval runs/quickstart/latest --split val"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder, a checkpoint folder or zoo:NAME")
    parser.add_argument("--split", choices=("train", "val", "test"), default="test", help="default: test")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="default: best")
    parser.add_argument("--device", default="auto", help="default: a GPU where there is one")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to run")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    import json

    from ..inference.trained import Trained
    from ..report.console import Console

    figures = Trained(args.run, args.checkpoint, args.device, args.local).evaluate(args.split)
    if args.json:
        print(json.dumps({f"{args.split}/{name}": value for name, value in figures.items()}))
    else:
        Console().table(
            f"{args.run}, {args.checkpoint} checkpoint",
            ["split", *figures],
            [[args.split, *figures.values()]],
        )
    return 0
