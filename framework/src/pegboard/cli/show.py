"""`pegboard show`"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ..config.fields import Field
    from ..registry.discovery import Entry, Registry

HELP = "Show the installed parts, everything about one of them, or a picture of a data set."
EXAMPLE = """pegboard show models
         pegboard show data moons noise=0.2 --plot"""
_WIDTH = 100
_WIDE = 160  # of lists that go into a file or a pipe
_SUFFIXES = (".png", ".svg")
_CONFIGS = (".yaml", ".yml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", help="a kind of part, a part, or a section: trainer, data, plugins"
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="DATA",
        help="after data: the name of a data set, or a config; with --plot also its fields, as noise=0.2",
    )
    parser.add_argument("--plot", action="store_true", help="draw the data set that is named after data")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="a .png or .svg file for the picture, replaced if it is there; else NAME.png",
    )
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to add")


def run(args: argparse.Namespace) -> int:
    from ..contract.kinds import KINDS
    from ..registry.discovery import Registry

    _check_words(args)
    registry = Registry.discover(local=args.local).insist(args.local)
    if args.plot:
        print("\n".join(_plot(args, registry)))
        return 0
    if args.overrides:
        lines = list(_data(args.overrides[0], registry))
    elif args.name is None:
        lines = [line for kind in KINDS for line in _kind(kind, registry)]
        lines.append("everything about one of them: pegboard show NAME")
    else:
        lines = list(_named(args.name, registry))
    print("\n".join(lines).rstrip())
    return 0


def _check_words(args: argparse.Namespace) -> None:
    """Words that mean nothing where they stand."""
    from ..base.errors import PegboardError

    name = args.name or "NAME"
    if args.name != "data" and (args.plot or args.overrides):
        found = "--plot" if args.plot else repr(args.overrides[0])
        raise PegboardError(
            f"found {found} after {name!r}, where nothing follows\n"
            f"a picture of a data set: pegboard show data {name} --plot"
        )
    if args.plot and not args.overrides:
        raise PegboardError(
            "no data set is named: pegboard show data NAME --plot\nlist them: pegboard show data"
        )
    if args.out and not args.plot:
        raise PegboardError("--out is for a picture: add --plot")
    if args.overrides[1:] and not args.plot:
        raise PegboardError(f"{args.overrides[1]!r} is for a picture: add --plot")


def _data(name: str, registry: Registry) -> Iterator[str]:
    """What a data set is; parts of other kinds with this name are left out."""
    from ..base.errors import PegboardError

    if name.endswith(_CONFIGS):
        raise PegboardError(f"the data of a config is drawn: pegboard show data {name} --plot")
    entries = registry.entries("dataset")
    found = [e for e in entries if name in _references(e)]
    for entry in found:
        yield from _part(entry, registry)
    if not found:
        raise _unknown("no data set", name, [e.part.name for e in entries], "pegboard show datasets")


def _plot(args: argparse.Namespace, registry: Registry) -> Iterator[str]:
    """Draw a data set, and say where the picture is."""
    name, *words = args.overrides
    settings = None
    if name.endswith(_CONFIGS):
        from ..config.check import check

        settings = check(name, words)
        chosen, seed = settings.data, settings.seed
    else:
        from ..config.one_part import choose
        from ..contract.records import Dataset

        chosen, seed = choose(Dataset, name, words, registry), 0
    path = picture_path(args.out, chosen.entry.part.name)
    from ..contract.drawing import plots
    from ..contract.records import Context

    plots()  # told before the data is read, where nothing draws
    from ..inference.pictures import draw_data, named
    from ..planning.plan import build, read_data

    part: Any = chosen.entry.part
    splits = read_data(settings) if settings else build(chosen, Context(seed=seed, key="data"))
    sizes = ", ".join(f"{len(source):,} {split}" for split, source in named(splits).items())
    own = getattr(chosen.config, "seed", None)
    told = textwrap.fill(" ".join((part.name, *words)), 80)
    title = f"{told}\n{sizes}, seed {seed if own is None else own}"
    left_out = draw_data(splits, path, title, part.plot)
    yield str(path)
    yield from left_out


def picture_path(given: str | None, name: str) -> Path:
    """Where a picture goes; a file that nobody named is not replaced."""
    from pathlib import Path

    from ..base.errors import PegboardError

    path = Path(given or f"{name}.png")
    if path.suffix.lower() not in _SUFFIXES:
        raise PegboardError(f"--out {given}: found no {' or '.join(_SUFFIXES)} at its end: is it a picture?")
    if not path.parent.is_dir():
        raise PegboardError(f"--out {given}: no folder {str(path.parent)!r}")
    if given is None and path.exists():
        raise PegboardError(f"{path} is there already\nreplace it: --out {path}, or name another file")
    return path


def _named(name: str, registry: Registry) -> Iterator[str]:
    """What a name stands for: a kind, a section of the core's, a part of any kind."""
    from ..config.nodes import Plugins, Trainer
    from ..contract.kinds import KINDS
    from ..contract.options import DataOptions

    sections = {"trainer": Trainer, "data": DataOptions, "plugins": Plugins}
    kinds = {k: k for k in KINDS} | {kind.plural: k for k, kind in KINDS.items()}
    entries = [e for kind in KINDS for e in registry.entries(kind)]
    found = [e for e in entries if name in _references(e)]
    if name in sections:
        yield from _section(name, sections[name])
    if name in kinds or name == "data":
        yield from _kind(kinds.get(name, "dataset"), registry)
    for entry in found:
        yield from _part(entry, registry)
    if not found and name not in kinds and name not in sections:
        owner, _, part = name.rpartition(":")
        if unready := registry.unready(part, owner=owner):
            raise unready
        names = [*sections, *kinds, *(e.part.name for e in entries)]
        raise _unknown("nothing", name, names, "pegboard show")


def _unknown(what: str, name: str, names: Iterable[str], listing: str) -> Exception:
    from ..base.errors import PegboardError
    from ..base.nearest import nearest

    near = nearest(name, names)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return PegboardError(f"{what} is called {name!r}{meant}\nlist everything: {listing}")


def _references(entry: Entry) -> tuple[str, ...]:
    from ..contract.kinds import KINDS

    name = entry.part.name
    kind = KINDS[entry.part.kind]
    owners = (entry.plugin.name, entry.plugin.dist, kind.name, kind.plural)
    return (name, *(f"{owner}:{name}" for owner in owners))


def _kind(kind: str, registry: Registry) -> Iterator[str]:
    from ..contract.kinds import KINDS

    entries = registry.entries(kind)
    yield KINDS[kind].plural
    names = [registry.reference(e) for e in entries]
    wide = max((len(n) for n in names), default=0)
    room = max(_columns() - wide - max((len(e.plugin.dist) for e in entries), default=0) - 6, 30)
    for name, entry in zip(names, entries, strict=True):
        first, *more = textwrap.wrap(entry.part.summary, room) or [""]
        yield f"  {name:<{wide}}  {first:<{room}}  {entry.plugin.dist}"
        yield from (f"  {'':<{wide}}  {line}" for line in more)
    if not entries:
        yield "  none installed"
    yield ""


def _section(name: str, cls: type[Any]) -> Iterator[str]:
    from ..config.fields import describe

    yield f"section '{name}' of the core"
    yield (cls.__doc__ or "").strip().split("\n")[0]
    yield ""
    yield from _fields("keys", describe(cls))


def _part(entry: Entry, registry: Registry) -> Iterator[str]:
    from ..base.errors import PegboardError
    from ..config.fields import describe
    from ..contract.kinds import KINDS

    part, options = entry.part, KINDS[entry.part.kind].options
    yield f"{part.kind} '{part.name}', of {entry.plugin.dist} {entry.plugin.version}"
    yield textwrap.dedent("    " + (part.config.__doc__ or "").strip())
    if part.deprecated:
        yield f"deprecated: {part.deprecated}"
    yield ""
    try:
        fields = describe(part.config)
    except Exception as error:  # a type that does not resolve, a default that fails
        raise PegboardError(
            f"the config class of {part.kind} {part.name!r} is a defect of {entry.plugin.dist}: "
            f"{type(error).__name__}: {error}"
        ) from error
    yield from _fields("keys", fields)
    if options is not None:
        yield from _fields("keys of the core beside them", describe(options))
    facts = list(_facts(part))
    yield from (f"{label:<10}  {text}" for label, text in facts)
    yield from [""] if facts else []
    yield "example"
    yield textwrap.indent(_example(registry.reference(entry), part, fields), "  ")
    yield ""


def _fields(title: str, fields: Iterable[Field]) -> Iterator[str]:
    fields = list(fields)
    yield title
    wide = max((len(f.name) for f in fields), default=0)
    for field in fields:
        default = "required" if field.required else f"= {field.shown_default}"
        head = f"  {field.name:<{wide}}  {default}"
        yield f"{head:<{wide + 22}}  {field.comment}".rstrip()
        kind = field.type.removeprefix("a ").removeprefix("an ")
        yield from textwrap.wrap(
            kind, _WIDTH, initial_indent=" " * (wide + 4), subsequent_indent=" " * (wide + 4)
        )
    if not fields:
        yield "  none"
    yield ""


def _facts(part: Any) -> Iterator[tuple[str, str]]:
    """What the record declares beside its config, in words."""
    words = {
        "inputs": "reads" if part.kind == "model" else "for inputs",
        "targets": "predicts" if part.kind == "model" else "for",
        "pegs": "pegs",
        "after": "after",
        "before": "before",
        "conflicts": "never with",
        "default_for": "default for",
    }
    if stages := getattr(part, "stages", None):
        yield "acts in", ", ".join(f"{stage} as {role}" for stage, role in stages.items())
    for name, label in words.items():
        if values := getattr(part, name, ()):
            yield label, ", ".join(getattr(v, "__name__", str(v)) for v in values)
    if getattr(part, "reference", False):
        yield "reference", "a run that names it is measured beside its optimum"
    elif part.kind == "probe":
        yield "measures", f"a run at its end, or later: pegboard probe RUN {part.name}"
    if getattr(part, "closure", False):
        yield "steps", "with a closure: it evaluates the loss again"
    if part.docs:
        yield "more", part.docs


def _example(name: str, part: Any, fields: Iterable[Field]) -> str:
    """A node of a config that names the part, with its required keys and its first ones."""
    from ..config.dump import to_yaml
    from ..config.fields import plain
    from ..contract.kinds import KINDS

    fields, home = list(fields), KINDS[part.kind].home(part)
    shown = [f for f in fields if f.required] or fields[:2]
    keys = {f.name: "..." if f.required else plain(f.default) for f in shown}
    node: dict[str, Any] = {name: keys} if home.keyed else {"name": name, **keys}
    for key in reversed(home.name.split(".")):
        node = {key: node}
    return to_yaml(node).rstrip()


def _columns() -> int:
    """Width of the terminal; wide enough for any summary where the output goes elsewhere."""
    import shutil
    import sys

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE
