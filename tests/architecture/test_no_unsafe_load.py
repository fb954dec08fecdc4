"""No command reaches a load that can execute what it reads: by reading the source, and by watching it run."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox import PROJECTS, ROOT

SOURCES = sorted(path for project in PROJECTS for path in (project / "src").rglob("*.py"))

# Calls that execute what they are given, or may.
BUILTINS = {"eval", "exec", "compile", "__import__", "execfile"}
DOTTED = {
    "os.system", "os.popen", "os.execv", "os.execve", "os.execvp", "os.spawnv", "os.posix_spawn",
    "pickle.load", "pickle.loads", "pickle.Unpickler", "dill.load", "dill.loads", "cloudpickle.load",
    "joblib.load", "marshal.load", "marshal.loads", "shelve.open", "pandas.read_pickle", "runpy.run_path",
    "yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.unsafe_load_all",
    "importlib.import_module", "importlib.util.spec_from_file_location", "hydra.utils.instantiate",
    "torch.hub.load", "torch.jit.load", "torch.package.PackageImporter", "numpy.load", "np.load",
    "shutil.unpack_archive", "subprocess.getoutput", "code.interact",
}  # fmt: skip
MODULES = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "runpy", "code"}
LOADERS = {"Loader", "FullLoader", "UnsafeLoader", "unsafe_load"}
WORDS = {"allow_pickle", "trust_remote_code", "shell", "extractall", "extract"}

# What is there on purpose: file -> calls, each with its reason.
ALLOWED = {
    "framework/src/pegboard/__init__.py": {"importlib.import_module"},  # public names, from a fixed table
    "framework/src/pegboard/base/deprecation.py": {"importlib.import_module"},  # those that left, likewise
    "framework/src/pegboard/cli/__init__.py": {"importlib.import_module"},  # commands, from a fixed tuple
    "framework/src/pegboard/cli/plugins/__init__.py": {"importlib.import_module"},  # its actions, likewise
    # An unpickler that makes arrays and containers from a fixed table and refuses all else.
    "plugins/gnn/src/pegboard_gnn/unpickling.py": {"import pickle"},
    "plugins/gnn/src/pegboard_gnn/trials.py": {"import pickle"},  # writes files in that form, reads none
    # Names of torch, from fixed lists.
    "framework/src/pegboard/engine/torch_private.py": {"importlib.import_module"},
    "plugins/datasets/src/pegboard_datasets/series_files.py": {"numpy.load"},  # with allow_pickle=False
    # Data sets, from a fixed list.
    "plugins/gnn/src/pegboard_gnn/data_parts.py": {"importlib.import_module"},
    # Files that the user named as local plugins, and no others: see loading.read_saved.
    "framework/src/pegboard/registry/discovery.py": {"importlib.util.spec_from_file_location"},
}


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def unsafe(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines of a module that load in a way that can execute, with what they do."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            yield from ((line, f"import {a.name}") for a in node.names if a.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            if node.module in MODULES:
                yield line, f"import {node.module}"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from ((line, name) for name in names & (DOTTED | {"torch.load"}))
        elif isinstance(node, ast.Attribute) and node.attr in LOADERS:
            yield line, dotted(node)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            given = {k.arg: k.value for k in node.keywords}
            if name in BUILTINS or name in DOTTED:
                yield line, name
            if name == "torch.load" and not _is(given.get("weights_only"), True):
                yield line, "torch.load without weights_only=True"
            last = name.rpartition(".")[2]
            if last in ("extractall", "extract") and not _is(given.get("filter"), "data"):
                yield line, f"{last} without filter='data'"
            for word in WORDS & given.keys():
                if not _is(given[word], False):
                    yield line, f"{word}="


def _is(node: ast.AST | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_source_loads_in_a_way_that_can_execute(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    found = {(line, what) for line, what in unsafe(ast.parse(path.read_text("utf-8")))}
    assert {f"line {line}: {what}" for line, what in found if what not in ALLOWED.get(name, ())} == set()


def test_what_is_allowed_is_still_there() -> None:
    for name, calls in ALLOWED.items():
        assert {what for _, what in unsafe(ast.parse((ROOT / name).read_text("utf-8")))} == calls


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "from torch import load",
        "yaml.load(text, Loader=yaml.FullLoader)",
        "yaml.unsafe_load(text)",
        "eval(text)",
        "exec(compile(text, 'x', 'exec'))",
        "__import__(name)",
        "importlib.import_module(name)",
        "numpy.load(path, allow_pickle=True)",
        "array(path, allow_pickle=flag)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
        "load_dataset(path, trust_remote_code=True)",
        "tarfile.open(path).extractall(folder)",
        "archive.extractall(folder, filter='fully_trusted')",
    ],
)
def test_the_scan_can_fail(line: str) -> None:
    assert list(unsafe(ast.parse(line)))


def test_the_scan_lets_ordinary_code_be() -> None:
    fine = (
        "torch.load(p, weights_only=True); re.compile(x); model.eval(); archive.extractall(f, filter='data')"
    )
    assert list(unsafe(ast.parse(fine))) == []


WATCH = """
import json, os, sys

found = []

def caller():
    frame = sys._getframe(2)
    return frame.f_code.co_filename

def watch(event, args):
    if event == "pickle.find_class":
        found.append(f"{event} {args[0]}.{args[1]}")
    elif event.startswith(("os.system", "os.exec", "os.posix_spawn", "os.spawn", "socket.connect")):
        found.append(f"{event} {args}")
    elif event == "subprocess.Popen":
        words = args[1] if isinstance(args[1], list) else [args[1]]
        if words[0] not in ("git", "uname"):  # what a run folder records of its surroundings
            found.append(f"{event} {words}")
    elif event in ("exec", "compile"):
        # Dataclasses and named tuples of libraries are made by exec; ours to watch is who asks for it.
        if any(part in caller() for part in OURS):
            found.append(f"{event} by {caller()}")

OURS = ("/pegboard/", "/pegboard_")
sys.addaudithook(watch)

from pegboard.cli import main
import pegboard

assert main(["train", "cfg.yaml", "--quiet"]) == 0
run = "runs/cfg/latest"
assert main(["eval", run]) == 0
assert main(["predict", run, "-o", "out.csv"]) == 0
assert main(["predict", run, "--input", "rows.csv"]) == 0
assert main(["resume", run, "--quiet"]) == 0
assert main(["check", "cfg.yaml"]) == 0
assert main(["explain", "cfg.yaml"]) == 0
assert main(["zoo", "list"]) == 0
assert main(["zoo", "show", "digits/mlp"]) == 0
pegboard.load(run)
pegboard.load(os.path.join(run, "checkpoints", "last"))
print(json.dumps(found))
"""


@pytest.mark.sweep
def test_commands_run_nothing_that_they_read(tmp_path: Path) -> None:
    (tmp_path / "cfg.yaml").write_text(
        textwrap.dedent("""
        data: {name: hub, path: ./rows.csv, inputs: [a, c], target: {column: b, kind: classes}}
        model: {name: mlp, hidden: [4]}
        optimizer: {name: adamw}
        trainer: {epochs: 2, device: cpu}
        regularizers: {dropout: {}, batchnorm: {}}
        """)
    )
    rows = "".join(f"{i % 7},{i % 2},{i % 3}.5\n" for i in range(60))
    (tmp_path / "rows.csv").write_text("a,b,c\n" + rows)
    (tmp_path / "watch.py").write_text(WATCH)
    done = subprocess.run(
        [sys.executable, "watch.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_the_watch_can_fail(tmp_path: Path) -> None:
    head = WATCH.partition("from pegboard.cli")[0].replace("OURS = (", "OURS = ('watch.py', ")
    body = """
import pickle, subprocess
pickle.loads(pickle.dumps(os.getcwd))
os.system("true")
subprocess.run(["true"])
exec("1")
print(json.dumps(found))
"""
    (tmp_path / "watch.py").write_text(head + body)
    done = subprocess.run(
        [sys.executable, "watch.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    said = " ".join(json.loads(done.stdout))
    for event in ("pickle.find_class", "os.system", "subprocess.Popen", "exec by"):
        assert event in said
