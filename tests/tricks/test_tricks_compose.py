"""The five tricks together: any order, strength zero, a stranger's model, and their formulas in a run."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.config.check import check
from pegboard.engine import torch_private
from pegboard.planning.plan import Assembly, assemble, make_plan
from sweeps import first_of_each
from torch import nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

Config = Callable[..., dict[str, Any]]

STRENGTHS = {
    "batchnorm": {},
    "dropout": {"p": 0.3},
    "weight_decay": {"value": 0.05},
    "label_smoothing": {"epsilon": 0.1},
    "distillation": {"alpha": 0.5, "temperature": 2.0},
}
ZERO = {
    "dropout": {"p": 0.0},
    "weight_decay": {"value": 0.0},
    "label_smoothing": {"epsilon": 0.0},
    "distillation": {"alpha": 0.0},
}

STRANGER = """
    '''A plain nn.Module from elsewhere, brought in by a file of one's own.'''
    from dataclasses import dataclass
    from pegboard import Model, hookimpl

    @dataclass(frozen=True)
    class Stranger:
        '''Two layers, activations as functions, no pegs.'''
        width: int = 16  # units

    def build(config, context):
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one = torch.nn.Linear(context.spec.inputs[0].size, config.width)
                self.two = torch.nn.Linear(config.width, context.outputs)
            def forward(self, x):
                return self.two(torch.relu(self.one(x.flatten(1))))
        return Net()

    @hookimpl
    def pegboard_models():
        return [Model("stranger", Stranger, build)]
"""


@pytest.fixture
def stranger(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "stranger.py"
    path.write_text(textwrap.dedent(STRANGER))
    return {"model": {"name": "stranger"}, "plugins": {"local": [str(path)]}}


def config(**nodes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "seed": 1,
        "data": {"name": "digits", "batch_size": 128, "limit": 512},
        "model": {"name": "mlp", "hidden": [16]},
        "optimizer": {"name": "adam", "lr": 0.01},
        "trainer": {"steps": 12, "device": "cpu", "threads": 1},
    }
    return base | nodes


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("teacher")
    return str(pegboard.train(config(model={"name": "mlp", "hidden": [32]}), root=folder, quiet=True).folder)


def tricks(teacher: str, which: dict[str, Any]) -> dict[str, Any]:
    return {k: {**v, "teacher": teacher} if k == "distillation" else dict(v) for k, v in which.items()}


def weights_of(given: dict[str, Any], root: Path) -> dict[str, torch.Tensor]:
    return pegboard.load(pegboard.train(given, root=root, quiet=True), which="last").state_dict()


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.sweep
@pytest.mark.parametrize("own", [True, False], ids=["mlp", "stranger"])
def test_any_order_of_the_tricks_gives_the_same_weights(
    own: bool, teacher: str, tmp_path: Path, stranger: dict[str, Any]
) -> None:
    nodes = {} if own else stranger
    given = tricks(teacher, STRENGTHS)
    orders = list(itertools.permutations(given))
    first = weights_of(config(regularizers=given, **nodes), tmp_path)
    for order in (orders[-1], orders[37], orders[64], orders[101]):
        shuffled = {key: given[key] for key in order}
        assert same(first, weights_of(config(regularizers=shuffled, **nodes), tmp_path))
    plans = set()
    for shuffled in ({key: given[key] for key in order} for order in orders):
        plan = make_plan(check(config(regularizers=shuffled, **nodes)), read=False)
        plans.add(str(plan.order))
    assert len(plans) == 1  # for all 120 orders


@pytest.mark.parametrize("own", first_of_each([True, False]), ids=["mlp", "stranger"])
@pytest.mark.parametrize("key", first_of_each(ZERO))
@pytest.mark.parametrize(
    "beside", [False, pytest.param(True, marks=pytest.mark.prove)], ids=["alone", "beside the others"]
)
def test_strength_zero_is_absent_bit_for_bit(
    own: bool, key: str, beside: bool, teacher: str, tmp_path: Path, stranger: dict[str, Any]
) -> None:
    nodes = {} if own else stranger
    others = {k: v for k, v in tricks(teacher, STRENGTHS).items() if k != key} if beside else {}
    zero = tricks(teacher, {key: ZERO[key]})
    absent = weights_of(config(regularizers=others, **nodes), tmp_path)
    assert same(absent, weights_of(config(regularizers={**others, **zero}, **nodes), tmp_path))


@pytest.mark.sweep
def test_l2_of_strength_zero_is_absent_too(tmp_path: Path) -> None:
    zero = {"weight_decay": {"value": 0.0, "mode": "l2"}}
    assert same(weights_of(config(), tmp_path), weights_of(config(regularizers=zero), tmp_path))


@pytest.mark.parametrize("own", first_of_each([True, False]), ids=["mlp", "stranger"])
@pytest.mark.parametrize("key", first_of_each(STRENGTHS))
def test_each_trick_changes_the_weights(
    own: bool, key: str, teacher: str, tmp_path: Path, stranger: dict[str, Any]
) -> None:
    nodes = {} if own else stranger
    with_trick = weights_of(config(regularizers=tricks(teacher, {key: STRENGTHS[key]}), **nodes), tmp_path)
    without = weights_of(config(**nodes), tmp_path)
    assert not all(torch.equal(without[k], with_trick[k]) for k in without)


def test_a_step_with_all_tricks_equals_their_formulas(teacher: str, tmp_path: Path) -> None:
    """One update of the stranger-free network, written out by hand with torch alone."""
    given = config(
        regularizers=tricks(teacher, {k: v for k, v in STRENGTHS.items() if k != "dropout"}),
        optimizer={"name": "sgd", "lr": 0.2},
        trainer={"steps": 1, "device": "cpu", "threads": 1},
        data={"name": "digits", "batch_size": 128, "limit": 128, "shuffle": False},
    )
    plan = make_plan(check(given), read=True)
    assert plan.splits is not None
    model = assemble(plan, "cpu").model.train()
    x, y = plan.splits.train.inputs[0], plan.splits.train.target  # type: ignore[attr-defined]
    p = dict(model.named_parameters())
    hidden = x.flatten(1) @ p["body.1.weight"].T + p["body.1.bias"]
    mean, variance = hidden.mean(0), hidden.var(0, unbiased=False)
    hidden = (hidden - mean) / (variance + 1e-5).sqrt() * p["body.2.batchnorm.weight"] + p[
        "body.2.batchnorm.bias"
    ]
    output = hidden.relu() @ p["head.weight"].T + p["head.bias"]
    hard = functional.cross_entropy(output, y, label_smoothing=0.1)
    with torch.no_grad():
        taught = (pegboard.load(teacher)(x) / 2.0).softmax(-1)
    soft = (taught * (taught.log() - (output / 2.0).log_softmax(-1))).sum(-1).mean()
    (0.5 * hard + 0.5 * 2.0**2 * soft).backward()
    expected = {}
    for name, value in p.items():
        assert value.grad is not None
        decay = 0.05 if name in ("body.1.weight", "head.weight") else 0.0
        expected[name] = value.detach() * (1 - 0.2 * decay) - 0.2 * value.grad
    found = weights_of(given, tmp_path)
    for name, value in expected.items():
        assert torch.allclose(found[name], value, atol=1e-6), name


@pytest.mark.sweep
def test_weights_trained_without_a_trick_start_a_model_with_it(tmp_path: Path, capsys: Any) -> None:
    plain = pegboard.train(config(), root=tmp_path, quiet=True)
    node = {"name": "mlp", "hidden": [16], "weights": str(plain.folder)}
    given = config(model=node, regularizers={"batchnorm": {}}, trainer={"steps": 1, "device": "cpu"})
    pegboard.train(given, root=tmp_path)
    assert "missing: body.2.batchnorm.weight" in capsys.readouterr().out


def test_the_printed_trace_is_that_of_a_real_step(teacher: str, stranger: dict[str, Any]) -> None:
    for nodes in ({}, stranger):
        plan = pegboard.plan(config(regularizers=tricks(teacher, STRENGTHS), **nodes))
        on_meta, real = plan.trace("meta"), plan.trace("cpu")
        assert on_meta == real
        assert all(event in plan.explain() for event in on_meta)
        assert sum("batchnorm" in event for event in real) == 1


def test_the_printed_trace_is_that_of_a_run(
    teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded from outside: by methods of tricks, modules that hang, autograd and the optimizer."""
    given = config(
        regularizers=tricks(teacher, STRENGTHS), trainer={"steps": 1, "device": "cpu", "diagnose": False}
    )
    printed = pegboard.plan(given).trace("meta")
    events: list[str] = []
    hung: dict[int, str] = {}
    linked = Assembly.linked

    def told(event: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: (events.append(event), call(*args, **options))[1]

    def watched(self: Assembly, stage: str, player: str) -> list[tuple[str, Callable[..., Any]]]:
        for name, peg, keys in self.hung:
            hung.update({id(peg.get_submodule(key)): f"  {name} {key}" for key in keys})
        return [(key, told(f"{stage} {key}", method)) for key, method in linked(self, stage, player)]

    def called(module: nn.Module, args: Any) -> None:
        if module.training and id(module) in hung:
            events.append(hung[id(module)])

    monkeypatch.setattr(
        "pegboard.run.training.explained_plan", lambda *_: ""
    )  # which makes a step of its own
    monkeypatch.setattr(Assembly, "linked", watched)
    monkeypatch.setattr(torch_private, "run_backward", told("backward", torch_private.run_backward))
    handles: list[Any] = [
        register_module_forward_pre_hook(called),
        register_optimizer_step_pre_hook(lambda *args: events.append("update")),
    ]
    try:
        pegboard.train(given, root=tmp_path, quiet=True)
    finally:
        for handle in handles:
            handle.remove()
    in_a_step = [event for event in events if not event.startswith(("edit_groups", "after_eval"))]
    assert in_a_step == [event for event in printed if not event.startswith("forward and loss")]
    assert {event.split()[1] for event in in_a_step if " " in event} == STRENGTHS.keys() - {"weight_decay"}


@pytest.mark.sweep
def test_the_trace_holds_every_batch_of_an_update() -> None:
    plan = pegboard.plan(config(regularizers={"label_smoothing": {}}, trainer={"steps": 2, "accumulate": 3}))
    batch = ["edit_target label_smoothing", "forward and loss of model", "backward"]
    assert plan.trace("meta") == plan.trace("cpu") == [*batch * 3, "update"]


def test_explain_counts_the_memory_of_the_optimizer() -> None:
    plain, adaptive = (
        pegboard.plan(config(optimizer={"name": name, "lr": 0.1})).explain() for name in ("sgd", "adam")
    )
    assert "weights 4.73 KiB" in plain and "optimizer 0 B" in plain  # 1210 numbers of 4 bytes
    assert "optimizer 9.47 KiB" in adaptive  # two for each, and a count for each tensor


def test_the_meta_step_of_explain_needs_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = pegboard.plan(config(regularizers={"batchnorm": {}, "dropout": {}}))
    assert plan.splits is None
    monkeypatch.setattr("pegboard.preview.explain.read_data", lambda *a: pytest.fail("data was read"))
    assert "cross_entropy(f(x), y)" in plan.explain()


def test_a_trick_that_cannot_apply_says_why(tmp_path: Path) -> None:
    given = config(data={"name": "diabetes"}, regularizers={"label_smoothing": {}})
    with pytest.raises(pegboard.PegboardError, match="label_smoothing"):
        pegboard.plan(given)
    with pytest.raises(
        pegboard.PegboardError, match="dropout hangs on hidden, where the model 'linear' has no pegs"
    ):
        pegboard.plan(config(model={"name": "linear"}, regularizers={"dropout": {}}))
