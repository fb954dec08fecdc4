"""What the core shows to others, and what it must not know."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pegboard
import pytest
from pegboard.registry.discovery import Registry
from sandbox import PROJECTS, ROOT
from surface import FILE, changes, surface

CORE = ROOT / "framework" / "src" / "pegboard"
SOURCES = sorted(CORE.rglob("*.py"))

# The rooms of the core from the ground up: one imports from those on lines above it, never from a neighbour
# on its own line. What is imported for type checkers alone does not count, what a function imports does.
ROOMS = """
base
contract
registry report
config
data store
planning
engine
inference preview
run
tools
testing
cli
"""

# Names of parts that are also words of English or of torch, which the core may use as such.
WORDS = set(  # as English has them
    "compiled constant digits filters flow gradients linear margin modes objects operations solids".split()
    + "span step translation".split()
) | {"rnn", "clip", "ema"}  # a switch of torch.backends.cudnn; fields that the core had

BROKEN = """What plugins could use before is gone or different:
  {lines}
If a release had it, it stays: keep the old form with `pegboard.base.deprecation` or an adapter, for at least
two minor releases; it becomes an error at the next major release and is taken away one minor release later
(docs/compatibility.md). If no release had it, write the surface anew: make surface"""
ADDED = """New, and promised from the next release on (docs/compatibility.md):
  {lines}
If that is meant, write the surface anew: make surface"""


def test_no_plugin_loses_what_it_could_use() -> None:
    broken, added = changes(FILE.read_text("utf-8").splitlines(), surface())
    assert not broken, BROKEN.format(lines="\n  ".join(broken))
    assert not added, ADDED.format(lines="\n  ".join(added))


def test_every_public_name_is_exported_and_there() -> None:
    assert sorted(pegboard.__all__) == pegboard.__all__ == dir(pegboard)
    assert all(getattr(pegboard, name) is not None for name in pegboard.__all__)


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        ("pegboard.x()", "", True),  # a name is gone
        ("pegboard.f(1 a: int = 3)", "pegboard.f(1 a: int = 4)", True),  # a default is another one
        ("pegboard.f(1 a: int)", "pegboard.f(= a: int)", True),  # it is no longer taken by its place
        ("pegboard.f() -> int", "pegboard.f() -> str", True),
        ("hook pegboard_models()", "", True),
        ("role hang drop", "", True),
        ("pegboard.f()", "pegboard.f()\npegboard.f(1 a: int)", True),  # callers do not give it
        ("pegboard.f()", "pegboard.f()\npegboard.f(1 a: int = 0)", False),
        ("pegboard.Trick.hang()", "pegboard.Trick.hang()\npegboard.Trick.hang(2 b: int = 0)", True),
        ("pegboard.f()", "pegboard.f()\npegboard.g()\npegboard.g(1 a: int)", False),  # all new
        ("pegboard.Trick()", "pegboard.Trick()\npegboard.Trick.more()", False),
        ("pegboard.Metric()", "pegboard.Metric()\npegboard.Metric.more()", True),  # theirs lacks it
        (
            "pegboard.Model()",
            "pegboard.Model()\npegboard.Model keeps the field x of configs for the core",
            True,
        ),
    ],
)
def test_a_change_of_the_surface_is_judged(old: str, new: str, broken: bool) -> None:
    found = changes(old.splitlines(), new.splitlines())
    assert bool(found.broken) == broken and (broken or found.added)


def test_the_surface_has_signatures_fields_methods_and_hooks() -> None:
    lines = surface()
    assert len(lines) == len(set(lines)) > 300
    for line in (
        "pegboard.train(= quiet: bool = False)",
        "pegboard.Context.generator(1 purpose: str = '')",
        "pegboard.Model(1 name: str)",
        "pegboard.Model builds torch.nn.Module",
        "pegboard.Dataset keeps the field lengths of configs for the core",
        "pegboard.Schedule.kind: ClassVar[str] = 'schedule'",
        "pegboard.Regularizer(= stages: Mapping[Stage, RoleName] = <factory>)",
        "pegboard.Batch(2 target: Tensor | None = None)",
        "pegboard.Trick.edit_batch() -> Batch",
        "pegboard.Source.__len__() -> int",
        "pegboard.Image is a Spec",
        "pegboard.testing.conformance()",
        "hook pegboard_health() -> Sequence[Problem]",
        "role hang normalize",
    ):
        assert line in lines, line


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pegboard.nothing  # noqa: B018


def test_import_needs_neither_torch_nor_numpy() -> None:
    code = "import sys, pegboard, pegboard.registry.discovery; print({'torch', 'numpy'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def plain(word: str) -> str:
    """`CrossEntropy`, `cross_entropy` and `cross-entropy` are one name."""
    return re.sub(r"[_-]", "", word).lower()


def used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and spelling of every identifier, and of every word in a string that is not there to explain."""
    nodes = list(ast.walk(tree))
    explained = {id(part) for node in nodes if explains(node) for part in ast.walk(node)}
    for node in nodes:
        for field in ("id", "attr", "arg", "name", "module", "asname"):
            if isinstance(word := getattr(node, field, None), str) and id(node) not in explained:
                yield getattr(node, "lineno", 0), word.rpartition(".")[2]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in explained:
            yield from ((node.lineno, word) for word in re.findall(r"[A-Za-z][\w-]*", node.value))


def explains(node: ast.AST) -> bool:
    """Docstrings, and the `EXAMPLE` that a command shows, may name parts to show the manner; and what torch
    itself has under such a name is no part.
    """
    if isinstance(node, ast.Attribute):
        return bool(re.fullmatch(r"torch\.optim|(nn\.)?functional|F", ast.unparse(node.value)))
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) == "EXAMPLE"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def named_parts(text: str, names: set[str]) -> list[tuple[int, str]]:
    return [(line, word) for line, word in used(ast.parse(text)) if plain(word) in names]


def test_core_names_no_part() -> None:
    registry = Registry.discover()
    wheels = {tomllib.loads((p / "pyproject.toml").read_text())["project"]["name"] for p in PROJECTS}
    ready = {plugin.dist for plugin in registry.plugins if plugin.status == "ready"}
    assert wheels - {"pegboard"} <= ready
    ours = [p for p in registry.plugins if p.dist in wheels]
    names = {plain(part.name) for plugin in ours for part in plugin.parts} - WORDS
    assert len(names) > 30
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in SOURCES
        for line, word in named_parts(path.read_text(), names)
    ]
    assert not found


def test_a_named_part_is_found() -> None:
    text = '"""dropout"""\nfrom x import CrossEntropy\ny = f"a {z} batch-norm"\ndropout = 1\n# dropout\n'
    text += "a = functional.dropout(b)\n"
    found = named_parts(text, {"dropout", "crossentropy", "batchnorm"})
    assert sorted(found) == [(2, "CrossEntropy"), (3, "batch-norm"), (4, "dropout")]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of what a module imports, in its functions too."""
    package = ["pegboard", *path.relative_to(CORE).parent.parts]
    for node in running(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            full = ".".join([*base, *filter(None, [node.module])])
            yield from ((node.lineno, f"{full}.{alias.name}") for alias in node.names)


def running(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below this one that is not for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from running(child)


def upward(path: Path, found: Iterable[tuple[int, str]]) -> list[str]:
    """Imports of a module that lead to a neighbour or to a room above its own."""
    level = {room: at for at, line in enumerate(ROOMS.split("\n")) for room in line.split()}
    own = path.relative_to(CORE).parts[0]
    wrong = []
    for line, name in found:
        room = name.split(".")[1] if name.startswith("pegboard.") else own
        if room != own and level.get(room, -1) >= level[own]:
            wrong.append(f"{path.relative_to(CORE)}:{line}: {own} imports {name}")
    return wrong


def test_core_imports_no_plugin() -> None:
    names = [(path.name, name) for path in SOURCES for _, name in imports(path)]
    assert not [pair for pair in names if re.match(r"pegboard_|wandb|sklearn|datasets|torchmetrics", pair[1])]


def test_rooms_import_only_from_those_below() -> None:
    found = [wrong for path in SOURCES if path.parent != CORE for wrong in upward(path, imports(path))]
    assert not found, "\n".join(found)


def test_an_import_in_a_function_counts_and_one_for_type_checkers_does_not() -> None:
    text = "def f():\n    from ..run import training\nif TYPE_CHECKING:\n    from ..cli import main\n"
    path = CORE / "data" / "made.py"
    found = [node for node in running(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert [node.module for node in found] == ["run"]
    assert upward(path, [(2, "pegboard.run.training")]) == [
        "data/made.py:2: data imports pegboard.run.training"
    ]
    assert upward(path, [(2, "pegboard.store.zoo"), (3, "pegboard.base.errors")]) == [
        "data/made.py:2: data imports pegboard.store.zoo"
    ]


def test_nothing_but_the_facade_lies_at_the_top() -> None:
    assert {path.name for path in CORE.glob("*.py")} == {"__init__.py", "__main__.py"}
    rooms = {path.parent.name for path in CORE.glob("*/__init__.py")}
    assert rooms == set(ROOMS.split())


def test_the_core_is_typed() -> None:
    assert (CORE / "py.typed").is_file()
