"""Every recipe of the zoo: a valid config, a whole card, a result that its weights still reach."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
from pegboard import zoo
from pegboard.config.check import check
from pegboard.inference import Trained
from pegboard.planning import make_plan

OURS = [r for r in zoo.recipes() if r.dist == "pegboard-zoo"]
README = Path(__file__).parents[1] / "README.md"

each_recipe = pytest.mark.parametrize("recipe", OURS, ids=lambda r: r.name)


def test_the_first_recipes_are_there() -> None:
    names = {r.name for r in OURS}
    assert names >= {
        "digits/mlp",
        "digits/mlp-tricks",
        "digits/mlp-small",
        "digits/mlp-small-distilled",
        "diabetes/linear",
    }


@each_recipe
def test_the_config_is_valid_and_the_card_is_whole(recipe: zoo.Recipe) -> None:
    assert check(recipe.config)
    for heading in ("What.", "Source.", "Data.", "Use.", "Limits."):
        assert f"**{heading}**" in recipe.card
    assert recipe.card.startswith(f"# {recipe.name}\n")


@each_recipe
def test_the_result_is_whole(recipe: zoo.Recipe) -> None:
    result = recipe.result
    assert result["name"] == recipe.name and len(result["seeds"]) >= 3
    assert all(len(f["values"]) == len(result["seeds"]) for f in result["figures"].values())
    assert result["versions"].keys() >= {"pegboard", "torch", "python", "pegboard-datasets"}
    assert len(result["data"]) == 64
    assert all(r["source"] and r["value"] for r in result["reference"].values())
    assert (recipe.folder / "curves.png").is_file()


@each_recipe
def test_the_weights_still_give_the_recorded_figure(recipe: zoo.Recipe) -> None:
    found = Trained(f"zoo:{recipe.name}").evaluate("test")
    for name, value in found.items():
        assert value == pytest.approx(
            recipe.result["figures"][f"test/{name}"]["values"][0], rel=1e-3, abs=1e-3
        )


@each_recipe
def test_the_data_is_the_data_that_was_recorded(recipe: zoo.Recipe) -> None:
    plan = make_plan(check(recipe.config), read=True)
    assert plan.splits is not None
    assert plan.splits.notes["fingerprint"] == recipe.result["data"]


def test_least_squares_agrees_with_the_closed_form() -> None:
    recipe = zoo.find_recipe("diabetes/linear")
    splits = make_plan(check(recipe.config), read=True).splits
    assert splits is not None

    def design(source: object) -> tuple[numpy.ndarray, numpy.ndarray]:
        x = source.inputs[0].double().numpy()  # type: ignore[attr-defined]
        return numpy.c_[x, numpy.ones(len(x))], source.target.double().numpy()  # type: ignore[attr-defined]

    (x, y), (x_test, y_test) = design(splits.train), design(splits.test)
    best = numpy.linalg.solve(x.T @ x, x.T @ y)
    rmse = float(numpy.sqrt(((x_test @ best - y_test) ** 2).mean()))
    assert rmse == pytest.approx(recipe.result["reference"]["test/rmse"]["value"], rel=1e-9)
    assert recipe.result["figures"]["test/rmse"]["mean"] == pytest.approx(rmse, rel=1e-6)


def test_the_table_is_made_from_the_result_files() -> None:
    assert zoo.update_table(README.read_text("utf-8"), OURS) == README.read_text("utf-8"), (
        "zoo/README.md is stale: run `make zoo-table`"
    )


def test_result_files_are_plain_json() -> None:
    for recipe in OURS:
        assert json.loads((recipe.folder / "result.json").read_text("utf-8"))
