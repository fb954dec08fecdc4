"""The results of the zoo as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import PegboardError
from ..store.zoo import Recipe

BEGIN, END = "<!-- table: made by `pegboard zoo table` -->", "<!-- end of table -->"


def table(found: Sequence[Recipe]) -> str:
    """The zoo as a Markdown table, made from the result files."""
    lines = [
        "| recipe | figure | measured | seeds | beside it | gap | parameters | seconds | recorded with |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for recipe in found:
        result = recipe.result
        if not result.get("figures"):
            lines.append(f"| {recipe.name} | not recorded yet | | | | | | | |")
            continue
        figure = headline(result)
        measured = result["figures"][figure]
        beside = result.get("reference", {}).get(figure)
        reference = f"{beside['value']:.4g}: {beside['source']}" if beside else ""
        lines.append(
            f"| {recipe.name} | {figure} | {shown(measured)} "
            f"| {len(result['seeds'])} | {reference} | {_gap(result)} | {result['parameters']:,} "
            f"| {result['seconds']:.1f} | {_core(result)} |"
        )
    return "\n".join(lines)


def _core(result: Mapping[str, Any]) -> str:
    """Version and commit of the core that a result was recorded with."""
    version, commit = result.get("versions", {}).get("pegboard", ""), result.get("commit")
    if not commit:
        return str(version)
    return f"{version} at {commit['id'][:7]}{', changed' if commit.get('changed') else ''}"


def conditions(result: Mapping[str, Any]) -> list[list[Any]]:
    """What a result was recorded with, as rows of a table: time, machine, commit and versions."""
    if not result.get("figures"):
        return []
    machine, commit = result.get("machine") or {}, result.get("commit") or {}
    rows = [["seconds of a run", result["seconds"]], ["recorded", result.get("recorded")]]
    rows += [[name, value] for name, value in machine.items()]
    if commit:
        changed = f" with {commit['changed']} changed files" if commit.get("changed") else ""
        rows.append(["commit", f"{commit['id']}{changed}"])
    return [row for row in (rows + [[k, v] for k, v in result["versions"].items()]) if row[1] is not None]


def shown(measured: Mapping[str, Any]) -> str:
    """The mean of a figure over the seeds and their deviation, which one seed has not; or that over folds."""
    if "folds" in measured:
        return f"{measured['mean']:.4f} ± {measured['folds']:.4f} over folds"
    deviation = f" ± {measured['std']:.4f}" if len(measured["values"]) > 1 else ""
    return f"{measured['mean']:.4f}{deviation}"


def _gap(result: Mapping[str, Any]) -> str:
    """How far what the reference minimises is from its optimum, in the mean over the seeds."""
    return f"{result['gap']['mean']:.1g}" if "gap" in result else ""


def headline(result: Mapping[str, Any]) -> str:
    """The figure that a table shows: the first test metric, of those with a reference if there are any."""
    beside = [name for name in result.get("reference", {}) if name in result["figures"]]
    figures = beside or list(result["figures"])
    return str(([f for f in figures if f.startswith("test/") and f != "test/loss"] or figures)[0])


def update_table(text: str, found: Sequence[Recipe]) -> str:
    """A page with the table between its two marks made anew."""
    if BEGIN not in text or END not in text:
        raise PegboardError(f"the page has no place for the table: expected the lines\n{BEGIN}\n{END}")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(found)}\n{END}{rest.partition(END)[2]}"
