"""`pegboard eval`"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

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
    from ..run.diagnosis import beside
    from ..run.finish import unmeasured

    console, split = Console(), args.split
    trained = Trained(args.run, args.checkpoint, args.device, args.local)
    figures = trained.evaluate(split)
    rules = trained.rules(split, partial(unmeasured, console))
    if args.json:
        found: dict[str, Any] = {f"{split}/{name}": value for name, value in figures.items()}
        if rules:
            found["baselines"] = {
                rule: {f"{split}/{name}": value for name, value in of.items()} for rule, of in rules.items()
            }
        print(json.dumps(found))
        return 0
    rows = [[split, *figures.values()]]
    rows += [[f"{split}, {rule}", *(of[name] for name in figures)] for rule, of in rules.items()]
    console.table(f"{args.run}, {args.checkpoint} checkpoint", ["split", *figures], rows)
    compared = beside({split: figures}, {rule: {split: of} for rule, of in rules.items()})
    if compared is not None:
        console.say(f"baselines   {compared}")
    return 0
