"""What a run says at its end of its own fit: the figures of every split, the gap and the verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fitted_parts as fitted
import pegboard
import pytest
import torch
from pegboard.contract.results import Batch
from pegboard.engine.evaluate import Evaluator
from pegboard.engine.torch_private import compiler_absent
from pegboard.run.diagnosis import OVERFIT, UNDERFIT, Answers, diagnose
from pegboard.testing.runs import lean
from torch import Tensor
from torch.nn import functional

TOY, FITTED = str(Path(__file__).parents[1].joinpath("toy.py")), str(fitted.__file__)
Config = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with lean(), compiler_absent():
        yield


def polynomial(degree: int, seed: int = 0, **nodes: Any) -> dict[str, Any]:
    """Full-batch descent on orthonormal polynomials: its first step is the least-squares solution."""
    data = {"name": "wave", "degree": degree, "batch_size": 30, **nodes.pop("data", {})}
    base = {
        "seed": seed,
        "data": data,
        "model": {"name": "line"},
        "optimizer": {"name": "plain", "lr": 0.5},
        "objective": {"name": "squares"},
        "trainer": {"steps": 1, "device": "cpu", "threads": 1},
        "plugins": {"local": [TOY, FITTED]},
    }
    return base | nodes


def judged(train: float, constant: float | str = 1.0, **held_out: float) -> Any:
    return diagnose({"train": {"loss": train}, **{k: {"loss": v} for k, v in held_out.items()}}, constant)


@pytest.mark.parametrize(
    ("train", "test", "verdict"),
    [
        (UNDERFIT + 0.01, UNDERFIT, "underfits"),
        (UNDERFIT + 0.01, 5.0, "underfits"),  # what was not learned cannot be learned by heart
        (UNDERFIT - 0.01, UNDERFIT - 0.01 + OVERFIT + 0.01, "overfits"),
        (0.0, OVERFIT + 0.01, "overfits"),
        (0.0, OVERFIT - 0.01, "fine"),
        (UNDERFIT, UNDERFIT - 0.1, "fine"),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 4e5])
def test_the_verdict_is_that_of_the_rule_in_any_unit(
    train: float, test: float, verdict: str, scale: float
) -> None:
    found = judged(train * scale, scale, test=test * scale)
    assert (found.verdict, found.gap) == (verdict, pytest.approx((test - train) * scale))
    assert f"({scale:.4g})" in found.rule


def test_the_rule_is_told_in_words_with_its_numbers() -> None:
    assert str(judged(0.02, 0.69, val=0.1, test=0.41)) == (
        "overfits: test loss 0.41 exceeds train loss 0.02 by 0.39, more than 10% of what a constant answer "
        "loses (0.69)"
    )
    assert str(judged(0.4, 0.69, val=0.4)) == (
        "underfits: train loss 0.4 is more than 20% of what a constant answer loses (0.69)"
    )
    assert str(judged(0.02, 0.69, val=0.03)) == (
        "fine: train loss 0.02 is at most 20%, and val loss 0.03 exceeds it by at most 10%, of what a "
        "constant answer loses (0.69)"
    )


def test_without_held_out_samples_only_underfitting_is_seen() -> None:
    assert judged(0.9).verdict == "underfits"
    found = judged(0.01)
    assert (found.verdict, found.gap) == (None, None) and "no samples are held out" in found.rule


def test_losses_that_are_not_finite_and_no_constant_answer_give_no_verdict() -> None:
    assert str(judged(math.nan, test=1.0)) == "no verdict: a loss is not finite"
    assert judged(0.1, test=math.inf).verdict is None
    found = judged(0.1, "all targets are the same", test=0.3)
    assert (found.gap, str(found)) == (pytest.approx(0.2), "no verdict: all targets are the same")


class Loss(pegboard.Objective):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function

    def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        losses = self.function(output, target, reduction="none").flatten(1 if output.dim() == 1 else 0)
        return losses.mean() if weight is None else (losses * weight).sum() / weight.sum()


def constant(
    function: Callable[..., Tensor], outputs: Tensor, target: Tensor, weight: Tensor | None = None
) -> Any:
    answers = Answers(Loss(function))
    for part in torch.arange(len(target)).split(5):
        answers(outputs[part], Batch((), target[part], None if weight is None else weight[part]))
    return answers.constant()


def test_the_best_constant_answer_is_the_known_one_of_each_loss() -> None:
    classes = torch.tensor([0, 0, 0, 1, 2, 2, 0])
    shares = torch.tensor([4.0, 1.0, 2.0]) / 7
    entropy = float(-(shares * shares.log()).sum())
    assert constant(functional.cross_entropy, torch.zeros(7, 3), classes) == pytest.approx(entropy, abs=1e-6)
    # A class that weighs nothing is not there.
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    two = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    assert constant(functional.cross_entropy, torch.zeros(7, 2), two, weight) == pytest.approx(
        -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), abs=1e-6
    )
    values = torch.tensor([3.0, 5.0, 10.0, 1e4])[:, None]
    spread = float(values.double().var(unbiased=False))
    assert constant(functional.mse_loss, torch.zeros(4, 1), values) == pytest.approx(spread, rel=1e-6)
    few = torch.tensor([1.0, 2.0, 6.0])[:, None]  # the median, 2: (1 + 0 + 4) / 3
    assert constant(functional.l1_loss, torch.zeros(3, 1), few) == pytest.approx(5 / 3, rel=1e-2)


def test_what_is_not_known_has_no_part_in_a_constant_answer() -> None:
    def of_known(output: Tensor, target: Tensor, reduction: str) -> Tensor:
        return torch.where(target.isnan(), 0, output - target.nan_to_num()).square()

    nan = math.nan
    holes = torch.tensor([[1.0, nan], [3.0, 4.0], [nan, 8.0], [5.0, nan]])
    # (4 + 0 + 4) / 4 and (4 + 4) / 4, with 0 for what is missing.
    found = constant(of_known, torch.zeros(4, 2), holes)
    assert found == pytest.approx((8 / 4 + 8 / 4) / 2, rel=1e-6)
    left_out = torch.tensor([1.0, 2.0, 0.0, 0.0])
    values = torch.tensor([[1.0], [4.0], [nan], [nan]])
    assert constant(functional.mse_loss, torch.zeros(4, 1), values, left_out) == pytest.approx(2, rel=1e-6)
    hidden = torch.tensor([1, 1, -100, 0])
    assert "all targets are the same" in constant(  # type: ignore[operator]
        functional.cross_entropy, torch.zeros(4, 2), hidden, left_out
    )


def test_outputs_that_have_no_best_constant_answer_say_so() -> None:
    same = torch.zeros(6, dtype=torch.long)
    assert "all targets are the same" in constant(functional.cross_entropy, torch.zeros(6, 2), same)
    images = torch.zeros(6, 3, 4, 4)
    assert "structure" in constant(functional.mse_loss, images, images)

    def refuses(*given: Any, **more: Any) -> Tensor:
        raise ValueError("an output of several parts is needed")

    assert "several parts" in constant(refuses, torch.zeros(6, 2), torch.tensor([0, 1] * 3))
    zero = constant(
        lambda o, t, reduction: (-o * t[:, None]).clamp(min=0)[:, 0], torch.zeros(2, 1), torch.tensor([-1, 1])
    )
    assert zero == "a constant answer loses nothing"


def told(config: dict[str, Any], root: Path) -> dict[str, Any]:
    """The figures and the diagnosis of a run."""
    run = pegboard.train(config, root=root, quiet=True)
    return run.figures | run.diagnosis


@pytest.mark.catalogue("S3-034")
def test_runs_of_degree_1_4_and_15_are_diagnosed(root: Path) -> None:
    found = {degree: [told(polynomial(degree, seed), root) for seed in range(3)] for degree in (1, 4, 15)}
    verdicts = {degree: [one["verdict"] for one in runs] for degree, runs in found.items()}
    assert verdicts == {1: ["underfits"] * 3, 4: ["fine"] * 3, 15: ["overfits"] * 3}
    for one in (one for runs in found.values() for one in runs):
        assert one["gap"] == one["test/loss"] - one["train/loss"]


@pytest.mark.catalogue("S3-034")
def test_the_rule_is_right_for_most_draws_of_that_experiment() -> None:
    """Exact fits of 200 draws; the share of the verdict that the textbook gives is 0.96, 1.00 and 0.85."""
    right = {1: "underfits", 4: "fine", 15: "overfits"}
    for degree, least in ((1, 0.9), (4, 0.97), (15, 0.8)):
        hits = 0
        for seed in range(200):
            generator = torch.Generator().manual_seed(seed)
            (x, y), (u, v) = (fitted.wave(count, 0.1, generator) for count in (30, 500))
            w = torch.linalg.lstsq(fitted.powers(x, degree), y).solution
            train, test = (
                float((fitted.powers(a, degree) @ w - b).square().mean()) for a, b in ((x, y), (u, v))
            )
            hits += judged(train, float(y.var(unbiased=False)), test=test).verdict == right[degree]
        assert hits >= least * 200, (degree, hits)


@pytest.mark.catalogue("S3-040")
def test_a_penalty_shrinks_the_reported_gap_of_more_parameters_than_samples(root: Path) -> None:
    """30 weights, 20 samples, 3 seeds; the strength is the one with the least validation loss."""
    whole = {"steps": 150, "monitor": "train/loss", "eval_every": 150, "device": "cpu", "threads": 1}

    def diagnoses(decay: float) -> list[dict[str, Any]]:
        data, tricks = {"name": "wide", "batch_size": 20}, {"squared": {"by": decay}} if decay else {}
        given = {"optimizer": {"name": "plain", "lr": 0.1}, "trainer": whole, "regularizers": tricks}
        runs = [{**polynomial(1, seed, **given), "data": data} for seed in range(3)]
        return [told(one, root) for one in runs]

    def mean(found: list[dict[str, Any]], split: str) -> float:
        return sum(one[f"{split}/loss"] for one in found) / len(found)

    plain = diagnoses(0.0)
    penalized = min((diagnoses(decay) for decay in (0.2, 0.5)), key=lambda found: mean(found, "val"))
    for one in (*plain, *penalized):
        assert one["gap"] == one["test/loss"] - one["train/loss"]
    gaps = [sum(one["gap"] for one in found) / 3 for found in (penalized, plain)]
    assert gaps[0] < 0.9 * gaps[1]
    assert mean(penalized, "test") < mean(plain, "test") and mean(penalized, "train") > mean(plain, "train")


def test_the_figures_are_those_of_the_best_weights_in_eval_mode(config: Config, root: Path) -> None:
    given = config(regularizers={"drop": {"p": 0.5, "sites": ["input", "hidden"]}})
    run = pegboard.train(given, root=root, quiet=True)
    from pegboard.inference.trained import Trained

    trained = Trained(run.folder)
    for split in ("train", "val", "test"):
        again = {f"{split}/{name}": value for name, value in trained.evaluate(split).items()}
        assert {name: run.figures[name] for name in again} == pytest.approx(again)


def test_no_split_is_measured_twice(config: Config, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    measure = Evaluator.measure

    def counted(self: Evaluator, model: Any, source: Any, *more: Any) -> dict[str, float]:
        measured.append(len(source))
        return measure(self, model, source, *more)

    monkeypatch.setattr(Evaluator, "measure", counted)
    pegboard.train(config(), root=root, quiet=True)
    assert measured == [16, 16, 16, 16, 64]  # val after each of 3 epochs, test, train


def test_diagnose_off_leaves_the_training_split_alone(
    config: Config, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pegboard.train(config(), "trainer.diagnose=false", root=root)
    assert run.figures.keys() == {"val/loss", "val/right", "test/loss", "test/right"}
    assert "diagnosis" not in run.summary and run.diagnosis == {}
    assert "verdict" not in capsys.readouterr().out
    on = pegboard.train(config(), root=root)
    shown = capsys.readouterr().out
    assert (
        f"verdict     {on.diagnosis['verdict']}: {on.diagnosis['rule']}\n" in shown and "\ntrain  " in shown
    )
    assert on.history == run.history
    assert {k: v for k, v in on.figures.items() if not k.startswith("train/")} == run.figures


def test_of_samples_that_are_read_from_disk_some_are_measured(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pegboard.run.finish.MOST", 20)
    x = torch.randn(64, 2)
    rows = torch.cat([x, (x[:, :1] > 0).float()], 1)
    (tmp_path / "rows").write_bytes(rows.numpy().tobytes())

    def run(held: bool) -> pegboard.Run:
        local = [TOY, str(Path(__file__).parents[1].joinpath("streamed.py"))]
        data = {"name": "filed", "path": str(tmp_path / "rows"), "held": held}
        return pegboard.train(config(data=data, plugins={"local": local}), root=tmp_path)

    assert "samples" not in run(held=True).diagnosis
    assert "measured" not in capsys.readouterr().out
    one, two = run(held=False), run(held=False)
    assert one.diagnosis["samples"] == 20
    assert "measured    20 of the 64 training samples" in capsys.readouterr().out
    assert one.figures == two.figures and one.figures["train/loss"] != one.figures["val/loss"]


def test_a_summary_with_a_diagnosis_is_plain_json(config: Config, root: Path) -> None:
    run = pegboard.train(config(data={"name": "points", "held_out": False}), root=root, quiet=True)
    found = json.loads((run.folder / "summary.json").read_text())["diagnosis"]
    assert found["gap"] is None and set(found) == {"gap", "verdict", "rule"}
