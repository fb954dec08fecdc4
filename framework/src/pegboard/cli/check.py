"""`pegboard check`"""

from __future__ import annotations

import argparse

HELP = "Check a config in full, without torch and without data."
EXAMPLE = "pegboard check configs/quickstart.yaml model.hidden=[64]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="a YAML file")
    parser.add_argument("overrides", nargs="*", default=[], help="values to change, as trainer.epochs=5")
    parser.add_argument("--full", action="store_true", help="print the config with every default")
    parser.add_argument("--quiet", action="store_true", help="print mistakes only")


def run(args: argparse.Namespace) -> int:
    import sys
    import warnings

    from ..base.deprecation import PegboardDeprecationWarning
    from ..config.check import check
    from ..config.dump import to_yaml
    from ..contract.kinds import sections

    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", FutureWarning)
        settings = check(args.config, args.overrides)
    for line in settings.notes:
        print(f"warning: {line}", file=sys.stderr)
    for note in notes:
        theirs = issubclass(note.category, PegboardDeprecationWarning)  # of the author of a plugin
        where = f"{note.filename}:{note.lineno}: " if theirs else ""
        print(f"warning: {where}{note.message}", file=sys.stderr)
    if args.full:
        print(to_yaml(settings.plain), end="")
        return 0
    if args.quiet:
        return 0
    print(f"{args.config}: ok")
    rows = sections()
    for path, part in settings.parts.items():
        section, kind = rows[path.partition(".")[0]]
        if not section.keyed and path not in rows:
            continue  # what is different for a player
        role = kind.name if section.keyed else path.rpartition(".")[2]
        name = part.entry.part.name
        shown = name if part.key in (name, role) or role == part.key else f"{part.key} ({name})"
        print(f"  {role:<11} {shown:<24} {part.entry.plugin.dist} {part.entry.plugin.version}")
    print(f"  {'spec':<11} {settings.spec or 'known once the data is read'}")
    if settings.objective is None:
        print(f"  {'objective':<11} chosen once the data is read")
    return 0
