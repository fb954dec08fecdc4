"""The README is short, and what it shows of a run and of the parts is so; its blocks run in test_docs.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pegboard.registry.discovery import Registry
from sandbox import ROOT

TEXT = (ROOT / "README.md").read_text("utf-8")


def shape(text: str) -> str:
    """Lines with their numbers, dates and widths of columns taken out."""
    text = re.sub(r"\d{8}-\d{6}-\w+", "RUN", text)
    return re.sub(r" +", " ", re.sub(r"\d+(\.\d+)?(e-\d+)?", "N", text))


def test_two_screens_are_enough() -> None:
    assert len(TEXT.splitlines()) <= 140
    assert len(re.findall(r"!\[", TEXT)) == 1


def test_the_quickstart_prints_what_is_shown(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "\nquickstart: $(READY)" in makefile
    assert "pegboard train configs/quickstart.yaml $(ARGS)" in makefile
    (shown,) = re.findall(r"^\$ make quickstart.*\n\.\.\.\n((?:(?!\$ ).*\n)+)", TEXT, re.M)
    command = [sys.executable, "-m", "pegboard", "train", str(ROOT / "configs" / "quickstart.yaml")]
    done = subprocess.run(
        [*command, "trainer.epochs=2"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    verdict = r"verdict \w+: .*"
    expected, printed = (re.sub(verdict, "verdict", shape(text)) for text in (shown, done.stdout))
    assert printed.endswith(expected), done.stdout


def rows_of_parts() -> dict[str, str]:
    """The row of each plugin: its parts by kind; of one without parts, how the row begins."""
    rows = {}
    for folder in sorted(path.parent.name for path in (ROOT / "plugins").glob("*/pyproject.toml")):
        rows[folder] = f"| [pegboard-{folder.replace('_', '-')}]({folder}) | "
    for plugin in Registry.discover().plugins:
        kinds: dict[str, list[str]] = {}
        for part in plugin.parts:
            kinds.setdefault(part.kind, []).append(f"`{part.name}`")
        if plugin.dist.startswith("pegboard-") and kinds:
            shown = "; ".join(f"{kind}s {', '.join(names)}" for kind, names in kinds.items())
            rows[plugin.name] = f"| [{plugin.dist}]({plugin.name}) | {shown} |"
    return rows


def test_the_table_of_parts_is_complete() -> None:
    page = (ROOT / "plugins" / "README.md").read_text("utf-8")
    table = [line for line in page.splitlines() if line.startswith("| [")]
    stale = [row for row in rows_of_parts().values() if not any(line.startswith(row) for line in table)]
    assert not stale, "the table in plugins/README.md is stale; it should have:\n" + "\n".join(stale)
    assert len(table) == len(rows_of_parts())
