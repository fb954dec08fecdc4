"""Pages of the site that are made from the code when it is built; none of them is kept.

mkdocs calls `on_config`, `on_files` and `on_page_markdown`. The rest makes Markdown of what the code says of
itself: hook specifications, records, config classes, parsers and checks, with their docstrings and comments.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pegboard
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pegboard.cli import make_parser
from pegboard.cli.show import _example, _facts
from pegboard.config.fields import Field, _comments, describe
from pegboard.config.nodes import Plugins, Trainer
from pegboard.contract import hookspecs
from pegboard.contract.kinds import KINDS, Kind, sections
from pegboard.contract.records import Part
from pegboard.registry.discovery import Entry, Registry, _index
from pegboard.testing import CHECKS
from pegboard.testing import checks as _checks  # noqa: F401  registers them

RECORDS = [kind.record for kind in KINDS.values()]
WIDE = 88  # characters of a line of usage
OUTSIDE = re.compile(  # a link upwards
    r"\[(?P<text>[^\]\n]*)\]\((?P<place>\.\./[^)#\s]+)(?P<anchor>#[^)\s]+)?\)"
)
# Sources that a checkout links to, and the pages that are made from them.
MADE = {
    "framework/src/pegboard/contract/hookspecs.py": "reference/hooks.md",
    "framework/src/pegboard/__init__.py": "reference/python.md",
    "framework/src/pegboard/contract/records.py": "reference/python.md",
    "framework/src/pegboard/contract/tricks.py": "reference/python.md",
    "framework/src/pegboard/config/nodes.py": "reference/config.md",
    "framework/src/pegboard/cli/__init__.py": "reference/commands.md",
}

# The sections of the public names, by the room or module that they are from.
TITLES = {
    "tools": "Runs",
    "contract.results": "What build functions return",
    "contract.tricks": "Tricks",
    "contract.records": "In and around records",
    "planning": "Pegs",
    "contract.specs": "Specs",
    "data": "Sources of samples",
    "base": "Errors",
    "": "And more",
}
# What has no docstring of its own.
SAID = {
    "Site": "The type of a field that names sites of pegs, `sites: tuple[Site, ...]`: those of the core, or "
    "a plugin's own with a prefix.",
    "Prefixed": 'The type of a site or role that a plugin adds: `Prefixed("acme:gate")`.',
    "RoleName": "The type of the name of a role: those of the core, or `Prefixed`.",
    "Stage": "The type of the name of a stage: the methods of a `Trick` that act in training.",
    "hookimpl": "The decorator that makes a function of a light module a [hook](hooks.md).",
    "__version__": "The version of the core.",
}


# What mkdocs calls.
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the sections of the navigation that depend on what there is."""
    found = sorted(p.name for p in Path(config.docs_dir, "examples").glob("*.md"))
    filled = {
        "Examples": [f"examples/{name}" for name in found],
        "Parts": [f"parts/{kind.plural}.md" for kind in KINDS.values()],
    }
    entries = [{name: filled.get(name, value) for name, value in entry.items()} for entry in config.nav or []]
    config.nav = [entry for entry in entries if all(entry.values())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for uri, text in pages().items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the table of checks where a page asks for it; of a link to a file that is no page, its text."""

    def text(found: re.Match[str]) -> str:
        target = Path(config.docs_dir, page.file.src_uri).parent / found["place"]
        if target.resolve().is_relative_to(Path(config.docs_dir).resolve()):
            return found[0]
        if not target.is_file():
            raise PluginError(f"{page.file.src_uri}: no file {found['place']}")
        source = target.resolve().relative_to(Path(config.docs_dir).resolve().parent).as_posix()
        if made := MADE.get(source) or _page_of(source, found["anchor"] or ""):
            up = "../" * page.file.src_uri.count("/")
            return f"[{found['text']}]({up}{made}{found['anchor'] or ''})"
        return found["text"].replace(r"\_", r"\_<wbr>")  # names of tests are long

    return OUTSIDE.sub(text, markdown).replace("<!-- made: checks -->", checks_table())


def _page_of(source: str, anchor: str) -> str:
    """The page with the section of a part, where a link to the README of its plugin names one."""
    parts = re.fullmatch(r"plugins/(\w+)/README\.md", source)
    if parts is None or not anchor:
        return ""
    dist = f"pegboard-{parts[1].replace('_', '-')}"
    kinds = [kind for kind, names in _index().items() if names.get(anchor[1:]) == dist]
    return f"parts/{KINDS[kinds[0]].plural}.md" if kinds else ""


def pages() -> dict[str, str]:
    """The Markdown of every page that is made, by its place."""
    registry = Registry.discover()
    made = {f"parts/{kind.plural}.md": kind_page(kind, registry) for kind in KINDS.values()}
    made["reference/hooks.md"] = hooks_page()
    made["reference/python.md"] = python_page()
    made["reference/config.md"] = config_page()
    made["reference/commands.md"] = commands_page()
    return {uri: "\n\n".join(blocks) + "\n" for uri, blocks in made.items()}


# Pieces of Markdown.
def prose(text: str | None) -> str:
    """A docstring or comment as Markdown: what stands in backticks is code, the rest is plain."""
    pieces = inspect.cleandoc(text or "").split("`")
    pieces[::2] = [re.sub(r"([*|\[\]])", r"\\\1", p).replace("<", "&lt;") for p in pieces[::2]]
    return "`".join(pieces)


def code(text: str) -> str:
    """Code that may stand in a table, whatever is in it, and may break behind an underscore."""
    plain = re.sub(r"[^\w\s.,:=()-]|_", lambda found: f"&#{ord(found[0])};", text)
    return f"<code>{plain.replace('&#95;', '&#95;<wbr>')}</code>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace(chr(10), ' ') for cell in line)} |" for line in lines)


def heading(level: int, title: str, anchor: str = "") -> str:
    plain = title.replace("__", r"\_\_")
    return f"{'#' * level} {plain} {{ #{(anchor or title).strip('_')} }}"


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def keys(fields: Iterable[Field]) -> str:
    """The fields of a config class: what `pegboard show` prints, as a table."""
    rows = []
    for field in fields:
        default = "required" if field.required else code(field.shown_default)
        comment = f"{prose(field.comment)}<br>" if field.comment else ""
        rows.append([code(field.name), default, f"{comment}*{prose(field.type)}*"])
    return table(["field", "default", "what it is"], rows) if rows else "It has no fields."


# Parts, a page for each kind.
def kind_page(kind: Kind, registry: Registry) -> Iterator[str]:
    entries = registry.entries(kind.name)
    yield f"# {kind.plural.capitalize()}"
    names = [registry.reference(e) for e in entries]
    if entries:
        rows = [
            [f"[{name}](#{anchor(name)})", prose(e.part.summary), e.plugin.dist]
            for name, e in zip(names, entries, strict=True)
        ]
        yield table([kind.name, "what it is", "distribution"], rows)
    else:
        yield "No installed plugin offers one."
    named = f"A config names one in `{kind.section.name}`. "
    if kind.name == "probe":
        named = (
            "`pegboard probe RUN NAME` measures with one; a config names those that measure a run at its end "
            "in `probes`, and a reference in `reference`. "
        )
    yield (
        f"{named}A plugin offers one with the hook [{kind.hook}](../reference/hooks.md#{kind.hook}). "
        "The same in a terminal, for what is installed there: `pegboard show NAME`."
    )
    for name, entry in zip(names, entries, strict=True):
        yield from part_section(name, entry)
    if kind.options is not None:
        yield heading(2, "Fields of the core beside them", "core")
        yield prose(kind.options.__doc__)
        yield keys(describe(kind.options))


def anchor(name: str) -> str:
    return name.replace(":", "-")


def part_section(name: str, entry: Entry) -> Iterator[str]:
    part = entry.part
    yield heading(2, name, anchor(name))
    yield f"{entry.plugin.dist} {entry.plugin.version}\n{{ .origin }}"
    yield prose(part.config.__doc__)
    if part.deprecated:
        yield f"**Deprecated**: {prose(part.deprecated)}"
    fields = describe(part.config)
    yield keys(fields)
    said = [f"- {label}: {prose(text)}" for label, text in _facts(part)]
    if why := getattr(part, "synchronizes", ""):
        said.append(f"- waits for the device: {prose(why)}")
    yield "\n".join(said)
    yield fenced("yaml", _example(name, part, fields))


# Hooks and records.
def hooks_page() -> Iterator[str]:
    yield "# Hooks and records"
    yield prose("\n\n".join(inspect.cleandoc(hookspecs.__doc__ or "").split("\n\n")[1:]))
    for name, function in vars(hookspecs).items():
        if not hasattr(function, "pegboard_spec"):
            continue
        yield heading(2, name)
        yield fenced("python", "@hookimpl\n" + signature(function))
        yield prose(function.__doc__)
        for record in (kind.record for kind in KINDS.values() if kind.hook == name):
            yield from class_section(record, 3)
            plural = KINDS[record.kind].plural
            yield f"Those that are installed: [{plural}](../parts/{plural}.md)."
    yield "## What every record has { #every-record }"
    for cls in record_bases():
        yield from class_section(cls, 3)


def record_bases() -> list[type[Any]]:
    """The classes that records share, the most general first."""
    found = {base for cls in RECORDS for base in cls.__mro__ if issubclass(base, Part)}
    shared = [cls for cls in found if cls not in RECORDS]
    return sorted(shared, key=lambda cls: len(cls.__mro__))


# The public names.
def python_page() -> Iterator[str]:
    yield "# Python names"
    yield (
        "Everything that `import pegboard` offers. The records are on the page of the [hooks](hooks.md); "
        "what stands nowhere here may change without notice."
    )
    sections: dict[str, list[str]] = {title: [] for title in TITLES.values()}
    for name in sorted(set(pegboard.__all__) - {cls.__name__ for cls in RECORDS}):
        home = getattr(getattr(pegboard, name), "__module__", "").split(".")[1:3]
        places = ("",) if name in SAID else (".".join(home), *home[:1], "")
        sections[next(TITLES[place] for place in places if place in TITLES)].append(name)
    for title, names in sections.items():
        yield f"## {title}"
        for name in names:
            yield from [heading(3, name), SAID[name]] if name in SAID else thing(getattr(pegboard, name))


def thing(found: Any) -> Iterator[str]:
    """A public class or function."""
    if isinstance(found, type):
        yield from class_section(found, 3)
    else:
        yield heading(3, found.__name__)
        yield fenced("python", signature(found))
        yield prose(found.__doc__)


def class_section(cls: type[Any], level: int) -> Iterator[str]:
    """A class: its docstring, its fields with their comments, its methods with theirs."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    yield heading(level, cls.__name__)
    yield prose(cls.__doc__)
    if rows := list(attributes(cls, tree)):
        yield table(["field", "default", "what it is"], rows)
    for base in (base.__name__ for base in cls.__bases__ if base in (*record_bases(), pegboard.Spec)):
        yield f"Beside these it has what every [{base}](#{base}) has."
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and documented(node):
            yield fenced("python", head(node))
            yield prose(ast.get_docstring(node))


def attributes(cls: type[Any], tree: ast.ClassDef) -> Iterator[list[str]]:
    """Rows for what a class annotates in its body, and for its properties."""
    comments = _comments(cls.__module__).get(cls.__qualname__, {})
    for node in tree.body:
        default = ""
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, kind, said = node.target.id, node.annotation, comments.get(node.target.id)
            default = code(given(node.value)) if node.value else ""
        elif isinstance(node, ast.FunctionDef) and is_property(node) and node.returns:
            name, kind, said = node.name, node.returns, ast.get_docstring(node)
        else:
            continue
        shown = code(ast.unparse(kind).replace("'", ""))
        if not name.startswith("_") and "ClassVar" not in shown:
            yield [code(name), default, (f"{prose(said)}<br>" if said else "") + shown]


def is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(d) in ("property", "cached_property") for d in node.decorator_list)


def given(value: ast.expr) -> str:
    """A default as a reader writes it: of `field(...)` what it holds."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        named = {word.arg: ast.unparse(word.value) for word in value.keywords}
        return named.get("default") or f"{named['default_factory']}()"
    return ast.unparse(value)


def documented(node: ast.FunctionDef) -> bool:
    """Methods for others; of the special ones those that say something."""
    special = node.name != "__init__" and bool(ast.get_docstring(node))
    return not is_property(node) and (special or not node.name.startswith("_"))


def signature(function: Any) -> str:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    return head(node)


def head(node: ast.FunctionDef) -> str:
    """The line that declares a function, broken where it is long."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"def {node.name}({ast.unparse(node.args)}){returns}"
    if len(line) <= WIDE:
        return line
    inside = ast.unparse(node.args)
    words = re.split(r", (?=\*?\*?\w+(?:[:=]|$)|\*,)", inside)
    return f"def {node.name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"


# Sections of a config, commands, checks.
def config_page() -> Iterator[str]:
    yield "# Sections of a config"
    yield (
        "The fields that are the core's own. Those of a part are on the page of its kind; "
        "how a config is written, on [Configs](../configs.md)."
    )
    optioned = {name: kind.options for name, (_, kind) in sections().items() if kind.options is not None}
    for name, cls in {"trainer": Trainer, **optioned, "plugins": Plugins}.items():
        yield heading(2, name)
        yield prose(cls.__doc__)
        yield keys(describe(cls))


def commands_page() -> Iterator[str]:
    yield "# Commands"
    yield "The same in a terminal: `pegboard COMMAND --help`."
    parser = make_parser(None)
    yield from actions_table(parser)
    for _, help, sub in commands(parser):
        yield from command_section(sub, help, 2)


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """The commands below a parser: name, what it does, its own parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for said in action._choices_actions:
                yield said.dest, said.help or "", action.choices[said.dest]


def command_section(parser: argparse.ArgumentParser, help: str, level: int) -> Iterator[str]:
    yield heading(level, parser.prog, parser.prog.replace(" ", "-"))
    yield prose(parser.description or help)
    formatter = argparse.HelpFormatter(parser.prog, width=WIDE)
    formatter.add_usage(None, parser._actions, parser._mutually_exclusive_groups, prefix="")
    yield fenced("text", formatter.format_help())
    yield from actions_table(parser)
    if parser.epilog:
        lines = parser.epilog.removeprefix("example:").splitlines()
        yield fenced("bash", "\n".join(line.strip() for line in lines))
    for _, said, sub in commands(parser):
        yield from command_section(sub, said, level + 1)


def actions_table(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog, width=WIDE)
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction) or action.help is None:
            continue
        choices = "|".join(map(str, action.choices or ()))
        value = str(action.metavar or choices or action.dest)
        if action.option_strings:
            value = f" {value.upper() if value == action.dest else value}" if action.nargs != 0 else ""
        shown = ", ".join(action.option_strings) + value
        rows.append([code(shown), prose(formatter._expand_help(action))])
    if rows:
        yield table(["word", "what it is"], rows)


def checks_table() -> str:
    """Every check of the conformance kit."""
    rows = []
    for found in sorted(CHECKS.values(), key=lambda check: "plugin" not in check.kinds):
        kinds = "every part" if set(KINDS) <= set(found.kinds) else ", ".join(found.kinds)
        rows.append([code(found.name), found.level, f"{prose(found.about)}<br>*{kinds}*"])
    return table(["check", "level", "what it asks, and of what"], rows)
