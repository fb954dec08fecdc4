"""A config names the exact optimum of its problem, and the run ends with its gap to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fitted_parts as fitted
import pegboard
import pytest
import torch
from pegboard.base.errors import PegboardError
from pegboard.cli import main
from pegboard.config.check import check
from pegboard.config.schema import schema
from pegboard.engine.torch_private import compiler_absent
from pegboard.registry.discovery import Registry
from pegboard.testing.runs import lean

TOY, FITTED = str(Path(__file__).parents[1].joinpath("toy.py")), str(fitted.__file__)


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with lean(), compiler_absent():
        yield


def waves(reference: Any = "exact", **nodes: Any) -> dict[str, Any]:
    return {
        "data": {"name": "wave", "degree": 3, "batch_size": 30},
        "model": {"name": "line"},
        "optimizer": {"name": "plain", "lr": 0.1},
        "objective": {"name": "squares"},
        "reference": reference,
        "trainer": {"epochs": 4, "device": "cpu", "threads": 1},
        "plugins": {"local": [TOY, FITTED]},
        **nodes,
    }


def test_a_run_reports_the_optimum_on_every_split_and_its_gap(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pegboard.train(waves(), root=root)
    found = run.reference
    assert (found["name"], found["formula"]) == ("exact", "mean |f(x) - y|^2 + 0 |w|^2")
    # Features are orthonormal: each step keeps 0.8 of the distance to the optimum, 4 steps 0.8^8 of the loss.
    splits = pegboard.planning.plan.read_data(check(waves()))
    x, y = splits.train.inputs[0].double(), splits.train.target.double()
    x = torch.cat([x, torch.ones(30, 1)], 1)
    w = torch.linalg.lstsq(x, y).solution
    least, start = float((x @ w - y).square().mean()), float(y.square().mean())
    assert found["optimum"] == pytest.approx(least, rel=1e-5)
    assert found["gap"] == pytest.approx((start - least) * 0.8**8, rel=1e-4)
    assert found["objective"] == pytest.approx(run.figures["train/loss"], rel=1e-5)
    assert found["relative"] == pytest.approx(found["gap"] / found["optimum"])
    assert found["figures"]["train/loss"] == pytest.approx(least, rel=1e-5)
    u, v = splits.test.inputs[0].double(), splits.test.target.double()
    best = (torch.cat([u, torch.ones(500, 1)], 1) @ w - v).square().mean()
    assert found["figures"]["test/loss"] == pytest.approx(float(best), rel=1e-5)
    shown = capsys.readouterr().out
    assert "\ntest, optimum   " in shown and "\nreference   exact: objective " in shown
    assert run.summary["reference"] == found and "error" not in found


def test_the_trained_weights_do_not_notice_the_reference(root: Path) -> None:
    with_it, without = (pegboard.train(waves(r), root=root, quiet=True) for r in ("exact", None))
    files = [(r.folder / "checkpoints/last/model.safetensors").read_bytes() for r in (with_it, without)]
    assert files[0] == files[1] and with_it.figures == without.figures
    assert without.reference == {} and "reference" not in without.summary


def test_a_reference_stands_in_the_config_the_plan_and_the_provenance(root: Path) -> None:
    run = pegboard.train(waves({"name": "exact", "decay": 0.5}), root=root, quiet=True)
    written = (run.folder / "config.yaml").read_text()
    assert "reference: {name: exact, decay: 0.5, broken: false}" in written
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["parts"]["reference"] == f"{FITTED}:exact"
    origins = json.loads((run.folder / "origins.json").read_text())
    assert origins["reference.decay"] == "python"
    again = pegboard.train(run.folder / "config.yaml", root=root, quiet=True)
    assert again.reference == run.reference
    assert pegboard.load(run.folder)  # which needs no reference


def test_the_plan_says_what_the_reference_minimises() -> None:
    from pegboard.preview.explain import explain

    text = explain(pegboard.plan(waves({"name": "exact", "decay": 0.5})))
    assert "reference\n  exact: mean |f(x) - y|^2 + 0.5 |w|^2\n" in text
    assert "reference" not in explain(pegboard.plan(waves(None)))


def test_a_penalized_optimum_is_that_of_its_own_objective(root: Path) -> None:
    penalty = {"squared": {"by": 0.5}}
    trainer = {"epochs": 60, "device": "cpu", "threads": 1, "eval_every": 60}
    given = waves({"name": "exact", "decay": 0.5}, regularizers=penalty, trainer=trainer)
    run = pegboard.train(given, root=root, quiet=True)
    assert run.reference["gap"] == pytest.approx(0, abs=1e-6)
    other = pegboard.train({**given, "reference": "exact"}, root=root, quiet=True)
    assert other.reference["gap"] > 0.01  # least squares without the penalty is another optimum


def test_a_reference_that_fails_leaves_the_run_whole(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = pegboard.train(waves({"name": "exact", "broken": True}), root=root, quiet=True)
    assert run.status == "finished" and run.diagnosis["verdict"]
    assert run.reference["error"] == "the model is not linear"
    assert "reference exact failed, and is left out: the model" in capsys.readouterr().err


def test_folds_report_the_mean_of_their_optima(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = {"epochs": 1, "device": "cpu", "threads": 1, "folds": 2}
    run = pegboard.train(waves(trainer=trainer), root=root)
    beside = [fold.reference for fold in run.folds]
    for name in ("objective", "optimum", "gap"):
        assert run.reference[name] == pytest.approx((beside[0][name] + beside[1][name]) / 2)
    least = sum(one["figures"]["test/loss"] for one in beside) / 2
    assert run.reference["figures"]["test/loss"] == pytest.approx(least)
    *_, table = capsys.readouterr().out.split("2 folds: mean")
    (line,) = [line for line in table.splitlines() if line.startswith("test/loss")]
    assert line.split()[-1] == f"{least:.4g}" and f"gap {run.reference['gap']:.4g}\n" in table
    page = (run.folder / "report.html").read_text("utf-8")
    assert "test, optimum" in page and f"pegboard eval {run.folder}/fold-0 " in page
    broken = waves({"name": "exact", "broken": True}, trainer=trainer)
    assert pegboard.train(broken, root=root, quiet=True).reference == {}


def mistake(reference: Any, **nodes: Any) -> str:
    with pytest.raises(PegboardError) as error:
        check(waves(reference, **nodes))
    return str(error.value)


def test_a_probe_that_is_no_reference_is_a_mistake_that_lists_the_references() -> None:
    told = mistake("width")
    assert "probe 'width' is no reference" in told and "exact" in told and "probes: {width: {}}" in told
    assert "'exact'" in mistake("exakt") and "width" not in mistake("exakt").split("did you mean")[0]
    assert "decay" in mistake({"name": "exact", "dekay": 1.0})
    assert "at least 0" in mistake({"name": "exact", "decay": -1.0})
    assert "width" not in mistake({"decay": 1.0}) and "name: exact" in mistake({"decay": 1.0})
    assert "a mapping with a name" in mistake(5)


def test_configs_merge_and_switch_a_reference_off() -> None:
    assert check(waves({"name": "exact", "decay": 1.0}), ["reference=null"]).reference is None
    settings = check(waves({"name": "exact", "decay": 1.0}), ["reference.decay=2"])
    assert settings.reference is not None and settings.reference.config.decay == 2
    assert check(settings.plain).plain == settings.plain


@pytest.mark.sweep
def test_editors_are_offered_references_alone() -> None:
    made = schema(Registry.discover(local=[TOY, FITTED]))
    offered = [one.get("const") for one in made["$defs"]["names.reference"]["anyOf"]]
    assert "exact" in offered and "width" not in offered and "reference" in made["properties"]
    assert {"exact", "width"} <= {one.get("const") for one in made["$defs"]["names.probe"]["anyOf"]}


def test_show_says_how_a_config_names_a_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "exact", "--local", FITTED]) == 0
    assert "reference: {name: exact, decay: 0.0, broken: false}" in capsys.readouterr().out
    assert main(["show", "width", "--local", FITTED]) == 0
    shown = capsys.readouterr().out
    assert "reference:" not in shown and "pegboard probe RUN width" in shown
