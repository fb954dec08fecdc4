"""Where tricks act on recurrent networks: on all steps at once, between layers, and never on padding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard import Classes, Context, DataSpec, PegboardError, Spec, Tokens
from pegboard.config.check import check
from pegboard.engine.precision import choose_precision
from pegboard.engine.step import make_step
from pegboard.planning import pegs
from pegboard.planning.plan import Assembly, assemble, make_plan
from pegboard.testing import partner_config, partner_run
from pegboard.testing.runs import lean
from pegboard.testing.subjects import PARTNER
from pegboard_batchnorm import BatchNorm
from pegboard_batchnorm.trick import BatchNormTrick
from pegboard_dropout import Dropout
from pegboard_dropout.trick import DropoutTrick
from pegboard_label_smoothing import LabelSmoothing
from pegboard_label_smoothing.trick import LabelSmoothingTrick
from pegboard_rnn import Rnn as Config
from pegboard_rnn import Seq2Seq as PairConfig
from pegboard_rnn import build_rnn
from pegboard_rnn.model import Rnn
from pegboard_rnn.seq2seq_options import build_seq2seq
from pegboard_weight_decay.functional import decayed
from torch import Tensor, nn
from torch.nn import functional as F

CELLS: dict[str, dict[str, Any]] = {
    "elman": {"cell": "elman"},
    "transition": {"cell": "elman", "transition": 2},
    "lstm": {"cell": "lstm"},
    "output_matrix": {"cell": "lstm", "output_matrix": True},
    "gru": {"cell": "gru"},
    "reset_before": {"cell": "gru", "reset": "before"},
    "mingru": {"cell": "mingru"},
    "lru": {"cell": "lru"},
}
LENGTH, LENGTHS = 6, torch.tensor([6, 2, 5])
TEXT = Tokens(7, LENGTH, 0)


def hang(model: nn.Module, trick: Any, name: str) -> list[str]:
    """Hang a trick on the pegs of a model, as the planner does; the names of those that took it."""
    found = []
    for path, peg in pegs.find(model):
        if (module := trick.hang(peg)) is not None:
            if name == "batchnorm":
                peg._modules.pop("norm", None)
            peg.add_module(name, module)
            found.append(path)
    return found


def built(target: Spec, trick: Any = None, name: str = "", **fields: Any) -> Rnn:
    config = Config(**{"hidden": 5, **fields})
    model = build_rnn(config, Context(spec=DataSpec((TEXT,), target), outputs=target.size))
    assert isinstance(model, Rnn)
    if trick is not None:
        assert hang(model, trick, name)
    return model.train()


def texts() -> Tensor:
    tokens = torch.randint(1, 7, (3, LENGTH))
    return tokens.masked_fill(torch.arange(LENGTH) >= LENGTHS.unsqueeze(1), 0)


class Seen:
    """What went into a module and came out of it."""

    def __init__(self, module: nn.Module) -> None:
        self.given: list[Tensor] = []
        self.out: list[Any] = []
        module.register_forward_hook(self)

    def __call__(self, module: nn.Module, given: Any, out: Any) -> None:
        self.given.append(given[0].detach())
        self.out.append(out)


@pytest.mark.parametrize("name", CELLS)
def test_dropout_is_between_layers_and_never_between_steps(name: str) -> None:
    trick = DropoutTrick(Dropout(p=0.5, sites=("embedding", "hidden")))
    model, x = built(Classes(3), trick, "dropout", layers=2, **CELLS[name]), texts()
    first, second = (layer.cell for layer in model.layers)
    seen, above = Seen(first), Seen(second)  # type: ignore[arg-type]
    model(x)
    read, out = seen.given[0], seen.out[0][0]
    calm, _ = first(read)  # type: ignore[operator]
    torch.testing.assert_close(calm, out, atol=1e-6, rtol=0)  # the recurrence itself draws nothing
    if "block" not in CELLS[name] and CELLS[name]["cell"] != "lru":
        given = above.given[0]
        dropped = given == 0
        assert 0.25 < dropped.float().mean() < 0.75
        torch.testing.assert_close(given[~dropped], 2 * out.detach()[~dropped], atol=1e-5, rtol=0)
        embedded = read == 0
        assert 0.25 < embedded.float().mean() < 0.75
    hung = [path for path, peg in pegs.find(model) if "dropout" in peg._modules]
    assert all("cell" not in path for path in hung)


def test_one_mask_for_all_steps_is_there_for_who_asks() -> None:
    trick = DropoutTrick(Dropout(p=0.5, sites=("hidden",), form="feature"))
    model = built(Classes(3), trick, "dropout", layers=2)
    above = Seen(model.layers[1].cell)  # type: ignore[arg-type]
    model(texts())
    dropped = above.given[0] == 0
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped)) and dropped.any() and not dropped.all()


@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize("name", CELLS)
def test_batchnorm_is_over_the_steps_that_are_there(name: str, both: bool) -> None:
    trick = BatchNormTrick(BatchNorm(momentum=1.0))
    model, x = built(Classes(3), trick, "batchnorm", bidirectional=both, **CELLS[name]), texts()
    h, mask = model.read(x)
    assert mask is not None
    model(x)
    layer, there = model.layers[0], mask.flatten()
    if name == "lru":
        assert model.enter is not None
        places = [("layers.0.affine", model.enter(h))]
    else:
        cells = [layer.cell, layer.back] if both else [layer.cell]
        places = [
            (f"layers.0.{'back' if number else 'cell'}.affine", _product(cell, h))  # type: ignore[arg-type]
            for number, cell in enumerate(cells)
        ]
    assert {path for path, peg in pegs.find(model) if peg._modules} == {path for path, _ in places}
    for path, values in places:
        norm: Any = model.get_submodule(path).batchnorm
        kept = values.flatten(0, 1)[there]
        torch.testing.assert_close(norm.running_mean, kept.mean(0), atol=1e-5, rtol=0)
        torch.testing.assert_close(norm.running_var, kept.var(0), atol=1e-5, rtol=1e-4)


def _product(cell: nn.Module, x: Tensor) -> Tensor:
    """What reaches the peg before the gates."""
    if hasattr(cell, "kernel"):
        return F.linear(x, cell.kernel.weight_ih_l0)  # type: ignore[arg-type,union-attr]
    product: Tensor = cell.input(x)  # type: ignore[operator]
    return product


@pytest.mark.parametrize("name", CELLS)
def test_what_a_normalised_network_gives_does_not_depend_on_padding(name: str) -> None:
    trick = BatchNormTrick(BatchNorm(sites=("affine", "hidden", "logits")))
    model, x = built(Tokens(4, LENGTH), trick, "batchnorm", layers=2, **CELLS[name]), texts()
    more = torch.cat((x, torch.zeros(3, 4, dtype=torch.long)), 1)
    mask = x != 0
    found = model(x)[mask], model(more)[:, :LENGTH][mask]
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    states = []
    for read in (x, more):
        model = built(Tokens(4, LENGTH), trick, "batchnorm", **CELLS[name])
        torch.manual_seed(0)
        for p in model.parameters():
            p.data.normal_()
        model(read)
        states.append({k: v for k, v in model.state_dict().items() if "running" in k})
    torch.testing.assert_close(*states, atol=1e-5, rtol=1e-5)


def test_a_norm_that_hangs_on_a_block_takes_the_place_of_its_own() -> None:
    model = built(Classes(3), BatchNormTrick(BatchNorm()), "batchnorm", cell="lru", layers=2)
    assert not any(isinstance(m, nn.LayerNorm) for m in model.modules())
    assert built(Classes(3), cell="mingru", block=True).layers[0].cell.affine is None  # type: ignore[union-attr]


def test_dropout_in_front_of_a_decoder_spares_the_state_that_it_starts_from() -> None:
    text = Tokens(7, LENGTH, 0, 1, 2)
    context = Context(spec=DataSpec((text, text), text), outputs=7)
    model: Any = build_seq2seq(PairConfig(hidden=6, layers=2), context).train()
    sites = ("embedding", "hidden", "attention")
    assert hang(model, DropoutTrick(Dropout(p=0.5, sites=sites)), "dropout") == [
        "encoder.read.peg", "encoder.layers.0.hidden", "encoder.layers.1.hidden",
        "decoder.read.peg", "decoder.layers.0.hidden", "decoder.layers.1.hidden",
        "attention.peg", "hidden",
    ]  # fmt: skip
    above = Seen(model.encoder.layers[1].cell)
    read = model.read(texts())
    assert 0.2 < (above.given[0] == 0).float().mean() < 0.8  # between the layers of the encoder
    assert 0.2 < (read.memory == 0).float().mean() < 0.8  # and on what attention looks at
    assert (read.summary != 0).all()


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_label_smoothing_is_of_every_symbol_but_padding(attention: str) -> None:
    from pegboard_objectives import CrossEntropy, pegboard_objectives

    text = Tokens(7, LENGTH, 0, 1, 2)
    context = Context(spec=DataSpec((text, text), text), outputs=7)
    model = build_seq2seq(PairConfig(hidden=6, attention=attention), context)  # type: ignore[arg-type]
    source, target = texts(), texts()
    shifted = torch.cat((torch.ones(3, 1, dtype=torch.long), target[:, :-1]), 1)
    output = model(source, shifted)
    part = next(part for part in pegboard_objectives() if part.name == "cross_entropy")
    soft = LabelSmoothingTrick(LabelSmoothing(epsilon=0.2), text).edit_target(target)
    loss = part.build(CrossEntropy(), context).loss(output, soft)
    logs = F.log_softmax(output, -1)
    right = logs.gather(2, target.unsqueeze(-1)).squeeze(-1)
    expected = -(0.8 * right + 0.2 * logs.mean(-1))[target != 0].mean()
    torch.testing.assert_close(loss, expected)
    (slope,) = torch.autograd.grad(loss, output)
    assert (slope[target == 0] == 0).all() and (slope[target != 0] != 0).any(-1).all()


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    with lean():
        yield


def assembled(data: dict[str, Any], model: dict[str, Any], **tricks: Any) -> Assembly:
    given = partner_config(
        data={"name": PARTNER, "batch_size": 8, **data}, model=model, objective=None, regularizers=tricks
    )
    return assemble(make_plan(check(given), read=True), "cpu")


def trained(data: dict[str, Any], model: dict[str, Any], **tricks: Any) -> dict[str, Tensor]:
    """All that is learned in three steps."""
    assembly = assembled(data, model, **tricks)
    assembly.model.train()
    (kit,), splits = assembly.kits, assembly.plan.splits
    assert splits is not None
    update = make_step(assembly, kit, choose_precision("fp32", "cpu")).update
    for step in range(3):
        update([splits.train.gather(torch.arange(8 * step, 8 * step + 8))], step)
    return assembly.model.state_dict()


FORECAST = {"form": "forecast"}
PAIR = {"form": "pair"}
TRICKS: dict[str, dict[str, Any]] = {
    "batchnorm": {},
    "dropout": {"p": 0.3},
    "weight_decay": {"value": 0.05},
    "distillation": {"alpha": 0.5},
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("cell", ["elman", "lstm", "gru", "mingru", "lru"])
def test_tricks_act_on_forecasts(cell: str, tmp_path: Path) -> None:
    model = {"name": "rnn", "cell": cell, "hidden": 6, "layers": 2}
    teacher = str(
        partner_run(tmp_path, data={"name": PARTNER, **FORECAST}, model=model, objective=None, seed=9)
    )
    plain = trained(FORECAST, model)
    for name, fields in TRICKS.items():
        more = {"teacher": teacher} if name == "distillation" else {}
        state = trained(FORECAST, model, **{name: {**fields, **more}})
        assert all(value.isfinite().all() for value in state.values())
        assert any(not torch.equal(plain[key], state[key]) for key in plain if key in state), name
    with pytest.raises(PegboardError, match="label_smoothing"):
        assembled(FORECAST, model, label_smoothing={})


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("attention", ["additive", "none"])
def test_a_teacher_of_texts_teaches_symbols_or_the_texts_it_writes(attention: str, tmp_path: Path) -> None:
    model = {"name": "seq2seq", "hidden": 6, "attention": attention}
    teacher = str(partner_run(tmp_path, data={"name": PARTNER, **PAIR}, model=model, objective=None, seed=9))
    plain = trained(PAIR, model)
    found = [
        trained(PAIR, model, distillation={"teacher": teacher, "alpha": 0.5, "level": level})
        for level in ("output", "sequence")
    ]
    for state in found:
        assert all(value.isfinite().all() for value in state.values())
        assert any(not torch.equal(plain[key], state[key]) for key in plain)
    assert any(not torch.equal(found[0][key], found[1][key]) for key in plain)


@pytest.mark.parametrize("name", CELLS)
def test_weight_decay_spares_biases_norms_and_embeddings_unless_told_otherwise(name: str) -> None:
    model = built(Classes(3), layers=2, **CELLS[name])
    named = list(model.named_parameters())
    found = decayed(named, embeddings=False)
    assert decayed(named) - found == {"read.embedding.weight"}
    assert {"head.weight"} < found and any("layers.1.cell" in name for name in found)
    matrices = {key for key, p in named if p.dim() == 2 and "embedding" not in key}
    assert found == matrices  # no constant, no norm, and of an lru neither eigenvalues nor scales
