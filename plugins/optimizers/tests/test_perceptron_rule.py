"""The perceptron: its rule in a run, its end, and the bound on its mistakes."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from operator import mul
from pathlib import Path
from typing import Any

import pegboard
import points
import pytest
import torch
from pegboard import Context, Splits
from pegboard.cli import main
from pegboard.data import epoch_order
from pegboard_mlp.margins import MarginProbe
from pegboard_mlp.modules import LinearModel
from pegboard_mlp.reference_configs import Margin
from pegboard_objectives.functional import binary_perceptron
from pegboard_optimizers.perceptron import PerceptronRule, correct
from sweeps import first_of_each_row
from torch import Tensor

XOR = torch.tensor([[0.0, 0], [1, 1], [0, 1], [1, 0]]), torch.tensor([1, 1, 0, 0])


def separable(seed: int, samples: int = 400) -> tuple[Tensor, Tensor, Tensor]:
    """Points in R^5 at least 0.1 from a hyperplane through the origin, their classes and its normal."""
    generator = torch.Generator().manual_seed(seed)
    w, x = torch.randn(5, generator=generator), torch.randn(2 * samples, 5, generator=generator)
    along = x @ (w / w.norm())
    kept = (along.abs() > 0.1).nonzero()[:samples, 0]
    return x[kept], (along[kept] > 0).long(), w / w.norm()


def run(
    folder: Path, x: Tensor, classes: Tensor, epochs: int = 100, shuffle: bool = True, **nodes: Any
) -> pegboard.Run:
    base = {
        "model": {"name": "linear", "init": "zeros"},
        "objective": {"name": "perceptron", "metrics": ["accuracy"]},
        "optimizer": "perceptron",
        "trainer": {"epochs": epochs, "eval_every": epochs, "device": "cpu", "diagnose": False},
    }
    config = points.given(x, classes=classes, **base | nodes)
    config["data"] |= {"batch_size": 1, "shuffle": shuffle}
    return points.run(config, folder)


def by_hand(x: Tensor, classes: Tensor, bias: bool, orders: Any) -> tuple[Tensor, list[Tensor]]:
    """The textbook rule over the given orders of samples: the last weights, bias last, and all on the way."""
    seen = torch.cat([x, torch.ones(len(x), 1)], 1) if bias else x
    rows, signs = seen.double(), (2 * classes - 1).tolist()
    numbers, path, counts = rows.tolist(), [], [torch.zeros(()), torch.zeros(())]
    w = torch.zeros(rows.shape[1]).double()
    now = w.tolist()
    for order in orders:
        counts[1].zero_()
        for i in order:
            if signs[i] * sum(map(mul, numbers[i], now)) <= 0:
                correct([w], [-signs[i] * rows[i]], [1.0], counts)
                now = w.tolist()
                path.append(w.clone())
        if not counts[1]:
            break
    assert counts[0] == len(path)
    return w, path


def bound(x: Tensor, classes: Tensor, bias: bool) -> dict[str, float]:
    source = pegboard.Resident([x], classes)
    splits = Splits(spec=pegboard.DataSpec((), None), train=source)
    model = LinearModel(x.shape[1], 1, bias=bias)
    return MarginProbe(Margin(), Context()).measure(model, splits, torch.device("cpu"))


@pytest.mark.catalogue("S4-005")
def test_a_run_follows_the_rule_sample_by_sample_and_ends_after_a_pass_without_a_mistake(
    tmp_path: Path,
) -> None:
    x, classes, _ = separable(3, 100)
    done = run(tmp_path / "rule", x, classes, seed=7)
    orders = (epoch_order(len(x), 7, epoch, shuffle=True).tolist() for epoch in range(100))
    w, path = by_hand(x, classes, True, orders)
    model = pegboard.load(done, which="last")
    found = torch.cat([model.head.weight[0], model.head.bias]).detach()
    torch.testing.assert_close(found.double(), w, rtol=1e-5, atol=1e-5)
    assert done.summary["why"] == f"optimizer: a pass without a mistake, after {len(path)} updates"
    assert done.status == "stopped" and done.figures["test/accuracy"] == 1
    # The rule is gradient descent of rate 1 on max(0, -y f(x)).
    steps = {
        "steps": done.summary["steps"],
        "epochs": None,
        "device": "cpu",
        "diagnose": False,
        "eval_every": 99,
    }
    same = run(tmp_path / "sgd", x, classes, seed=7, optimizer={"name": "sgd", "lr": 1.0}, trainer=steps)
    twin = pegboard.load(same, which="last")
    torch.testing.assert_close(twin.head.weight, model.head.weight)
    torch.testing.assert_close(twin.head.bias, model.head.bias)


@pytest.mark.catalogue("S4-005", "S4-006", "S4-007")
@pytest.mark.parametrize("bias", [False, True])
def test_on_separable_data_it_ends_within_the_bound_and_its_lemmas_hold_at_every_update(bias: bool) -> None:
    for seed in range(20):
        x, classes, normal = separable(seed)
        w, path = by_hand(x, classes, bias, ([*range(len(x))] for _ in range(1000)))
        seen = torch.cat([x, torch.ones(len(x), 1)], 1).double() if bias else x.double()
        y = 2.0 * classes.double() - 1
        assert (y * (seen @ w) > 0).all()
        known = bound(x, classes, bias)
        assert 1 <= len(path) <= known["bound"]
        if bias:
            continue
        gamma, radius = float((y * (seen @ normal.double())).min()), known["radius"]
        assert known["gamma"] >= gamma - 1e-6  # no hyperplane has a wider margin than the widest
        for t, at in enumerate(path, 1):
            assert at @ normal.double() >= t * gamma - 1e-9
            assert at.norm() <= radius * t**0.5 + 1e-9


@pytest.mark.catalogue("S4-007")
def test_the_bound_is_met_by_orthonormal_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = {"name": "linear", "init": "zeros", "bias": False}
    # The opposite point of the other class is the first point once more.
    x, classes = torch.cat([torch.eye(7), -torch.eye(7)[:1]]), torch.tensor([1] * 7 + [0])
    done = run(tmp_path, x, classes, model=bare, shuffle=False)
    assert "after 7 updates" in done.summary["why"]
    assert main(["probe", str(done.folder), "margin", "--json", "--local", points.__file__]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["bound"] == pytest.approx(7, abs=1e-9) and figures["separable"] == 1
    assert bound(torch.tensor([[3.0, 4.0]]), torch.tensor([1]), bias=False)["bound"] == pytest.approx(1)
    assert len(by_hand(torch.tensor([[3.0, 4.0]]), torch.tensor([1]), False, [[0], [0]])[1]) == 1


@pytest.mark.catalogue("S4-007")
def test_with_a_bias_the_bound_needs_the_extended_points() -> None:
    """Two points far from the origin: the plain radius and margin promise too little."""
    worst = 0.0
    for c in (3.0, 8.0, 20.0):
        x, classes = torch.tensor([[c - 1.5], [c + 1.5]]), torch.tensor([0, 1])
        updates = len(by_hand(x, classes, True, ([0, 1] for _ in range(10_000)))[1])
        known = bound(x, classes, bias=True)
        assert updates <= known["bound"]
        assert known["widest"] == pytest.approx(1.5)
        worst = max(worst, updates / (float(x.max()) / known["widest"]) ** 2)
    assert worst > 1


@pytest.mark.catalogue("S4-005", "S4-006", "S4-007")
@pytest.mark.parametrize(
    ("seed", "bias"), first_of_each_row([(seed, bias) for seed in range(20) for bias in (False, True)])
)
def test_runs_on_separable_data_end_within_the_bound_and_the_lemmas_hold_on_the_way(
    seed: int, bias: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, classes, normal = separable(seed)
    path: list[Tensor] = [torch.zeros(5 + bias).double()]

    def recorded(params: Sequence[Tensor], *given: Any) -> None:
        correct(params, *given)
        now = torch.cat([p.flatten() for p in params]).double()
        if not torch.equal(now, path[-1]):
            path.append(now)

    monkeypatch.setattr("pegboard_optimizers.perceptron.correct", recorded)
    node = {"name": "linear", "init": "zeros", "bias": bias}
    done = run(tmp_path, x, classes, epochs=1000, seed=seed, model=node)
    updates = len(path) - 1
    assert done.status == "stopped" and done.summary["steps"] < 1000 * len(x)
    assert done.summary["why"].startswith(f"optimizer: a pass without a mistake, after {updates} update")
    model = pegboard.load(done, which="last")
    with torch.no_grad():
        assert ((model(x)[:, 0] > 0).long() == classes).all()
    known = bound(x, classes, bias)
    assert 1 <= updates <= known["bound"]
    if bias:
        return
    along = (2.0 * classes.double() - 1) * (x.double() @ normal.double())
    for t, at in enumerate(path):
        assert at @ normal.double() >= t * float(along.min()) - 1e-5  # the run counts in single precision
        assert at.norm() <= known["radius"] * t**0.5 + 1e-5


@pytest.mark.catalogue("S4-005")
def test_one_point_takes_one_update(tmp_path: Path) -> None:
    done = run(tmp_path, torch.tensor([[3.0, 4.0]]), torch.tensor([1]))
    assert done.summary["why"] == "optimizer: a pass without a mistake, after 1 update"
    head = pegboard.load(done, which="last").head
    assert head.weight.tolist() == [[3, 4]] and head.bias.tolist() == [1]


@pytest.mark.catalogue("S4-005")
@pytest.mark.parametrize("epochs", [150, pytest.param(1000, marks=pytest.mark.sweep)])
def test_on_xor_it_never_ends_by_itself(tmp_path: Path, epochs: int) -> None:
    done = run(tmp_path, *XOR, epochs=epochs, shuffle=False)
    assert done.status == "finished" and done.summary["steps"] == 4 * epochs
    model = pegboard.load(done, which="last")
    assert model.head.weight.tolist() == [[-1, -1]] and model.head.bias.tolist() == [-1]
    assert bound(*XOR, bias=True)["separable"] == 0
    assert len(by_hand(*XOR, True, ([0, 1, 2, 3] for _ in range(1000)))[1]) == 3999


@pytest.mark.catalogue("S4-002")
def test_predictions_are_signs_that_a_positive_factor_does_not_change() -> None:
    from pegboard_objectives import Perceptron, pegboard_objectives
    from pegboard_objectives.perceptron import sign

    zero = torch.zeros(3)
    assert sign(zero).tolist() == [0, 0, 0] and sign(torch.tensor([-2.0, 2])).tolist() == [-1, 1]
    part = next(p for p in pegboard_objectives() if p.name == "perceptron")
    spec = pegboard.DataSpec((pegboard.Vector(4),), pegboard.Classes(2))
    objective = part.build(Perceptron(metrics=("accuracy",)), Context(spec=spec, outputs=1))
    x, model = torch.randn(10_000, 4), LinearModel(4, 1)

    def signs(factor: float) -> Tensor:
        scaled = copy.deepcopy(model)
        with torch.no_grad():
            scaled.head.weight *= factor
            scaled.head.bias *= factor
            return objective.predict(scaled(x))["sign"]

    assert set(signs(1.0).tolist()) == {-1, 1}
    assert torch.equal(signs(3.7), signs(1.0)) and torch.equal(signs(-0.5), -signs(1.0))
    assert not signs(0.0).any()
    accuracy = objective.metrics()["accuracy"]
    accuracy.update(torch.zeros(6, 1), torch.tensor([0, 1, 0, 1, 1, 1]))
    assert accuracy.compute() == 0  # what is undecided is wrong, whichever class it has


def test_counts_survive_a_checkpoint_in_the_middle_of_a_pass() -> None:
    def made() -> PerceptronRule:
        return PerceptronRule([{"params": [torch.zeros(2, requires_grad=True)], "names": ["w"]}])

    first, second = made(), made()
    p = first.param_groups[0]["params"][0]
    for target, x in ((1, [1.0, 2.0]), (1, [1.0, 1.0]), (0, [2.0, 0.0])):
        first.zero_grad()
        binary_perceptron((torch.tensor([x]) @ p).unsqueeze(-1), torch.tensor([target])).backward()  # type: ignore[no-untyped-call]
        first.step()
    assert p.tolist() == [-1, 2] and first.mistakes == 2
    second.load_state_dict(first.state_dict())
    assert second.mistakes == 2 and second.finished() is None
    assert second.finished() == "a pass without a mistake, after 2 updates"
