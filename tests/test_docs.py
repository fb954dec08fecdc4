"""Every block of code in the documentation runs. The convention, for a writer:

- The blocks of one file run in order, in one folder that starts with a copy of `configs/`.
- The first line may name a file, `# my.yaml` or `# my_trick.py`: the block is written there too.
- `bash` and `console` run line by line (in `console` only what follows `$ `) and must succeed.
  Lines with pip, make, git or cd are not run; names of projects, targets and files must be right.
- `python` runs in one namespace per file.
- `yaml` must parse; with both `data:` and `model:` it is a whole config and `pegboard check` passes.
- `toml` and `json` must parse. `text` is not run: output, sketches, formulas.
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
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from sandbox import PROJECTS, ROOT

FILES = sorted(
    path
    for pattern in ("README.md", "docs/**/*.md", "*/README.md", "plugins/*/README.md", "zoo/**/card.md")
    for path in ROOT.glob(pattern)
)
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
NAMED = re.compile(r"# (?P<name>[\w./-]+\.(yaml|py|toml|json))\n")
TIMEOUT = 300  # seconds a block may take


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


def run_block(block: Block, folder: Path, module: types.ModuleType) -> None:
    """Run one block in its folder; an exception says what is wrong."""
    name = "config.yaml" if block.language == "yaml" else f"block_{block.line}.{block.language}"
    if named := NAMED.match(block.text):
        name = named["name"]
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(block.text, encoding="utf-8")
    match block.language:
        case "bash":
            run_commands(block.text, folder)
        case "console":
            run_commands("".join(re.findall(r"^\$ (.*\n)", block.text, re.M)), folder)
        case "python":
            exec(compile(block.text, str(folder / name), "exec"), module.__dict__)
        case "yaml":
            node = yaml.safe_load(block.text)
            if isinstance(node, dict) and {"data", "model"} <= set(node):
                (folder / name).write_text(block.text, encoding="utf-8")
                run_commands(f"pegboard check {shlex.quote(name)}", folder)
        case "toml":
            tomllib.loads(block.text)
        case "json":
            json.loads(block.text)
        case "text":
            pass
        case language:
            raise ValueError(
                f"a block is {language or 'not labelled'}: label it as the test's docstring says"
            )


def run_commands(script: str, folder: Path) -> None:
    """Run the lines of a shell script, but for those that would change the machine."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] in ("pip", "make", "git", "cd"):
            check_words(words)
        elif words:
            path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
            env = {**os.environ, "PATH": path, "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
            command = ["bash", "-euo", "pipefail", "-c", line]
            outcome = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT
            )
            if outcome.returncode:
                raise RuntimeError(
                    f"$ {line}\n{outcome.stdout}{outcome.stderr}exit code {outcome.returncode}"
                )


def check_words(words: list[str]) -> None:
    """Look over a line that is not run: `pip install` names projects, `make` names targets."""
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        wrong = [word for word in words[1:] if "=" not in word and word not in targets]
    elif words[:2] == ["pip", "install"]:
        wrong = [word for word in words[2:] if not word.startswith("-") and not installable(word)]
    else:
        wrong = [] if words[0] in ("git", "cd") else words
    if wrong:
        raise ValueError(f"{' '.join(words)}: the project has no {', '.join(wrong)}")


def installable(word: str) -> bool:
    """Whether a word after `pip install` is a project here or a folder with one."""
    if (ROOT / word / "pyproject.toml").is_file():
        return True
    if "/" in word or word == ".":
        return word.split("/")[0] not in ("framework", "plugins", "zoo")  # a reader's own folder
    wanted = Requirement(word)
    for project in PROJECTS:
        table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        if table["name"] == wanted.name:
            return wanted.extras <= set(table.get("optional-dependencies", {}))
    return False


def run_page(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every block of a page, and say at which line the first wrong one stands."""
    if (ROOT / "configs").is_dir():
        shutil.copytree(ROOT / "configs", folder / "configs")
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    for block in blocks(text):
        wrong = ""
        try:
            run_block(block, folder, module)
        except Exception as error:
            wrong = f"line {block.line}, {block.language}: {type(error).__name__}: {error}"
        if wrong:
            pytest.fail(wrong, pytrace=False)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(path.read_text(encoding="utf-8"), tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```bash\ntrue\nfalse\n```", r"line 2, bash: RuntimeError: \$ false"),
        ("```console\n$ test -e nothing.txt\nno\n```", "exit code 1"),
        ("text\n```python\nx = 1\n```\n```python\nassert x == 2\n```", "line 6, python: AssertionError"),
        ("```yaml\na: [1\n```", "line 2, yaml: ParserError"),
        ("```toml\na = \n```", "TOMLDecodeError"),
        ("```json\n{\n```", "JSONDecodeError"),
        ("```bash\npip install pegboard-nothing\n```", "the project has no pegboard-nothing"),
        ("```bash\npip install pegboard[nothing]\n```", "the project has no"),
        ("```bash\nmake nothing\n```", "the project has no nothing"),
        ("```\nx\n```", "not labelled"),
        ("- item\n  ```python\n  1 / 0\n  ```\n", "ZeroDivisionError"),
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
