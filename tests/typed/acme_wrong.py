"""The plugin of `acme_sound.py` with its mistakes, each marked where a type checker must report it."""

from __future__ import annotations

from typing import Any

from acme_sound import Deep, Points, Still, Wide, build_points, build_silent, build_still, build_wide
from pegboard import Context, Dataset, DataSpec, Model, Peg, Prefixed, Regularizer, Role, hookimpl


def build_name(config: Deep, context: Context) -> str:
    return "a model"


def spec_wide(config: Wide) -> DataSpec:
    return DataSpec()


# It builds from another config.
other_config = Model("deep", Deep, build_wide)  # wrong

# It builds no model.
no_model = Model("deep", Deep, build_name)  # wrong

# Its spec is made of another config.
other_spec = Dataset("points", Points, build_points, spec=spec_wide)  # wrong

# It builds another kind of part.
no_trick = Regularizer("still", Still, build_silent, stages={"hang": "drop"})  # wrong

# A stage, a role and a site are misspelt; a plugin's own are made with `Prefixed`.
no_stage = Regularizer("still", Still, build_still, stages={"hnag": "drop"})  # wrong
no_role = Regularizer("still", Still, build_still, stages={"hang": "dorp"})  # wrong
own_role = Regularizer("still", Still, build_still, stages={"hang": "acme:prune"})  # wrong
no_site = Model("wide", Wide, build_wide, pegs=("hiden",))  # wrong
no_peg = Peg("hiden", 8)  # wrong
no_place = Role(Prefixed("acme:prune"), "hnag")  # wrong
own_site = Model("wide", Wide, build_wide, pegs=("hidden", Prefixed("acme:gate")))


@hookimpl
def pegboard_models() -> list[Model[Any]]:
    return [Regularizer("still", Still, build_still, stages={"hang": "drop"})]  # wrong
