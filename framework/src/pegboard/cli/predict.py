"""`pegboard predict`"""

from __future__ import annotations

import argparse

HELP = "Predict with a trained run: for a table of new rows, or for a split of its data."
EXAMPLE = "pegboard predict runs/quickstart/latest --input rows.csv -o predictions.csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder, a checkpoint folder or zoo:NAME")
    parser.add_argument("--input", help="a .csv, .json or .jsonl table with the columns of the data")
    parser.add_argument("--split", choices=("train", "val", "test"), default="test", help="without --input")
    parser.add_argument("-o", "--output", help="a .csv or .json file (default: print CSV)")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="default: best")
    parser.add_argument("--device", default="auto", help="default: a GPU where there is one")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to run")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from ..inference import Trained, read_table, write_table

    table = read_table(Path(args.input)) if args.input else None
    trained = Trained(args.run, args.checkpoint, args.device, args.local)
    source = trained.source(args.split) if table is None else trained.encode(table, args.input)
    text = write_table(trained.predict(source), Path(args.output) if args.output else None)
    print(
        f"{len(source)} predictions in {args.output}" if args.output else text,
        end="\n" if args.output else "",
    )
    return 0
