"""The names of a run's files stand in one module, and so does what writes a file whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from pegboard.store import names
from sandbox import ROOT

CORE = ROOT / "framework" / "src" / "pegboard"
NAMES = {value for name, value in vars(names).items() if name.isupper()}
PLAIN = {names.CHECKPOINTS, names.FOLD}  # words that stand for nothing else
SPELLED = {
    "store/names.py": "all of them",
    "config/trained_models.py": "those of a trained model, which a config may name",
    "config/other_trainers.py": "an example in a message",
    "cli/new.py": "files of a new plugin",
    "tools/scaffold/__init__.py": "the same",
}
XDG = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME")


def spelled(source: str) -> Iterator[tuple[int, str]]:
    """Names of a run's files in a module's strings, sentences aside; a plain word counts in a path alone."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            words = [n.value for n in (node.left, node.right) if isinstance(n, ast.Constant)]
            yield from ((node.lineno, word) for word in words if word in NAMES)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            found = [p for p in node.value.split("/") if p in NAMES and ("." in p or p in PLAIN)]
            yield from ((node.lineno, piece) for piece in found)


def test_the_files_of_a_run_are_named_in_one_module() -> None:
    found = [
        f"{path.relative_to(CORE)}:{line}: {name}"
        for path in sorted(CORE.rglob("*.py"))
        if path.relative_to(CORE).as_posix() not in SPELLED
        for line, name in spelled(path.read_text("utf-8"))
    ]
    assert not found, "pegboard.store.names has these: " + ", ".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "folder / 'figures'",
        "f'{run}/config.yaml'",
        "x = {'summary.json': 1}",
        "g.glob('*/manifest.json')",
        "'checkpoints'",
        "f'fold-{number}'",
    ],
)
def test_a_name_is_found_however_it_is_written(line: str) -> None:
    assert list(spelled(line))


@pytest.mark.parametrize(
    "line", ["summary['figures']", "x.get('data')", "'no config.yaml is there'", "a / 'b'"]
)
def test_keys_and_sentences_are_no_names_of_files(line: str) -> None:
    assert not list(spelled(line))


def test_one_module_writes_beside_and_renames_and_knows_the_folders_of_a_person() -> None:
    whole = {"base/files.py"}
    folders = {  # whose renames move a folder that was made whole, or put a damaged file aside
        "store/run_folder.py",
        "store/checkpoint.py",
        "cli/plugins/disable.py",
    }
    for path in sorted(CORE.rglob("*.py")):
        place, tree = path.relative_to(CORE).as_posix(), ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if place not in whole and isinstance(node, ast.Constant):
                assert node.value not in XDG, f"{place}:{node.lineno}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                one = len(node.args) == 1 and not node.keywords and node.func.attr in ("rename", "replace")
                assert not one or place in whole | folders, f"{place}:{node.lineno}: {ast.unparse(node)}"
