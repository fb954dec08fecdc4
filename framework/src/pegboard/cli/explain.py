"""`pegboard explain`"""

from __future__ import annotations

import argparse

HELP = "Print what a config will do: parts, pegs, order of tricks, groups, loss, cost of a step."
EXAMPLE = "pegboard explain configs/quickstart.yaml optimizer.lr=0.01"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="a YAML file")
    parser.add_argument("overrides", nargs="*", default=[], help="values to change, as optimizer.lr=0.01")
    parser.add_argument(
        "--strict", action="store_true", help="what would wait on a GPU in every step is an error"
    )


def run(args: argparse.Namespace) -> int:
    from ..config.check import check

    settings = check(args.config, args.overrides)
    from ..planning.plan import make_plan
    from ..preview.explain import explain

    print(explain(make_plan(settings, read=False), args.strict), end="")
    return 0
