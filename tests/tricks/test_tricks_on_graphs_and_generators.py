"""The five tricks and dropconnect on models of graphs, sets and samples: each acts or the plan says why."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard import PegboardError
from pegboard.engine.precision import choose_precision
from pegboard.engine.step import make_step
from pegboard.testing import partner_run
from pegboard.testing.runs import lean, plugins_once
from torch import Tensor
from trick_cases import Case, assembled, met, refused

HOMES = ("pegboard-gnn", "pegboard-generative")
TRICKS: dict[str, dict[str, Any]] = {
    "batchnorm": {"eps": 0.1},  # another than that of a norm whose place it takes
    "dropout": {"p": 0.5},
    "dropconnect": {"p": 0.5},
    "weight_decay": {"value": 0.1},
    "label_smoothing": {"epsilon": 0.2},
    "distillation": {},
}
NO_PEGS = "found nothing to act on: it hangs on .* and model '{model}' has pegs at no site at all"
NO_CLASSES = "the objective '.*' takes no soft targets, and label smoothing makes them"
NO_ANSWERS = "generates samples and answers nothing that a teacher's answers could be compared with"
# Models of samples predict no classes; patterns of a memory pass through no layer.
GENERATORS = ("autoencoder", "diffusion", "flow", "hopfield", "pca", "vae")
REFUSED = {
    **{(name, "label_smoothing"): NO_CLASSES for name in GENERATORS},
    **{(name, "distillation"): NO_ANSWERS for name in (*GENERATORS, "gan")},
    ("spectral", "dropconnect"): "found no weight to drop",  # it multiplies spectra
    **{("hopfield", trick): NO_PEGS.format(model="hopfield") for trick in ("batchnorm", "dropout")},
}


def cases(room: Path) -> dict[str, Case]:
    """Every model beside the first data that it reads of each kind of input."""
    found: dict[str, Case] = {}
    for _, case in met(HOMES, room):
        name = "-".join([case.model["name"], *(type(of).__name__ for of in case.spec.inputs)])
        if name not in found and not refused(case):
            found[name] = case
    return found


with plugins_once(), tempfile.TemporaryDirectory() as folder:
    CASES = cases(Path(folder))


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with lean():
        yield


def trained(case: Case, **tricks: Any) -> dict[str, Tensor]:
    """The weights after two updates of every player."""
    assembly = assembled(case, **tricks)
    splits, precision = assembly.plan.splits, choose_precision("fp32", "cpu")
    assert splits is not None
    assembly.model.train()
    torch.manual_seed(0)
    players = [make_step(assembly, kit, precision) for kit in assembly.kits]
    whole = len(splits.train)
    for step in range(2):
        numbers = torch.arange(8) if whole > 8 else torch.arange(whole)
        for player in players:
            assert torch.isfinite(player.update([splits.train.gather(numbers)], step))
    return {name: p.detach() for name, p in assembly.model.named_parameters()}


def test_every_model_of_both_is_here() -> None:
    models = {name.partition("-")[0] for name in CASES}
    graphs = {"gcn", "gat", "gin", "message_passing", "cheb", "spectral", "monet"}
    sets = {"deepsets", "pointnet", "equivariant"}
    assert models == graphs | sets | {*GENERATORS, "gan"}


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("name", CASES)
def test_each_acts_or_says_why_not(name: str, trick: str, tmp_path: Path) -> None:
    case, fields = CASES[name], TRICKS[trick]
    why = REFUSED.get((case.model["name"], trick))
    if trick == "distillation":
        teacher = partner_run(tmp_path, data=case.data, model=case.model, objective=None, seed=9)
        fields = {"teacher": str(teacher)}
    if why is not None:
        with pytest.raises(PegboardError, match=why):
            assembled(case, **{trick: fields})
        return
    plain, found = trained(case), trained(case, **{trick: fields})
    assert any(not torch.equal(value, found[key]) for key, value in plain.items() if key in found)
