"""The page on data lists all that a source may have."""

from __future__ import annotations

import re

from pegboard import Source
from sandbox import ROOT


def test_the_page_has_a_row_for_every_default_of_a_source() -> None:
    text = (ROOT / "docs" / "data.md").read_text("utf-8").partition("## A source of your own")[2]
    rows = re.findall(r"^\| (`[^|]+`) \|", text.partition("\n## ")[0], re.M)
    listed = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert listed == {name for name in vars(Source) if not name.startswith("_")} - {"gather", "to"}
