"""Each of the five tricks, and dropconnect, on every model of the families and all data that the model reads.

A new model is in these tests by being installed. What a trick does is proved where it lives; here, that it
acts on this model, in the places that the literature gives it, and nowhere else.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from pegboard import Batch, DataSpec, PegboardError, Tokens
from pegboard.engine.precision import choose_precision
from pegboard.engine.step import make_step
from pegboard.planning import pegs
from pegboard.planning.plan import Assembly
from pegboard.testing import partner_run
from pegboard.testing.runs import lean, plugins_once
from pegboard_transformer import Masked, Span
from torch import Tensor, nn
from trick_cases import Case, assembled, met, refused

FAMILIES = ("pegboard-cnn", "pegboard-mlp", "pegboard-rnn", "pegboard-transformer")
TARGETS = ("Classes", "Tokens", "Masked", "Span")
TRICKS: dict[str, dict[str, Any]] = {
    "batchnorm": {"eps": 0.1},  # unlike that of networks with one of their own
    "dropout": {"p": 0.3},
    "weight_decay": {"value": 0.5, "embeddings": False},
    "label_smoothing": {"epsilon": 0.2},
    "distillation": {"alpha": 0.5, "temperature": 2.0},
}
# Where the literature puts dropout, as far as a model has it.
DROPPED = {"embedding", "attention", "hidden", "residual"}
NO_PLACE = "where the model .* has no pegs"  # how the plan says that a trick finds none
ASKED = ("pegboard_transformer:masked", "pegboard_transformer:span")
ENDING = ("padded", "lines", "steps", "pair", "sentences", *ASKED)  # data whose samples end early
KINDS = ["linear", "recurrent", "convolution"]  # of layers whose weights dropconnect drops
RATE = 0.01  # of the partner that descends


def cases(room: Path) -> dict[str, Case]:
    """Every model beside the first data that it reads of each kind of input and target; padded data first."""
    found: dict[str, Case] = {}
    for dist, case in met(FAMILIES, room):
        kinds = [type(of).__name__ for of in (case.spec.inputs[0], case.spec.target)]
        name = "-".join([case.model["name"], *kinds])
        flat = dist == "pegboard-mlp" and kinds[0] != "Vector"  # which is read as a vector
        if not flat and kinds[1] in TARGETS and name not in found and not refused(case):
            found[name] = case
    case = found["cnn-Tokens-Classes"]
    found["cnn-branches"] = case._replace(
        model={"name": "cnn", "channels": 4, "kernel": [2, 3], "branches": True, "hidden": []}
    )
    for cell in ("elman", "gru", "mingru", "lru"):
        case = found["rnn-Tokens-Classes"]
        found[f"rnn-{cell}"] = case._replace(model={**case.model, "cell": cell, "layers": 2})
    return found


with plugins_once(), tempfile.TemporaryDirectory() as folder:
    CASES = cases(Path(folder))


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with lean():
        yield


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A short run for every kind of data, from other initial weights than those of students."""
    kinds, folder = {str(case.data): case for case in CASES.values()}, tmp_path_factory.mktemp("teachers")
    return {
        kind: str(partner_run(folder, data=case.data, model=case.model, objective=None, seed=9))
        for kind, case in kinds.items()
    }


class Trained(NamedTuple):
    assembly: Assembly
    batches: list[Batch]
    losses: list[float]
    unread: Tensor  # the largest slope of the loss with respect to an output where there is no target

    def weights(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.assembly.model.named_parameters()}


def trained(case: Case, steps: int = 3, **tricks: Any) -> Trained:
    assembly = assembled(case, **tricks)
    assembly.model.train()
    (kit,), splits = assembly.kits, assembly.plan.splits
    assert splits is not None
    update = make_step(assembly, kit, choose_precision("fp32", "cpu")).update
    batches = [splits.train.gather(torch.arange(8 * step, 8 * step + 8)) for step in range(steps)]
    slopes: list[Tensor] = []
    hook = assembly.model.register_forward_hook(
        lambda module, inputs, output: output.register_hook(slopes.append) and None
    )
    losses = [float(update([batch], step)) for step, batch in enumerate(batches)]
    hook.remove()
    unread = [slope[nothing(case.spec, batch)] for slope, batch in zip(slopes, batches, strict=True)]
    return Trained(assembly, batches, losses, torch.cat([torch.zeros(0), *map(torch.flatten, unread)]).abs())


def nothing(spec: DataSpec, batch: Batch) -> Tensor:
    """Places of an output whose target is padding, or not asked for."""
    target = batch.target
    assert target is not None
    match spec.target:
        case Tokens():
            return (target == spec.target.padding) | (target == -100)
        case Masked():
            return target == -100
    return torch.zeros(len(target), dtype=torch.bool)


@pytest.fixture(scope="module")
def plain() -> dict[str, Trained]:
    """What each case learns without tricks; made when it is first asked for."""

    class Made(dict[str, Trained]):
        def __missing__(self, name: str) -> Trained:
            return self.setdefault(name, trained(CASES[name]))

    return Made()


def differs(one: Trained, two: Trained) -> bool:
    a, b = one.weights(), two.weights()
    return any(not torch.equal(a[name], b[name]) for name in a if name in b)


def hung(run: Trained, trick: str) -> set[str]:
    return {name for name, peg in pegs.find(run.assembly.model) if trick in peg._modules}


def sites(run: Trained, *wanted: str) -> set[str]:
    return {name for name, peg in pegs.find(run.assembly.model) if peg.site in wanted}


def test_every_family_is_here() -> None:
    models = {name.partition("-")[0] for name in CASES}
    assert models >= {"cnn", "lenet", "resnet", "densenet", "invariant", "multiview", "mlp", "rnn", "seq2seq"}
    assert models >= {"encoder", "decoder", "translation", "bert", "vit"}
    read = {f"cnn-{kind}-Classes" for kind in ("Image", "Series", "Tokens", "Voxels")}
    asked = {f"bert-Tokens-{kind}" for kind in ("Classes", "Tokens", "Masked", "Span")}
    assert read | asked | {"rnn-Tokens-Tokens", "encoder-Tokens-Tokens"} <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_batchnorm_follows_every_affine_map(name: str, plain: dict[str, Trained]) -> None:
    case = CASES[name]
    if not sites(plain[name], "affine"):
        with pytest.raises(PegboardError, match=NO_PLACE):
            assembled(case, batchnorm={})
        return
    run = trained(case, batchnorm=TRICKS["batchnorm"])
    places = sites(run, "affine")
    assert places and hung(run, "batchnorm") == places
    for place in places:
        peg = run.assembly.model.get_submodule(place)
        assert list(peg._modules) == ["batchnorm"]  # a norm of the model's own has made way
        norm: Any = peg.batchnorm
        assert norm.num_batches_tracked > 0 and norm.running_mean.isfinite().all()
        assert norm.running_mean.any() and norm.running_var.min() > 0 and norm.bias.any()
    assert run.losses != plain[name].losses and differs(run, plain[name])
    assert not run.unread.any()


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.data.get("form") in ENDING])
def test_batchnorm_of_sequences_leaves_padding_out(name: str) -> None:
    """Shorter samples by themselves and with more padding leave the same statistics."""
    case, found = CASES[name], []
    for cut in (True, False):
        run = trained(case, 0, batchnorm=TRICKS["batchnorm"])
        splits = run.assembly.plan.splits
        assert splits is not None
        inputs = splits.train.gather(torch.tensor([0, 1, 4, 5])).inputs  # of 3 and 4 steps
        run.assembly.model(*[x[:, :4] if cut else x for x in inputs])
        found.append({k: v for k, v in run.assembly.model.state_dict().items() if ".running_" in k})
    assert found[0] and any(value.any() for value in found[0].values())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_dropout_is_on_embeddings_attention_hidden_units_and_branches(
    name: str, plain: dict[str, Trained]
) -> None:
    case = CASES[name]
    if not sites(plain[name], "hidden"):  # where it hangs by itself
        with pytest.raises(PegboardError, match=NO_PLACE):
            assembled(case, dropout={})
        return
    there = {peg.site for _, peg in pegs.find(plain[name].assembly.model)} & DROPPED
    run = trained(case, dropout={**TRICKS["dropout"], "sites": sorted(there)})
    assert hung(run, "dropout") == sites(run, *there)
    assert run.losses != plain[name].losses and differs(run, plain[name])
    # A mask for all steps at once: what is called once cannot stand between the steps of a recurrence.
    calls: list[Tensor] = []
    for _, peg in pegs.find(run.assembly.model):
        if "dropout" in peg._modules and peg.site != "attention":
            peg._modules["dropout"].register_forward_pre_hook(lambda module, given: calls.append(given[0]))
    run.assembly.model(*run.batches[0].inputs)
    assert len(calls) == len(sites(run, *(there - {"attention"})))


NO_MATRIX = ("prototypes",)  # nothing in it multiplies


@pytest.mark.parametrize("name", CASES)
def test_dropconnect_masks_every_matrix_but_those_of_embeddings(name: str, plain: dict[str, Trained]) -> None:
    case = CASES[name]
    if case.model["name"] in NO_MATRIX:
        with pytest.raises(PegboardError, match="found no weight to drop"):
            assembled(case, dropconnect={"layers": KINDS})
        return
    run = trained(case, dropconnect={"p": 0.3, "layers": KINDS})
    assert run.weights().keys() == plain[name].weights().keys()
    assert run.losses != plain[name].losses and differs(run, plain[name])
    made = {path for path, m in run.assembly.model.named_modules() if type(m).__name__[:11] == "DropConnect"}
    layers = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase)
    there = {path for path, m in run.assembly.model.named_modules() if isinstance(m, layers)}
    assert there and there <= made
    assert not any(isinstance(run.assembly.model.get_submodule(path), nn.Embedding) for path in made)


@pytest.mark.parametrize("name", CASES)
def test_weight_decay_spares_biases_norms_and_embeddings(name: str) -> None:
    case = CASES[name]
    start = trained(case, 0).weights()
    plain = trained(case, 1).weights()
    run = trained(case, 1, weight_decay=TRICKS["weight_decay"])
    model, decayed = run.assembly.model, set()
    for path, module in model.named_modules():
        for of, p in module._parameters.items():
            spared = isinstance(module, (nn.Embedding, nn.LayerNorm, nn.modules.batchnorm._BatchNorm))
            spared |= path.endswith("positions") or path == "embed.read"  # also where it reads real vectors
            if p is not None and not spared and p.ndim > 1 and "bias" not in of:
                decayed.add(f"{path}.{of}".lstrip("."))
    weights = run.weights()
    assert {n for n in weights if not torch.equal(weights[n], plain[n])} == decayed & set(weights) != set()
    for n in decayed & set(weights):
        torch.testing.assert_close(weights[n], plain[n] - RATE * 0.5 * start[n], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_label_smoothing_is_of_every_class_and_symbol_but_padding(
    name: str, plain: dict[str, Trained]
) -> None:
    case = CASES[name]
    if isinstance(case.spec.target, Span):
        assert "takes no soft targets" in refused(case, label_smoothing={})
        return
    run = trained(case, label_smoothing=TRICKS["label_smoothing"])
    assert run.losses[0] != plain[name].losses[0] and differs(run, plain[name])
    assert not run.unread.any()


@pytest.mark.parametrize("name", CASES)
def test_distillation_is_of_every_class_and_symbol_but_padding(
    name: str, plain: dict[str, Trained], teachers: dict[str, str]
) -> None:
    case = CASES[name]
    run = trained(case, distillation={**TRICKS["distillation"], "teacher": teachers[str(case.data)]})
    assert run.losses[0] != plain[name].losses[0] and differs(run, plain[name])
    assert not run.unread.any()
