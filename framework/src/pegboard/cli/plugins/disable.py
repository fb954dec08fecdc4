"""`pegboard plugins disable`: imports no plugin, and works whatever state they are in."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...registry.enabled import Own
    from ...registry.installed import Plugin

HELP = "Switch plugins off for everything you run, until you enable them again."
EXAMPLE = "pegboard plugins disable acme-max-norm"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="names of plugins or distributions")


def run(args: argparse.Namespace) -> int:
    from ...base.errors import PegboardError
    from ...registry.enabled import absent, did_you_mean, own_file, write_own

    plugins = installed_plugins()
    known = {word for plugin in plugins or () for word in (plugin.name, plugin.dist)}
    if plugins is not None and (wrong := absent(args.names, known)):
        told = [f"no plugin {name!r} is installed.{did_you_mean(name, known)}" for name in wrong]
        raise PegboardError("\n".join((*told, "List them: pegboard --no-plugins plugins list")))
    own = read()
    fresh = [name for name in dict.fromkeys(args.names) if name not in own.names]
    if fresh or own.damage:
        keep_damaged(own)
        write_own([*own.names, *fresh])
    for name in args.names:
        again = "" if name in fresh else " already"
        print(f"{name} is{again} switched off; undo it: pegboard plugins enable {name}")
    print(f"the list stands in {own_file()}")
    return 0


def installed_plugins() -> list[Plugin] | None:
    """Those that metadata names; None where it cannot be read, which keeps nobody from switching."""
    from ...registry.installed import find_installed

    try:
        return [plugin for plugin, _, _ in find_installed()]
    except Exception:
        return None


def read() -> Own:
    """The list as it stands; damage is told."""
    import sys

    from ...registry.enabled import read_own

    own = read_own()
    if own.damage:
        print(f"warning: {own.damage}", file=sys.stderr)
    return own


def keep_damaged(own: Own) -> None:
    """Put a damaged list aside before a new one takes its place, and say so."""
    import sys

    from ...registry.enabled import own_file

    if own.damage:
        file = own_file()
        aside = file.with_name(f"{file.name}.damaged")
        file.replace(aside)
        print(f"warning: it is kept as {aside}; a new one takes its place", file=sys.stderr)
