"""`pegboard compare`"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tools.compare import Comparison, Difference, History

HELP = "Say what differs between two runs: config, plugins, data, environment, history, weights."
EXAMPLE = "pegboard compare runs/quickstart/20261116-101500-3fa9c1 runs/quickstart/latest"
_LISTED = 8  # differences of a section that are shown
_WIDE = 72  # characters of a value that are shown
_SCREEN = 110  # characters of a line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="RUN", help="a run folder")
    parser.add_argument("b", metavar="RUN", help="another run folder")
    parser.add_argument("--json", action="store_true", help="print everything that differs as a JSON object")


def run(args: argparse.Namespace) -> int:
    from ..tools.compare import compare

    found = compare(args.a, args.b)
    if args.json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        print("\n".join(map(_printable, _screen(found))))
    return 0 if found.equal else 1


def _printable(line: str) -> str:
    """A line in which nothing can talk to the terminal: run folders may come from strangers."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def _screen(found: Comparison) -> Iterator[str]:
    from ..tools.compare import SECTIONS

    for label, side in (("A", found.a), ("B", found.b)):
        yield f"{label}  {side.path}  {side.status}"
    yield ""
    equal = []
    for name in SECTIONS:
        if name == "history":
            yield "history"
            yield from (f"  {line}" for line in _history(found.history))
        elif found.found[name]:
            yield name
            yield from (f"  {line}" for line in _listed(found.found[name]))
        else:
            equal.append(name)
    if equal:
        yield f"no difference in {', '.join(equal)}"
    yield from (f"note: {note}" for note in found.notes)
    yield ""
    yield from _verdict(found)


def _listed(differences: Sequence[Difference], most: int = _LISTED) -> Iterator[str]:
    """A line for each difference, or two where one is too long for a screen."""
    shown = differences[:most]
    cells = [(d.path, _value(d.a, d.origin_a), _value(d.b, d.origin_b), _size(d)) for d in shown]
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for path, a, b, size in cells:
        apart = f"differs by {size}" if size else ""
        if sum(wide) + 24 <= _SCREEN:
            yield f"{path:<{wide[0]}}  A {a:<{wide[1]}}  B {b:<{wide[2]}}  {apart}".rstrip()
        else:
            yield f"{path:<{wide[0]}}  A {a}"
            yield f"{'':<{wide[0]}}  B {b}  {apart}".rstrip()
    if len(differences) > len(shown):
        yield f"and {len(differences) - len(shown)} more; --json lists them all"


def _value(value: Any, origin: str) -> str:
    from ..tools.compare import ABSENT

    text = value if isinstance(value, str) else repr(value) if value is ABSENT else json.dumps(value)
    text = text if len(text) <= _WIDE else text[: _WIDE - 3] + "..."
    return f"{text}  ({origin})" if origin else text


def _size(d: Difference) -> str:
    """How far two figures are apart; nothing for counts and settings, where it is plain to see."""
    if not all(isinstance(v, float) and math.isfinite(v) for v in (d.a, d.b)) or d.origin_a or d.origin_b:
        return ""
    return f"{abs(d.a - d.b):.2g}"


def _history(history: History) -> Iterator[str]:
    if history.step is None:
        yield f"the histories are equal for {history.equal} rows"
        return
    before = f"equal for {history.equal} rows; "
    if history.lacks:
        here, there = ("A", "B") if history.lacks == "a" else ("B", "A")
        if history.ended:
            more = abs(history.rows_a - history.rows_b)
            yield f"{before}then {here} ends, and {there} has {more} more, the first of step {history.step}"
        else:
            yield f"{before}then {here} has no row for step {history.step}, which {there} has"
    else:
        yield f"{before}the first difference is at step {history.step}:"
        yield from _listed(history.differences, 3)
    if history.later is not None:
        step, difference = history.later
        yield f"the first loss that differs is of step {step}:"
        yield from _listed([difference])


def _verdict(found: Comparison) -> Iterator[str]:
    if found.equal:
        config = "config, but for the name" if found.found["config"] else "config"
        rest = [name for name, differs in found.found.items() if differs and name != "config"]
        besides = f"; what differs in {' and '.join(rest)} had no effect" if rest else ""
        noted = "; as far as both record it" if found.notes else ""
        yield f"equal: {config}, plugins, data, history, weights and figures{noted}{besides}"
        return
    yield f"different: {', '.join(found.decisive)}"
    if set(found.decisive) & {"history", "weights", "figures"}:
        yield f"likely cause: {_cause(found)}"


def _cause(found: Comparison) -> str:
    """What may explain the difference: what was asked for, then what the machine was."""
    asked = {
        "config": [d.path for d in found.written],
        "plugins": [d.path for d in found.found["plugins"] if d.both or not found.written],
        "data": [d.path for d in found.found["data"] if d.decides],
    }
    if any(asked.values()):
        return ", ".join(f"{name} ({_names(paths)})" for name, paths in asked.items() if paths)
    ended = {"a": found.a, "b": found.b}.get(found.history.lacks) if found.history.ended else None
    if ended is not None and ended.status not in ("finished", "stopped"):
        return f"{ended.path} is {ended.status}; go on with: pegboard resume {ended.path}"
    if environment := found.found["environment"]:
        return f"environment ({_names([d.path for d in environment])})"
    return "none is recorded: config, plugins, data and environment are the same"


def _names(paths: list[str]) -> str:
    return ", ".join(paths[:4]) + (f" and {len(paths) - 4} more" if len(paths) > 4 else "")
