"""`pegboard report`"""

from __future__ import annotations

import argparse

HELP = "Write the page of a run, report.html, anew from its folder, and print where it is."
EXAMPLE = "pegboard report runs/quickstart/latest --open"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--open", action="store_true", help="show it in the browser")


def run(args: argparse.Namespace) -> int:
    from ..store.run_reader import write_report

    path = write_report(args.run)
    print(path)
    if args.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    return 0
