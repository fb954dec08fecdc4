"""`pegboard new`"""

from __future__ import annotations

import argparse

HELP = "Write a new plugin: a package with a part that works, its card, its tests and their workflow."
EXAMPLE = "pegboard new regularizer max_norm --dist acme-max-norm"

ABOUT = {
    "README.md": "the card: use, fields, how it works, where it comes from",
    "config.yaml": "a config that runs",
    "pyproject.toml": "the distribution: its entry point, the cores it works with",
    "__init__.py": "the light module",
    "test_conformance.py": "every check of pegboard.testing",
    "test.yml": "tests with the oldest and the newest core, and the wheel",
    "recipe.yaml": "the config of the recipe",
    "card.md": "what the recipe is",
}
NEXT = """
next:
  cd {folder}
  pip install -e ".[test]"
  pytest
  {train}
  pegboard schema -o pegboard.schema.json
  pip wheel --no-deps --wheel-dir dist .
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ..tools.scaffold import WRITTEN

    parser.add_argument("kind", metavar="KIND", help=", ".join(WRITTEN))
    parser.add_argument("name", metavar="NAME", help="what configs call the part, as max_norm")
    parser.add_argument(
        "--dist", default="", metavar="NAME", help="name of the distribution (default: pegboard-NAME)"
    )
    parser.add_argument(
        "--folder", default="", help="where to write it (default: the name of the distribution)"
    )


def run(args: argparse.Namespace) -> int:
    import shlex

    from ..base.errors import PegboardError
    from ..tools.scaffold import Draft

    draft = Draft(args.kind, args.name, args.dist, args.folder)
    if wrong := list(draft.mistakes()):
        raise PegboardError("\n  ".join(("nothing was written:", *wrong)))
    draft.write()
    files = list(draft.files())
    width = max(map(len, files))
    print(f"{draft.folder}/")
    for path in files:
        name = path.rpartition("/")[2]
        about = ABOUT.get(name, "what the light module builds" if name.endswith(".py") else "")
        print(f"  {path:<{width}}  {about}".rstrip())
    train = "pegboard zoo list" if draft.kind == "recipe" else "pegboard train config.yaml"
    print(NEXT.format(folder=shlex.quote(str(draft.folder)), train=train), end="")
    return 0
