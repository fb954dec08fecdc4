"""Weights of the zoo whose data is read from the hub still give their recorded figures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pegboard.inference.trained import Trained
from pegboard.store import zoo
from pegboard.store.checkpoint import WEIGHTS

FETCHED = [
    recipe
    for recipe in zoo.recipes()
    if "data: {name: hub," in recipe.config.read_text("utf-8") and (recipe.folder / WEIGHTS).is_file()
]


@pytest.mark.prove
@pytest.mark.data
@pytest.mark.parametrize("recipe", FETCHED, ids=lambda r: r.name)
def test_weights_give_the_recorded_figures(recipe: zoo.Recipe, show: Callable[[str], None]) -> None:
    trained = Trained(f"zoo:{recipe.name}")
    for name, value in trained.evaluate("test").items():
        recorded = recipe.result["figures"][f"test/{name}"]["values"][0]
        assert value == pytest.approx(recorded, rel=1e-3, abs=1e-3)
    show(f"{recipe.name}: the weights of the zoo give the figures that were recorded")
