"""`pegboard plugins doctor`"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...tools.doctor import Examined

HELP = "Look at plugins, each in a process of its own, and say what is wrong and what to do."
EXAMPLE = "pegboard plugins doctor pegboard-mlp --limit 5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="plugins, distributions or Python files (default: all)"
    )
    parser.add_argument(
        "--limit",
        type=_seconds,
        default=20.0,
        metavar="SECONDS",
        help="how long a plugin may take (default: 20)",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 on remarks too")
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number of seconds, as 20")
    return value


def run(args: argparse.Namespace) -> int:
    import sys

    from ...report.console import Console
    from ...tools.doctor import examine

    progress = Console(quiet=args.json, stream=sys.stderr, unit="plugin")

    def tell(done: int, of: int) -> None:
        if done:
            progress.advanced(done)
        elif of:
            progress.start(of)

    try:
        looked = examine(args.names, args.limit, tell)
    finally:
        progress.stop()
    if args.json:
        import json

        print(json.dumps([_record(one) for one in looked], indent=1))
    else:
        _show(looked, Console())
    counted = [f for one in looked for f in one.findings if f.wrong or (args.strict and f.kind != "disabled")]
    return 1 if counted else 0


def _record(one: Examined) -> dict[str, Any]:
    from dataclasses import asdict

    return {"verdict": one.verdict, **asdict(one)}


def _show(looked: Sequence[Examined], console: Any) -> None:
    rows = [
        [one.name, one.verdict, f"{one.dist} {one.version}", f"{one.milliseconds:.0f} ms", len(one.parts)]
        for one in looked
    ]
    console.table("", ["plugin", "verdict", "distribution", "import", "parts"], rows)
    for one in looked:
        for line in _block(one):
            console.say(printable(line))
    wrong = sum(one.verdict == "wrong" for one in looked)
    remarks = sum(one.verdict == "remark" for one in looked)
    told = f"{wrong} of {len(looked)} plugins have something wrong" if wrong else "nothing is wrong"
    console.say(f"\n{told}" + (f"; there are remarks on {remarks}" if remarks else ""))


def _block(one: Examined) -> Iterator[str]:
    """What was found of a plugin, and what to do."""
    if one.findings:
        yield f"\n{one.dist} {one.version}" + (f", plugin {one.name}" if one.name else "")
    for finding in one.findings:
        yield f"  {'wrong' if finding.wrong else 'remark'}: {finding.kind}: {finding.text}"
        if finding.hint:
            yield f"    to mend it: {finding.hint}"


def printable(line: str) -> str:
    """A line in which nothing can talk to the terminal: what a plugin says is a stranger's."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in line)
