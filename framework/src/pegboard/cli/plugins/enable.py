"""`pegboard plugins enable`: imports no plugin, and works whatever state they are in."""

from __future__ import annotations

import argparse

from .disable import add_arguments as add_arguments
from .disable import installed_plugins, keep_damaged, read

HELP = "Undo what `pegboard plugins disable` did."
EXAMPLE = "pegboard plugins enable acme-max-norm"


def run(args: argparse.Namespace) -> int:
    import sys

    from ...base.errors import PegboardError
    from ...registry.enabled import absent, did_you_mean, own_file, write_own
    from ...registry.installed import canonical

    plugins = installed_plugins() or []
    known = {word for plugin in plugins for word in (plugin.name, plugin.dist)}
    own = read()
    wanted = {word for name in args.names for word in (name, canonical(name))}
    out = [name for name in own.names if name in wanted or canonical(name) in wanted]
    listed = {*out, *map(canonical, out)}
    if wrong := absent(args.names, known | listed):
        told = [
            f"no plugin {name!r} is switched off or installed.{did_you_mean(name, {*own.names, *known})}"
            for name in wrong
        ]
        raise PegboardError("\n".join((*told, f"What is switched off stands in {own_file()}")))
    if out or own.damage:
        keep_damaged(own)
        write_own(name for name in own.names if name not in out)
        print(f"written: {own_file()}")
    for name in args.names:
        if absent([name], known):
            print(
                f"warning: no plugin {name!r} is installed here.{did_you_mean(name, known)}", file=sys.stderr
            )
        if absent([name], listed):
            print(f"{name} was not switched off by you")
    for line in _still_off(args.names):
        print(line)
    return 0


def _still_off(names: list[str]) -> list[str]:
    """What other switches say of these plugins now."""
    from ...registry.enabled import Switches, matches

    switches, told = Switches(), []
    for plugin in installed_plugins() or []:
        if any(matches(name, plugin) for name in names):
            why = switches.off(plugin)
            told.append(f"{plugin.dist} ({plugin.name}) is {why or 'switched on'}")
    return told
