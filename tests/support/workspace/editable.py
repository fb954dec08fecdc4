"""Projects that can be imported and found as if pip had installed them for editing, in no time."""

from __future__ import annotations

import tomllib
from pathlib import Path


def install(project: Path, site: Path) -> tuple[Path, Path]:
    """Write the metadata of a project to a folder; that and the one of its sources belong on the path."""
    table = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    info = site / f"{table['name'].replace('-', '_')}-{table['version']}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    head = ["Metadata-Version: 2.4", f"Name: {table['name']}", f"Version: {table['version']}"]
    head += [f"Requires-Dist: {needed}" for needed in table.get("dependencies", [])]
    card = (project / table["readme"]).read_text("utf-8") if "readme" in table else ""
    (info / "METADATA").write_text("\n".join([*head, "", card]), "utf-8")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in table.get("entry-points", {}).items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points), "utf-8")
    return site, project / "src"
