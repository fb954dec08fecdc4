"""What happens before the first training step: what is imported, and what plugins that nobody uses cost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crowd import install_crowd

CONFIG = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
MANY = 500
FILES = 3  # of a plugin that may be read to know that it is not needed: entry points, metadata, record


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_crowd(tmp_path_factory.mktemp("site"), MANY)


def python(code: str, *words: str) -> dict[str, Any]:
    """What a piece of code prints last, in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


CHECK = """
import json, sys
site, config = sys.argv[1:]
sys.path.append(site)
opened = 0
def watch(event, args):
    global opened
    opened += event == "open" and str(args[0]).startswith(site)
from pegboard.cli import main
sys.addaudithook(watch)
assert main(["check", config]) == 0
idle = sum(name.startswith("pegboard_idle") for name in sys.modules)
print(json.dumps({"opened": opened, "idle": idle, "torch": "torch" in sys.modules}))
"""


def test_check_neither_imports_plugins_that_the_config_does_not_name_nor_reads_much_of_them(
    crowd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert python(CHECK, str(crowd), str(CONFIG))["idle"] == MANY  # the first time they are not known
    found = python(CHECK, str(crowd), str(CONFIG))
    assert (found["idle"], found["torch"]) == (0, False)
    assert MANY <= found["opened"] <= FILES * MANY


FIRST = """
import json, os, sys
from pegboard.engine.loop import Loop
heavy = ("torchmetrics", "sklearn", "scipy", "pandas", "matplotlib", "datasets", "pyarrow", "PIL", "wandb",
         "torch._inductor", "torch._dynamo.config", "omegaconf")
def span(self, *args):
    print(json.dumps({"heavy": [name for name in heavy if name in sys.modules]}), flush=True)
    os._exit(0)
Loop.span = span
from pegboard.cli import main
main(["train", *sys.argv[1:], "--quiet"])
"""


def test_nothing_that_a_step_does_not_need_is_imported_before_the_first(tmp_path: Path) -> None:
    assert python(FIRST, str(CONFIG), "--root", str(tmp_path)) == {"heavy": []}


ABSENT = """
import json, sys
import torch
from pegboard.engine.torch_private import MARK, compiler_absent

model = torch.nn.Linear(2, 2)
marked = lambda: hasattr(torch.optim.Optimizer.add_param_group.__wrapped__, MARK)
found = {}
def step(optimizer):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
with compiler_absent():
    step(torch.optim.AdamW(model.parameters()))
    found["without"] = "torch._dynamo.config" not in sys.modules and marked()
found["left"] = "torch._dynamo" not in sys.modules and "_dynamo" not in vars(torch) and not marked()
with compiler_absent():
    step(torch.optim.SGD(model.parameters()))
    twice = torch.compile(lambda x: 2 * x, backend="eager", fullgraph=True)
    found["compiles"] = twice(torch.ones(2)).tolist() == [2, 2] and not marked()
    step(torch.optim.Adam(model.parameters()))
    real = sys.modules["torch._dynamo"]
found["stays"] = sys.modules["torch._dynamo"] is real is torch._dynamo and marked()
with compiler_absent():
    found["again"] = sys.modules["torch._dynamo"] is real
print(json.dumps(found))
"""


@pytest.mark.sweep
def test_the_compiler_is_imported_when_it_is_used_and_not_before() -> None:
    wanted = dict.fromkeys(("without", "left", "compiles", "stays", "again"), True)
    assert python(ABSENT) == wanted
