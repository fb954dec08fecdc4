"""Recipes: configs with the results they must reach, brought by plugins through `pegboard_recipes`.

A recipe is a folder `data/model-variant` with `recipe.yaml` (an ordinary config), `card.md`,
`result.json` (written by `pegboard zoo record`), and, where they are small, `model.safetensors` with the
files that the data set keeps in `data/`.
No torch at import.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..base.errors import PegboardError
from ..base.nearest import nearest
from ..registry.discovery import Registry
from .names import RESULT


@dataclass(frozen=True)
class Recipe:
    """One recipe of the zoo."""

    name: str  # data/model-variant
    folder: Path
    dist: str

    @property
    def config(self) -> Path:
        return self.folder / "recipe.yaml"

    @cached_property
    def result(self) -> dict[str, Any]:
        """What was recorded, empty before the first time."""
        path = self.folder / RESULT
        try:
            result = dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}
            for figure in result.get("figures", {}).values():  # what tables format
                float(figure["mean"]), float(figure["std"])
            if result and not ("figures" in result and isinstance(result.get("seeds"), list)):
                raise ValueError("it lacks figures or seeds")
            return result
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise PegboardError(f"cannot read {path}: {error}") from None

    @property
    def card(self) -> str:
        path = self.folder / "card.md"
        return path.read_text("utf-8") if path.is_file() else ""


def recipes(registry: Registry | None = None) -> list[Recipe]:
    """Every recipe that a ready plugin brings, by name."""
    return [Recipe(*found) for found in (registry or Registry.discover()).recipe_folders()]


def find_recipe(name: str, registry: Registry | None = None) -> Recipe:
    """The recipe of this name; `dist:name` where two plugins bring the same."""
    dist, _, plain = name.rpartition(":")
    every = recipes(registry)
    found = [r for r in every if r.name == plain and dist in ("", r.dist)]
    if len(found) == 1:
        return found[0]
    if found:
        raise PegboardError(
            f"recipe {name!r} is brought by {', '.join(r.dist for r in found)}: write dist:name"
        )
    near = nearest(plain, [r.name for r in every])
    raise PegboardError(
        f"no recipe {name!r} in the zoo"
        + (f", did you mean {near[0]!r}?" if near else "")
        + "\nlist them: pegboard zoo list"
        + ("" if every else " (there are none: pip install pegboard-zoo)")
    )
