"""Every block of code in the documentation runs. The convention, for a writer:

- The blocks of one file run in order, in one folder that starts with a copy of `configs/`.
- The first line may name a file, `# my.yaml` or `# my_trick.py`: the block is written there too. A Python
  file below a folder with a `pyproject.toml` is part of a package: it is written, and not run by itself.
- `bash` and `console` run line by line (in `console` only what follows `$ `) and must succeed, or fail where
  a comment at the end of the line begins with `fails`. What `console` shows below a command must be what the
  command prints; `...` stands for whatever is left out.
- Lines with pip, make, git, twine or cd are not run, and what they name must exist. But `cd` to a folder that
  the page made changes to it, and `pip install -e` of a project that the page made, or of an example plugin,
  lets the lines after it import that project.
- The README of an example plugin, and its page of the guide, start with that plugin installed.
- `python` runs in one namespace per file.
- `yaml` must parse; with both `data:` and `model:` it is a whole config and `pegboard check` passes.
- `toml` and `json` must parse. `text`, `markdown` and `diff` are not run: output, formulas, a file, a change.
- A block that only includes files (`--8<-- "path"`) is not run: they must exist, and have tests of their own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from editable import install
from packaging.requirements import Requirement
from sandbox import PROJECTS, ROOT
from sweeps import only
from warm import warm_commands

FILES = sorted(
    path
    for pattern in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/**/*.md",
        "*/README.md",
        "plugins/*/README.md",
        "zoo/**/card.md",
    )
    for path in ROOT.glob(pattern)
    if not path.relative_to(ROOT).parts[0].startswith(".")
)
FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>```+)(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)(?P=ticks)$",
    re.M | re.S,
)
NAMED = re.compile(r"(?:#|<!--) (?P<name>[\w./-]+\.(yaml|py|toml|json|md))(?: -->)?\n")
INCLUDED = re.compile(r'-+8<-+ "(?P<path>[^":\n]+)[^"\n]*"\n')
COMMAND = re.compile(r"^\$ (?P<line>.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", re.M)
UNRUN = ("pip", "make", "git", "cd", "twine")  # lines that would change the machine
TOOLS = ("build", "twine")  # what else a page may install
EXAMPLES = ROOT / "docs" / "examples" / "plugins"
TIMEOUT = 1200  # seconds a block may take


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and the line where it begins."""

    language: str
    text: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page in order."""
    for match in FENCE.finditer(text):
        body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.M)
        yield Block(match["language"], body, text.count("\n", 0, match.start()) + 2)


@dataclass
class Reader:
    """Somebody who does what a page says: where they are, and what they have installed."""

    home: Path
    module: types.ModuleType
    monkeypatch: pytest.MonkeyPatch
    commands: Path | None = None  # a folder with a `pegboard` that starts sooner
    folder: Path = field(init=False)
    path: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = self.home

    def read(self, block: Block) -> None:
        """Run one block; an exception says what is wrong."""
        if included := INCLUDED.findall(block.text):
            if INCLUDED.sub("", block.text).strip():
                raise ValueError("a block includes files and has lines of its own; give those a block")
            if lacking := [path for path in included if not (ROOT / path).is_file()]:
                raise FileNotFoundError(f"no file {', '.join(lacking)}")
            return
        name = "config.yaml" if block.language == "yaml" else f"block_{block.line}.{block.language}"
        if named := NAMED.match(block.text):
            name = named["name"]
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(block.text, encoding="utf-8")
        match block.language:
            case "bash":
                for line in block.text.replace("\\\n", " ").splitlines():
                    self.type(line)
            case "console":
                for command in COMMAND.finditer(block.text):
                    self.type(command["line"], command["shown"])
            case "python":
                if not (named and self.packaged(name)):
                    exec(compile(block.text, str(self.folder / name), "exec"), self.module.__dict__)
            case "yaml":
                node = yaml.safe_load(block.text)
                if isinstance(node, dict) and {"data", "model"} <= set(node):
                    (self.folder / name).write_text(block.text, encoding="utf-8")
                    self.type(f"pegboard check {shlex.quote(name)}")
            case "toml":
                tomllib.loads(block.text)
            case "json":
                json.loads(block.text)
            case "text" | "markdown" | "diff":
                pass
            case language:
                raise ValueError(
                    f"a block is {language or 'not labelled'}: label it as the test's docstring says"
                )

    def packaged(self, name: str) -> bool:
        """Whether a file belongs to a project that the page makes."""
        above = [f for f in (self.folder / name).parents if f.is_relative_to(self.home) and f != self.home]
        return any((folder / "pyproject.toml").is_file() for folder in above)

    def type(self, line: str, shown: str = "") -> None:
        """One line of a terminal, and what a page shows below it."""
        words = shlex.split(line, comments=True)
        if words and words[0] in UNRUN:
            check_words(words, self.folder)
            self.mimic(words)
        elif words:
            self.run(line, shown)

    def mimic(self, words: list[str]) -> None:
        """What a line that is not run does to those after it."""
        if words[0] == "cd" and (self.folder / words[1]).is_dir():
            self.folder = (self.folder / words[1]).resolve()
            self.monkeypatch.chdir(self.folder)
        elif words[:3] == ["pip", "install", "-e"]:
            place = without_extras(words[3])
            found = [p for p in (self.folder / place, ROOT / place) if (p / "pyproject.toml").is_file()]
            for project in found[:1]:
                if project.is_relative_to(self.home) or project.is_relative_to(EXAMPLES):
                    self.install(project)

    def install(self, project: Path) -> None:
        for folder in install(project, self.home / ".site"):
            self.path.insert(0, str(folder))
            self.monkeypatch.syspath_prepend(folder)

    def run(self, line: str, shown: str) -> None:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        if self.commands is not None:
            path = os.pathsep.join((str(self.commands), path))
        env = {**os.environ, "PATH": path, "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
        env |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(self.path)}
        env |= {
            "XDG_CONFIG_HOME": str(self.home / ".config")
        }  # what a page switches off stays off here alone
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )
        fails = re.search(r"\s#\s*fails\b", line) is not None
        if fails == (done.returncode == 0):
            told = " though the page says that it fails" if fails else ""
            raise RuntimeError(f"$ {line}\n{done.stdout}exit code {done.returncode}{told}")
        if shown.strip() and not alike(shown, done.stdout):
            raise AssertionError(f"$ {line}\nthe page shows\n{shown}\nit prints\n{done.stdout}")


def alike(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed, but for what it leaves out as `...`."""
    pieces = [re.escape(piece) for piece in tidy(shown).split("...")]
    return re.fullmatch(r"\s*" + ".*?".join(pieces) + r"\s*", tidy(printed), re.S) is not None


def tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def check_words(words: list[str], folder: Path) -> None:
    """Look over a line that is not run: `pip install` names projects, `make` names targets."""
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        wrong = [word for word in words[1:] if "=" not in word and word not in targets]
    elif words[:2] == ["pip", "install"]:
        files = [after for word, after in pairwise(words) if word in ("-c", "-r")]
        wrong = [file for file in files if not (ROOT / file).is_file()]
        others = [word for word in words[2:] if not word.startswith("-") and word not in files]
        wrong += [word for word in others if not installable(word)]
    elif words[:2] == ["pip", "wheel"]:
        wrong = [] if (folder / words[-1] / "pyproject.toml").is_file() else words[-1:]
    else:
        wrong = [] if words[0] in ("git", "cd", "twine") else words
    if wrong:
        raise ValueError(f"{' '.join(words)}: the project has no {', '.join(wrong)}")


def without_extras(word: str) -> str:
    return word.split("[")[0]


def installable(word: str) -> bool:
    """Whether a word after `pip install` is a project here or a folder with one."""
    place = without_extras(word)
    if (ROOT / place / "pyproject.toml").is_file() or word in TOOLS:
        return True
    if "/" in place or place == ".":
        return place.split("/")[0] not in ("framework", "plugins", "zoo", "docs")  # a reader's own folder
    wanted = Requirement(word)
    for project in PROJECTS:
        table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        if table["name"] == wanted.name:
            return wanted.extras <= set(table.get("optional-dependencies", {}))
    return False


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    with warm_commands() as folder:
        yield folder


def run_page(
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    example: Path | None = None,
    commands: Path | None = None,
) -> None:
    """Run every block of a page, and say at which line the first wrong one stands."""
    if (ROOT / "configs").is_dir():
        shutil.copytree(ROOT / "configs", folder / "configs")
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    reader = Reader(folder, module, monkeypatch, commands)
    if example is not None:
        reader.install(example)
    for block in blocks(text):
        wrong = ""
        try:
            reader.read(block)
        except Exception as error:
            wrong = f"line {block.line}, {block.language}: {type(error).__name__}: {error}"
        if wrong:
            pytest.fail(wrong, pytrace=False)


def example_of(path: Path) -> Path | None:
    """The example plugin that a page is about."""
    if path.is_relative_to(EXAMPLES):
        return EXAMPLES / path.relative_to(EXAMPLES).parts[0]
    found = EXAMPLES / path.stem
    return found if path.parent == EXAMPLES.parent and found.is_dir() else None


def quick(path: Path) -> bool:
    """True of a page that takes a second or two: cards of parts, some of recipes, a few pages of docs/."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "docs":
        return path.name in ("configs.md", "order.md", "closure_optimizer.md")
    if parts[0] == "plugins":
        return parts[1] in ("dropout", "mlp")
    if parts[0] == "framework":
        return False
    return path.name != "card.md" or parts[-3] == "xor"


@pytest.mark.parametrize(
    "path", only(FILES, [*filter(quick, FILES)]), ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_block_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Path
) -> None:
    run_page(path.read_text(encoding="utf-8"), tmp_path, monkeypatch, example_of(path), commands)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```bash\ntrue\nfalse\n```", r"line 2, bash: RuntimeError: \$ false"),
        ("```bash\ntrue  # fails: it should\n```", "though the page says that it fails"),
        ("```console\n$ test -e nothing.txt\nno\n```", "exit code 1"),
        ("```console\n$ echo one; echo two\none\nthree\n```", "it prints\none\ntwo"),
        ("text\n```python\nx = 1\n```\n```python\nassert x == 2\n```", "line 6, python: AssertionError"),
        ("```yaml\na: [1\n```", "line 2, yaml: ParserError"),
        ("```toml\na = \n```", "TOMLDecodeError"),
        ("```json\n{\n```", "JSONDecodeError"),
        ("```bash\npip install pegboard-nothing\n```", "the project has no pegboard-nothing"),
        ("```bash\npip install pegboard[nothing]\n```", "the project has no"),
        ("```bash\npip wheel nothing\n```", "the project has no nothing"),
        ("```bash\nmake nothing\n```", "the project has no nothing"),
        ("```\nx\n```", "not labelled"),
        ("- item\n  ```python\n  1 / 0\n  ```\n", "ZeroDivisionError"),
        ('```python\n--8<-- "docs/nothing.py"\n```', "FileNotFoundError: no file docs/nothing.py"),
        ('```python\n--8<-- "Makefile"\nx = 1\n```', "lines of its own"),
    ],
)
def test_wrong_block_is_found(
    page: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(pytest.fail.Exception, match=message):
        run_page(page, tmp_path, monkeypatch)


def test_named_block_is_a_file_for_those_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "```python\n# part/one.py\nx = 41\n```\n```bash\ngrep 41 part/one.py\nmake test ARGS=-x\n```"
    run_page(f"{page}\n```python\nassert x == 41\n```", tmp_path, monkeypatch)
    assert (tmp_path / "part" / "one.py").is_file()


def test_what_a_page_shows_may_leave_lines_and_words_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = "one\ntwo ... ms\n...\nfour\n"
    page = f"```console\n$ printf 'one\\ntwo 12 ms\\nthree\\nfour\\n'\n{shown}$ false  # fails\n```"
    run_page(page, tmp_path, monkeypatch)


PROJECT = """
```toml
# acme-x/pyproject.toml
[project]
name = "acme-x"
version = "1.0"
dependencies = ["pegboard>=0.1,<1"]
entry-points.pegboard.x = "acme_x"
```

```python
# acme-x/src/acme_x/__init__.py
from . import no_such_module_yet
```

```python
# acme-x/src/acme_x/no_such_module_yet.py
```

```bash
cd acme-x
pip install -e ".[test]"
pip wheel --no-deps .
python -c "import acme_x; from importlib.metadata import version; assert version('acme-x') == '1.0'"
test -d src
cd ..
test -d configs
```

```python
import acme_x
```
"""


@pytest.mark.parametrize("installed", [True, False])
def test_a_project_that_a_page_makes_can_be_imported_once_it_is_installed(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        run_page(PROJECT, tmp_path, monkeypatch)
        assert sys.modules.pop("acme_x").__file__ == str(
            tmp_path / "acme-x" / "src" / "acme_x" / "__init__.py"
        )
    else:
        with pytest.raises(pytest.fail.Exception, match="No module named 'acme_x'"):
            run_page(PROJECT.replace("pip install", "true"), tmp_path, monkeypatch)
