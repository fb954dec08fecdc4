"""Memory runs out: the message names what does not fit, by the plan's figures, and the run goes on later."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from machine import Fails, goes_on
from pegboard.config.nodes import Chosen
from pegboard.engine import torch_private
from pegboard.planning import plan as planning
from pegboard.run import out_of_memory
from pegboard.store import checkpoint
from torch import nn

FULL = RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: 9 bytes")
ERRORS = {
    "cpu": FULL,
    "gpu": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    "mps": RuntimeError("MPS backend out of memory (MPS allocated: 17 GB)"),
    "python": MemoryError(),
}
Patch = Callable[[pytest.MonkeyPatch, Exception], None]


def calls(owner: Any, name: str, when: Callable[..., bool], skip: int = 0) -> Patch:
    """A call of something fails: the first for which `when` holds, after so many."""

    def patch(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        before, left = getattr(owner, name), [skip]

        def full(*args: Any, **options: Any) -> Any:
            if when(*args):
                left[0] -= 1
                if left[0] < 0:
                    raise type(error)(*error.args)  # a fresh one: the place is read from its traceback
            return before(*args, **options)

        monkeypatch.setattr(owner, name, full)

    return patch


def real(*args: Any) -> bool:
    """Whether there are numbers behind the tensors of a call: explain makes a step without."""
    return all(not t.is_meta for t in args if isinstance(t, torch.Tensor))


def in_training(*args: Any) -> bool:
    return real(*args) and torch.is_grad_enabled()


def in_evaluation(*args: Any) -> bool:
    return real(*args) and not torch.is_grad_enabled()


# phase -> what fails, what the message names, what it says that helps, whether there is a run folder by then
PHASES: dict[str, tuple[Patch, str, str, bool]] = {
    "reading": (
        calls(planning, "build", lambda chosen, *more: isinstance(chosen, Chosen) and chosen.key == "data"),
        "the data does not fit", "read as the run goes", False,
    ),
    "building": (
        calls(nn.Linear, "reset_parameters", lambda layer: real(layer.weight)),
        "the weights (524 B) do not fit", "a smaller model", False,
    ),
    "moving": (
        calls(nn.Module, "to", lambda module, *more: more == ("cpu",)),
        "the weights (524 B) do not fit", "a smaller model", False,
    ),
    "gathering": (
        calls(torch.Tensor, "index_select", real, 9),
        "the batch (384 B) does not fit", "data.batch_size=8 trainer.accumulate=2", True,
    ),
    "forward": (
        calls(torch.nn.functional, "linear", in_training, 17),
        "the activations (", "data.batch_size=8 trainer.accumulate=2", True,
    ),
    "backward": (
        calls(torch_private, "run_backward", lambda losses, *more: real(*losses), 17),
        "the activations (", "trainer.precision=bf16", True,
    ),
    "updating": (
        calls(torch.optim.AdamW, "step", lambda optimizer, *more: real(*optimizer.param_groups[0]["params"])),
        "the state of the optimizer (", "pegboard show optimizers", True,
    ),
    "evaluating": (
        calls(torch.nn.functional, "linear", in_evaluation),
        "the activations (", "data.eval_batch_size", True,
    ),
    "saving": (
        calls(checkpoint.Saver, "save", lambda *args: True),
        "a copy of the state for a checkpoint does not fit", "a smaller model", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_what_does_not_fit_is_named_with_the_figures_of_the_plan(
    phase: str, here: Path, reference: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch, named, helps, begun = PHASES[phase]
    with monkeypatch.context() as during:
        patch(during, FULL)
        text = fails(here / "runs")
    assert f"out of memory: {named}" in text
    assert "DefaultCPUAllocator: can't allocate memory" in text
    assert helps in text
    assert ("weights 524 B" in text and "a batch 384 B" in text) == (phase != "reading")
    assert ("evaluating" in text) == (phase == "evaluating")
    assert bool(list((here / "runs").glob("*/2*"))) == begun
    if begun:
        goes_on(here / "runs", reference)


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_every_way_to_say_that_there_is_no_memory_is_understood(
    error: Exception, here: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    PHASES["forward"][0](monkeypatch, error)
    text = fails(here / "runs")
    assert "out of memory: the activations (" in text
    assert (str(error) or "there is no more to be had") in text


def test_every_place_that_is_looked_for_is_there() -> None:
    root = Path(pegboard.__file__).parent
    for file, name in out_of_memory.PLACES:
        assert f"def {name.rpartition('.')[2]}(" in (root / file).read_text("utf-8"), (file, name)


LIMITED = """
import resource, sys, torch, pegboard
from pegboard import PegboardError

def config(hidden, rows, optimizer):
    return {"name": "limited", "data": {"name": "iris", "batch_size": rows},
            "model": {"name": "mlp", "hidden": hidden}, "optimizer": {"name": optimizer, "lr": 0.01},
            "trainer": {"steps": 2, "device": "cpu", "threads": 1}}

pegboard.train(config([8], 16, "adamw"), "trainer.steps=1", root=sys.argv[1], quiet=True)  # imports all
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (200 << 20), resource.RLIM_INFINITY))
for given in (config([8000, 8000], 16, "sgd"), config([4000, 4000], 16, "adamw")):
    try:
        pegboard.train(given, root=sys.argv[1], quiet=True)
    except PegboardError as error:
        print(str(error).replace(chr(10), " | "))
    else:
        print("it fitted")
"""


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of a process is that of Linux")
def test_memory_that_the_system_refuses(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    weights, state = done.stdout.splitlines()
    assert weights.startswith("the run did not begin: out of memory: the weights (244 MiB) do not fit: ")
    assert "can't allocate memory" in weights
    assert state.startswith("the run stopped after step 0: out of memory: ")
    assert "weights 61.2 MiB, gradients 61.2 MiB, optimizer 122 MiB" in state


def test_what_the_table_of_places_names_is_there() -> None:
    for file, name in out_of_memory.PLACES:
        module = importlib.import_module("pegboard." + file.removesuffix(".py").replace("/", "."))
        assert callable(attrgetter(name)(module)), (file, name)
