"""What few models and tricks do trains like the rest, in steps and in graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.engine.guard import Guard, NotFinite
from pegboard.store import checkpoint
from proofs import FOLDER, LOCAL, Config, plain
from safetensors.torch import load_file
from sweeps import first_of_each, first_of_each_row
from torch import Tensor, nn

pytestmark = pytest.mark.usefixtures("lean")


def rare(**nodes: Any) -> Config:
    """A config for parts of that plugin; 8 updates an epoch."""
    trainer = {"epochs": 2, "device": "cpu", **nodes.pop("trainer", {})}
    optimizer = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
    local = [*LOCAL, str(FOLDER / "rare_parts.py")]
    return plain(**{"optimizer": optimizer, "trainer": trainer, "plugins": {"local": local}, **nodes})


def ends(given: Config, root: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """The weights at the end of steps and of graphs, and what came of compiling them."""
    found = []
    for mode in ("off", "step"):
        together = 8 if mode == "step" else 1
        config = {**given, "trainer": {**given["trainer"], "compile": mode, "steps_per_call": together}}
        run = pegboard.train(config, root=root / mode, quiet=True)
        found.append(load_file(run.folder / "checkpoints" / "last" / checkpoint.WEIGHTS))
    return found[0], found[1], run.summary["compiled"]


def alike(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return all(torch.allclose(one[name], two[name], rtol=1e-5, atol=1e-5) for name in one)


@pytest.mark.parametrize(
    ("has", "tricks", "trainer"),
    first_of_each_row(
        [
            ("complex", {"clip": {"bound": 0.1}, "ema": {"decay": 0.9}}, {"accumulate": 2}),
            ("complex", {"clip": {"bound": 0.01, "by": "value"}}, {}),
            ("complex", {"ema": {"decay": 0.9, "warmup": True}}, {}),
            ("sums", {}, {}),
            ("lengths", {"clip": {"bound": 0.1}, "ema": {"decay": 0.9}}, {}),
        ]
    ),
)
@pytest.mark.usefixtures("only_traced")
def test_a_rare_model_trains_in_steps_and_in_graphs(
    has: str, tricks: dict[str, Any], trainer: dict[str, Any], tmp_path: Path
) -> None:
    given = rare(model={"name": "rare", "has": has}, regularizers=tricks, trainer=trainer)
    eager, traced, made = ends(given, tmp_path)
    assert (made["level"], made["why"]) == ("step", "")
    assert alike(eager, traced)


GRADIENTS = {
    "complex": torch.tensor([1 + 2j, 3 + 4j]),
    "sparse": torch.eye(2).to_sparse(),
    "expanded": torch.ones(()).expand(3),
}


@pytest.mark.parametrize("kind", GRADIENTS)
def test_the_guard_looks_at_gradients_of_every_kind(kind: str) -> None:
    gradient = GRADIENTS[kind]
    p = nn.Parameter(torch.zeros_like(gradient.to_dense()))
    guard = Guard("model", [("weight", p)], torch.optim.SGD([p], 0.1), "cpu", "stop")
    assert not guard.refuses(torch.zeros(()), [gradient], [p], 0)
    with pytest.raises(NotFinite, match="the gradient of weight was not finite at step 8"):
        guard.refuses(torch.zeros(()), [gradient * torch.nan], [p], 7)


@pytest.mark.parametrize("how", first_of_each(["data", "vector"]))
@pytest.mark.usefixtures("only_traced")
def test_weights_that_a_trick_puts_elsewhere_go_on_being_trained(how: str, tmp_path: Path) -> None:
    average = {"ema": {"decay": 0.9}}
    usual, _, _ = ends(rare(regularizers={"bounded": {}, **average}), tmp_path / "usual")
    given = rare(regularizers={"bounded": {"how": how}, **average})
    eager, compiled, made = ends(given, tmp_path)
    assert made["level"] == "model" and "it gives a tensor other memory" in made["why"]
    assert alike(usual, eager) and alike(usual, compiled)


@pytest.mark.usefixtures("only_traced")
def test_a_loss_with_an_axis_is_part_of_a_graph(tmp_path: Path) -> None:
    eager, traced, made = ends(rare(regularizers={"factor": {}}), tmp_path)
    assert (made["level"], made["why"]) == ("step", "")
    assert alike(eager, traced)


@pytest.mark.usefixtures("only_traced")
def test_numbers_that_numpy_draws_are_no_part_of_a_graph(tmp_path: Path) -> None:
    eager, compiled, made = ends(rare(regularizers={"factor": {"drawn": True}}), tmp_path)
    assert made["level"] == "model" and made["why"].startswith("regularizers.factor (factor, rare_parts.py:")
    assert alike(eager, compiled)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_run_whose_gradients_are_never_finite_does_not_look_trained(precision: str, tmp_path: Path) -> None:
    trainer = {"epochs": 10, "precision": precision}
    with pytest.raises(NotFinite, match="gradient.* not finite"):
        pegboard.train(rare(regularizers={"steep": {}}, trainer=trainer), root=tmp_path, quiet=True)


@pytest.mark.usefixtures("only_traced")
def test_the_graph_of_an_evaluation_is_not_one_that_was_made_again(tmp_path: Path) -> None:
    made = pegboard.train(rare(trainer={"compile": "model"}), root=tmp_path, quiet=True).summary["compiled"]
    assert (made["level"], made["graphs"], made["recompiled"]) == ("model", 2, [])
