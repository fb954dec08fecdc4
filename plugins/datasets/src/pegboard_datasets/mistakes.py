"""Errors that say what was found, what was expected, what is nearest and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from pegboard import PegboardError


def mistake(what: str, expected: str = "", hint: str = "") -> PegboardError:
    """An error with one line for each thing a person needs."""
    lines = [what, f"  expected: {expected}" if expected else "", f"  fix: {hint}" if hint else ""]
    return PegboardError("\n".join(filter(None, lines)))


def unknown(
    what: str, name: str, known: Iterable[str], where: str = "", hint: str = "", also: str = ""
) -> PegboardError:
    """An error for a name that is not among those known, with the nearest of them; `also` follows it."""
    known = list(known)
    shown = ", ".join(map(repr, known[:20])) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    message = f"there is no {what} {name!r}{where}{nearest(name, known)}{also}"
    return mistake(message, shown or "at least one", hint)


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of a message that gives the name most like this one, where any is."""
    folded = {k.casefold(): k for k in reversed(known)}
    close = difflib.get_close_matches(name.casefold(), folded, 1, 0.5)
    return f"; nearest: {folded[close[0]]!r}" if close else ""
