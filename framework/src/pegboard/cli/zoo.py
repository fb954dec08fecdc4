"""`pegboard zoo`"""

from __future__ import annotations

import argparse

HELP = "The zoo: recipes with the results they reach."
EXAMPLE = "pegboard zoo train digits/mlp trainer.epochs=5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    some = EXAMPLE.split()[3]
    actions.add_parser("list", help="every recipe with its result", epilog="example: pegboard zoo list")
    show = actions.add_parser(
        "show", help="the card, config and result of a recipe", epilog=f"example: pegboard zoo show {some}"
    )
    show.add_argument("recipe", help="its name, as pegboard zoo list gives it")
    train = actions.add_parser("train", help="train a recipe", epilog=f"example: {EXAMPLE}")
    train.add_argument("recipe", help="its name")
    train.add_argument("overrides", nargs="*", default=[], help="values to change, as trainer.epochs=5")
    train.add_argument("--root", default="runs", help="where run folders are made (default: runs)")
    record = actions.add_parser(
        "record",
        help="train a recipe with several seeds and write its result.json",
        epilog=f"example: pegboard zoo record {some} --seeds 5",
    )
    record.add_argument("recipe", nargs="+", help="names")
    record.add_argument(
        "--seeds", type=_count, default=3, help="how many seeds, the recipe's first (default: 3)"
    )
    record.add_argument("--no-weights", action="store_true", help="keep the figures alone")
    record.add_argument("--root", default="runs", help="where run folders are made (default: runs)")
    table = actions.add_parser(
        "table",
        help="make the table of a page anew from the result files",
        epilog="example: pegboard zoo table zoo/README.md",
    )
    table.add_argument("page", help="a Markdown file with the marks of a table in it")
    table.add_argument("--check", action="store_true", help="change nothing; exit 1 when the table is stale")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from ..report.console import Console
    from ..store import zoo
    from ..tools import zoo_recording, zoo_table

    console = Console()
    if args.action == "list":
        console.table("", ["recipe", "figure", "measured", "seeds", "plugin"], map(_row, zoo.recipes()))
    elif args.action == "show":
        recipe = zoo.find_recipe(args.recipe)
        console.say(f"{recipe.card.strip()}\n\n{recipe.config.read_text('utf-8').strip()}\n")
        rows = [[name, f["mean"], f["std"]] for name, f in recipe.result.get("figures", {}).items()]
        console.table("recorded", ["figure", "mean", "spread"], rows)
        console.table("recorded with", ["what", "value"], zoo_table.conditions(recipe.result))
    elif args.action == "train":
        from ..config.check import check

        recipe = zoo.find_recipe(args.recipe)
        settings = check(recipe.config, [f"name={zoo_recording.slug(recipe.name)}", *args.overrides])
        from ..tools import cross_validation

        cross_validation.train(settings, Path(args.root), console)
    elif args.action == "record":
        for recipe in [zoo.find_recipe(name) for name in args.recipe]:
            path = zoo_recording.record(recipe, args.seeds, Path(args.root), console.say, not args.no_weights)
            console.say(f"written: {path}")
    else:
        return _table(Path(args.page), args.check)
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number of at least 1")
    return int(text)


def _row(recipe: object) -> list[object]:
    from ..store.zoo import Recipe
    from ..tools.zoo_table import headline, shown

    assert isinstance(recipe, Recipe)
    if not recipe.result.get("figures"):
        return [recipe.name, "not recorded yet", "", "", recipe.dist]
    figure = headline(recipe.result)
    found = recipe.result["figures"][figure]
    return [
        recipe.name,
        figure,
        shown(found),
        len(recipe.result["seeds"]),
        recipe.dist,
    ]


def _table(page: object, check: bool) -> int:
    from pathlib import Path

    from ..store import zoo
    from ..tools.zoo_table import update_table

    path = Path(str(page))
    before = path.read_text("utf-8")
    after = update_table(before, zoo.recipes())
    if check and before != after:
        print(f"{path} is stale: run pegboard zoo table {path}")
        return 1
    if not check:
        path.write_text(after, "utf-8")
    return 0
