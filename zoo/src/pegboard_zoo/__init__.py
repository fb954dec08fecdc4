"""The zoo: recipes with the results they reach."""

from pathlib import Path

from pegboard import hookimpl


@hookimpl
def pegboard_recipes() -> list[Path]:
    return [Path(__file__).parent / "recipes"]
