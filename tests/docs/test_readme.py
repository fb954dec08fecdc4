"""What the README shows is what the project prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pegboard.registry.discovery import Registry
from sandbox import ROOT

TEXT = (ROOT / "README.md").read_text("utf-8")


def block(first_line: str) -> str:
    """The fenced block that begins with a line."""
    found = re.search(rf"^```\w+\n{re.escape(first_line)}\n(.*?)^```$", TEXT, re.M | re.S)
    assert found is not None, f"the README has no block that begins with {first_line!r}"
    return found[1]


def test_the_explained_plan_is_the_one_that_explain_prints(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(block("# digits.yaml"))
    command = [sys.executable, "-m", "pegboard", "explain", "digits.yaml", "trainer.device=cpu"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert block("$ pegboard explain digits.yaml").strip() == printed.strip()


def test_the_mistakes_are_those_that_check_prints(tmp_path: Path) -> None:
    lines = block("# wrong.yaml").splitlines()
    (tmp_path / "wrong.yaml").write_text("\n".join(["# wrong.yaml", *lines]) + "\n")
    command = [sys.executable, "-m", "pegboard", "check", "wrong.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        block("3 mistakes in wrong.yaml").strip()
        == done.stderr.strip().removeprefix("3 mistakes in wrong.yaml").strip()
    )


def parts_table() -> str:
    """A row for each plugin of the workspace: its parts by kind."""
    rows = []
    for plugin in Registry.discover().plugins:
        kinds: dict[str, list[str]] = {}
        for part in plugin.parts:
            kinds.setdefault(part.kind, []).append(f"`{part.name}`")
        if plugin.dist.startswith("pegboard-") and kinds:
            shown = "; ".join(f"{kind}s {', '.join(names)}" for kind, names in kinds.items())
            rows.append(f"| [{plugin.dist}](plugins/{plugin.name}) | {shown} |")
    return "\n".join(rows)


def test_the_table_of_parts_is_complete() -> None:
    assert parts_table() in TEXT, "the table of parts in README.md is stale; it should be:\n" + parts_table()
