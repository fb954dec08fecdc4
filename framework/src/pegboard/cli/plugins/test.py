"""`pegboard plugins test`: the kit without pytest."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .doctor import printable

if TYPE_CHECKING:
    from ...testing import Case, Kit, Outcome

HELP = "Run the conformance kit on a plugin: every part against every check that applies."
EXAMPLE = "pegboard plugins test pegboard-mlp -k import"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a distribution, an entry point or a Python file")
    parser.add_argument(
        "-k", dest="keep", default="", metavar="TEXT", help="only checks with this in their id"
    )
    parser.add_argument("--strict", action="store_true", help="fail on what is advised and on new checks too")
    parser.add_argument("--json", action="store_true", help="print a JSON list of the outcomes")


def run(args: argparse.Namespace) -> int:
    import sys
    from contextlib import redirect_stdout

    from ...report.console import Console

    kit = _kit(args.name)  # it owns the folder in which parts are tried
    cases = _cases(kit, args.keep)
    progress = Console(quiet=args.json, stream=sys.stderr, unit="check")
    outcomes = []
    progress.start(len(cases))
    try:
        for case in cases:
            with redirect_stdout(sys.stderr):  # standard output is the table's
                outcomes.append(case.run())
            progress.advanced(len(outcomes))
    finally:
        progress.stop()
    failed = [o for o in outcomes if o.stops or (args.strict and o.status == "failed")]
    if args.json:
        import json
        from dataclasses import asdict

        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    else:
        _show(outcomes, failed, Console())
    return 1 if failed else 0


def _kit(name: str) -> Kit:
    from ...testing import Kit
    from ...tools.doctor import require_file

    return Kit(str(require_file(name)) if name.endswith(".py") else name)


def _cases(kit: Kit, keep: str) -> list[Case]:
    """Those with a text in their id; it is an error where there are none."""
    from ...base.errors import PegboardError
    from ...registry.enabled import did_you_mean

    cases = kit.cases()
    kept = [case for case in cases if keep in case.id]
    if not kept:
        near = did_you_mean(keep, [case.check.name for case in cases])
        raise PegboardError(f"no check of {kit.name} has {keep!r} in its id.{near}")
    return kept


def _show(outcomes: Sequence[Outcome], failed: Sequence[Outcome], console: Any) -> None:
    rows = [[o.id, _word(o), printable(o.message.strip().split("\n")[0])] for o in outcomes]
    console.table("", ["check", "outcome", "why"], rows)
    for outcome in outcomes:
        if outcome.status == "failed":
            console.say(printable(f"\n{outcome.id}: {_word(outcome)}\n{outcome.message}"))
    counts = Counter(outcome.status for outcome in outcomes if outcome.status != "failed")
    told = [f"{count} {status}" for status, count in sorted(counts.items())]
    advice = sum(o.status == "failed" for o in outcomes) - len(failed)
    told += [f"{advice} advised otherwise"] if advice else []
    more = f"; {', '.join(told)}" if told else ""
    console.say(f"\n{len(failed)} of {len(outcomes)} checks failed{more}")


def _word(outcome: Outcome) -> str:
    """The outcome, with the level where that decides."""
    required = outcome.status != "failed" or outcome.level == "required"
    return outcome.status if required else f"{outcome.status} ({outcome.level})"
