"""The part: its record, what it hangs where, and what that costs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import points
import pytest
import torch
import torch.nn.functional as F
from calls import count_calls
from light import loaded
from pegboard import Context, Peg, PegboardError, Trick
from pegboard.config.check import check
from pegboard.engine.precision import choose_precision
from pegboard.engine.step import make_step
from pegboard.planning.pegs import find, infer
from pegboard.planning.plan import assemble, make_plan
from pegboard_batchnorm import BatchNorm, build, pegboard_regularizers
from torch import nn

Make = Callable[..., nn.Sequential]
Hang = Callable[..., list[str]]


def train(model: nn.Module, steps: int = 20) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(32, 6, generator=generator), torch.randint(3, (32,), generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(steps):
        rows = slice(step % 4 * 8, step % 4 * 8 + 8)
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model.state_dict()


def test_the_light_module_imports_neither_torch_nor_numpy() -> None:
    assert not loaded("import pegboard_batchnorm as p; p.pegboard_regularizers()")


def test_the_record_declares_what_the_trick_overrides() -> None:
    (record,) = pegboard_regularizers()
    trick = type(record.build(BatchNorm(), Context()))
    assert set(record.stages) == {name for name in vars(trick) if name in vars(Trick) and name[0] != "_"}
    assert (record.name, record.stages["hang"]) == ("batchnorm", "normalize")


def test_hangs_before_the_nonlinearity_under_its_own_name(mlp: Make, hang: Hang) -> None:
    model = mlp(6, 5, 4, 3)
    before = copy.deepcopy(model.state_dict())
    assert hang(model) == ["2", "6"]
    new = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    assert model.state_dict().keys() - before.keys() == {f"{i}.batchnorm.{n}" for i in (2, 6) for n in new}
    missing, unexpected = model.load_state_dict(before, strict=False)  # weights trained without it load
    assert {"2.batchnorm.weight", "6.batchnorm.running_var"} < set(missing) and not unexpected


def test_settings_reach_the_module(mlp: Make, hang: Hang) -> None:
    model = mlp(6, 5, 3)
    hang(model, BatchNorm(eps=0.1, momentum=None, affine=False, sites=("input", "hidden")))
    modules = [peg.batchnorm for _, peg in find(model) if "batchnorm" in peg._modules]
    assert [m.num_features for m in modules] == [6, 5]  # type: ignore[union-attr]
    assert all(m.eps == 0.1 and m.momentum is None and m.weight is None for m in modules)


def test_building_draws_no_random_numbers(mlp: Make, hang: Hang) -> None:
    model, state = mlp(6, 5, 3), torch.get_rng_state()
    hang(model)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.catalogue("S3-122", "S3-123", "S4-155")
@pytest.mark.parametrize("momentum", [0.1, None])
def test_training_equals_torch_batchnorm_written_by_hand(
    mlp: Make, hang: Hang, momentum: float | None
) -> None:
    torch.manual_seed(0)
    ours = mlp(6, 5, 4, 3)
    a, b, c = (copy.deepcopy(m) for m in ours if isinstance(m, nn.Linear))
    first, second = nn.BatchNorm1d(5, momentum=momentum), nn.BatchNorm1d(4, momentum=momentum)
    theirs = nn.Sequential(a, first, nn.ReLU(), b, second, nn.ReLU(), c)
    hang(ours, BatchNorm(momentum=momentum))
    for found, expected in zip(train(ours).values(), train(theirs).values(), strict=True):
        if momentum is None:  # the average is the same up to rounding
            torch.testing.assert_close(found, expected)
        else:
            assert torch.equal(found, expected)
    x = torch.randn(4, 6)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_works_on_a_module_without_pegs(hang: Hang) -> None:
    class Foreign(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filters, self.last = nn.Conv2d(2, 5, 3), nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.relu(self.filters(x)).mean((2, 3)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model, x = Foreign(), torch.randn(8, 2, 6, 6)
    plain, norm = copy.deepcopy(model), nn.BatchNorm2d(5)
    infer(model, x)
    assert hang(model) == ["filters.peg_out"]
    for _ in range(3):
        assert torch.equal(model(x), plain.last(torch.relu(norm(plain.filters(x))).mean((2, 3))))
    module = model.get_submodule("filters.peg_out.batchnorm")
    assert isinstance(module, nn.BatchNorm2d)
    assert torch.equal(module.running_var, norm.running_var)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "shape", "kind"),
    [
        ("NC", (8, 4), nn.BatchNorm1d),
        ("NCL", (8, 4, 5), nn.BatchNorm1d),
        ("NCHW", (8, 4, 3, 5), nn.BatchNorm2d),
        ("NCDHW", (8, 4, 2, 3, 2), nn.BatchNorm3d),
        ("NLC", (8, 5, 4), nn.BatchNorm1d),
        ("NHWC", (8, 3, 5, 4), nn.BatchNorm2d),
    ],
)
def test_every_layout_equals_torch_with_the_features_moved_to_axis_1(
    layout: str, shape: tuple[int, ...], kind: type[nn.BatchNorm1d]
) -> None:
    torch.manual_seed(0)
    module = build(BatchNorm(), Context()).hang(Peg("affine", 4, layout))
    assert module is not None
    assert layout[1] != "C" or isinstance(module, kind)
    reference, axis = kind(4), layout.index("C")
    assert module.state_dict().keys() == reference.state_dict().keys()
    for _ in range(3):
        x = torch.randn(shape) * 2 + 1
        torch.testing.assert_close(module(x), reference(x.movedim(axis, 1)).movedim(1, axis))
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value)
    x = torch.randn(shape)
    torch.testing.assert_close(module.eval()(x), reference.eval()(x.movedim(axis, 1)).movedim(1, axis))


def test_a_tensor_that_does_not_have_the_axes_of_the_peg_is_an_error() -> None:
    """Torch would normalise axis 1 of this tensor, because the sizes happen to fit."""
    module = build(BatchNorm(), Context()).hang(Peg("affine", 4))
    assert module is not None
    with pytest.raises(PegboardError, match=r"layout 'NC'.*\(8, 4, 4\).*pegs\.infer\(model, example\)"):
        module(torch.zeros(8, 4, 4))


@pytest.mark.catalogue("S3-126", "S4-155")
def test_a_batch_of_one_says_what_to_do(mlp: Make, hang: Hang) -> None:
    model = mlp(6, 5, 3)
    hang(model)
    with pytest.raises(PegboardError, match=r"\(1, 5\).*drop_last: true"):
        model(torch.zeros(1, 6))
    assert model.eval()(torch.zeros(1, 6)).shape == (1, 3)


def test_refuses_a_peg_without_features() -> None:
    with pytest.raises(PegboardError, match=r"'NHLL' has no feature axis"):
        build(BatchNorm(sites=("attention",)), Context()).hang(Peg("attention", 4, "NHLL"))


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("layout", ["NC", "NLC"])
def test_a_step_runs_on_the_meta_device(hang: Hang, momentum: float | None, layout: str) -> None:
    peg = Peg("affine", 4, layout)
    hang(peg, BatchNorm(momentum=momentum))
    x = torch.zeros([3] * (len(layout) - 1) + [4], device="meta", requires_grad=True)
    peg.to("meta")(x).sum().backward()
    assert x.grad is not None


def test_trains_in_half_precision_with_statistics_in_full(hang: Hang) -> None:
    peg = Peg("affine", 4)
    hang(peg, BatchNorm(momentum=None))
    assert peg(torch.randn(8, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert {b.dtype for b in peg.buffers()} == {torch.float32, torch.int64}


def test_costs_no_more_python_calls_than_the_module_of_torch(hang: Hang) -> None:
    peg, reference, x = Peg("affine", 4), nn.BatchNorm1d(4), torch.randn(8, 4)
    hang(peg)
    assert count_calls(lambda: peg(x)) <= count_calls(lambda: reference(x)) + 5


def trained(model: dict[str, Any], start: nn.Module | None = None) -> nn.Module:
    """A model with batchnorm after steps of gradient descent on the same batches, from given weights."""
    given = {
        "data": {"name": "digits", "batch_size": 64},
        "model": model,
        "optimizer": {"name": "sgd", "lr": 0.1},
        "regularizers": {"batchnorm": {}},
        "trainer": {"device": "cpu", "compile": "off"},
    }
    assembly = assemble(make_plan(check(given), read=True), "cpu")
    if start is not None:
        left, unknown = assembly.model.load_state_dict(start.state_dict(), strict=False)
        assert not left and all(name.endswith("bias") for name in unknown)
    assembly.model.train()
    update = make_step(assembly, assembly.kits[0], choose_precision("fp32", "cpu")).update
    splits = assembly.plan.splits
    assert splits is not None
    for step in range(0 if start is None else 20):
        rows = torch.arange(64 * step, 64 * step + 64) % len(splits.train)
        update([splits.train.gather(rows)], step)
    return assembly.model


@pytest.mark.catalogue("S3-122", "S3-124", "S4-155")
def test_a_run_is_that_of_torch_batchnorm_written_by_hand(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(32, 6), torch.randint(3, (32,))
    theirs = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    names = ("body.1.weight", "body.1.bias", "head.weight", "head.bias")
    start = [p.detach().clone() for name, p in theirs.named_parameters() if name[0] != "1"]
    torch.save(dict(zip(names, start, strict=True)), tmp_path / "start.pt")
    config = points.given(
        x, y, model={"name": "mlp", "hidden": [5], "weights": str(tmp_path / "start.pt")},
        optimizer={"name": "sgd", "lr": 0.1, "momentum": 0.9}, regularizers={"batchnorm": {}},
        trainer={"epochs": 20, "eval_every": 20, "device": "cpu", "diagnose": False},
    )  # fmt: skip
    config["data"]["shuffle"] = False
    run = points.run(config, tmp_path)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(theirs(x), y).backward()
        optimizer.step()
    found = {name: value for name, value in run.model.state_dict().items() if "num_batches" not in name}
    expected = [value for name, value in theirs.state_dict().items() if "num_batches" not in name]
    assert [name for name in found if "running" in name] == [
        f"body.2.batchnorm.running_{statistic}" for statistic in ("mean", "var")
    ]
    for ours, by_hand in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(ours, by_hand, rtol=0, atol=1e-5)
    with torch.no_grad():  # the running statistics, of a sample alone too
        by_hand = theirs.eval()(x)
        assert run.figures["test/loss"] == pytest.approx(F.cross_entropy(by_hand, y).item(), abs=1e-5)
        torch.testing.assert_close(run.model.eval()(x[:1]), by_hand[:1], rtol=0, atol=1e-5)


@pytest.mark.catalogue("S3-123")
@pytest.mark.parametrize(
    ("model", "without"),
    [
        ({"name": "mlp", "hidden": [16, 16]}, {"bias": False, "output_bias": True}),
        ({"name": "cnn", "channels": [4, 4], "hidden": []}, {"bias": "none"}),
    ],
)
def test_a_model_without_the_biases_before_it_learns_the_same(
    model: dict[str, Any], without: dict[str, Any]
) -> None:
    """The builder drops no bias by itself: a trick changes no parameter of the model that it hangs on.

    Weights that were trained without batchnorm load into a model with it, and back. The model's own field
    leaves the biases out, and what is learned is the same.
    """
    start = trained(model)
    whole, less = trained(model, start), trained(model | without, start)
    gone = dict(start.named_parameters()).keys() - dict(less.named_parameters()).keys()
    layers = {name.rpartition(".")[0] for name in gone}
    assert len(gone) == 2 and all(name.endswith(".bias") and "batchnorm" not in name for name in gone)
    for name in layers:  # the bias before it has stayed where it began, but for rounding
        moved = whole.get_submodule(name).bias - start.get_submodule(name).bias  # type: ignore[operator]
        assert moved.abs().max() < 1e-6 < start.get_submodule(name).bias.abs().max()  # type: ignore[union-attr, operator]
    x = torch.randn(32, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(whole(x), less(x), rtol=1e-4, atol=1e-4)
        assert (whole(x) - start(x)).abs().max() > 0.1
        for net in (whole, less):  # with averages over these samples alone
            for norm in (m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)):
                norm.momentum = 1.0
            net(x)
            net.eval()
        torch.testing.assert_close(whole(x), less(x), rtol=1e-4, atol=1e-4)
