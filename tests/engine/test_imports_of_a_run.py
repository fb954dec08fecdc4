"""What a whole run imports, from its config to its report: what it uses, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WATCHED = """torchmetrics sklearn scipy pandas matplotlib datasets pyarrow PIL wandb torch._inductor
torch._dynamo.config omegaconf sympy transformers torch_geometric tokenizers sacrebleu jinja2""".split()
RUN = f"""
import json, sys
from pegboard.cli import main
assert main(["train", *sys.argv[1:], "--quiet"]) == 0
print(json.dumps([name for name in {WATCHED!r} if name in sys.modules]))
"""
ALWAYS = {"matplotlib", "PIL", "jinja2"}  # the curves, and the page of the run
ALWAYS |= {"sympy"}  # by torch itself, for operations on the meta device that it has in Python
FAMILIES = {"mlp": "configs/quickstart.yaml", "cnn": "configs/pictures.yaml", "rnn": "configs/series.yaml"}


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.sweep if f != "mlp" else ()) for f in FAMILIES]
)
def test_a_run_imports_what_it_uses(family: str, tmp_path: Path) -> None:
    config = str(ROOT / FAMILIES[family])
    command = [sys.executable, "-W", "ignore", "-c", RUN, config, "trainer.steps=2"]
    done = subprocess.run([*command, "--root", str(tmp_path)], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout.splitlines()[-1])) == ALWAYS
