"""docs/architecture.md names rooms, modules and functions that are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pegboard
import pytest
from sandbox import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
CORE = Path(pegboard.__file__).parent
ROOMS = sorted(path.parent.name for path in CORE.glob("*/__init__.py"))
NAMED = set(re.findall(rf"`((?:{'|'.join(ROOMS)})\.[\w.]+)`", PAGE))
NAMES = sorted(name for name in NAMED if not name.endswith(".yaml"))  # which is a file of a run


def test_every_room_has_a_sentence() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.M))
    assert sorted(told) == ROOMS
    for room, sentence in told.items():
        first = (CORE / room / "__init__.py").read_text("utf-8").lstrip('"').split("\n")[0].rstrip('"')
        if room != "testing":  # whose docstring begins with how it is run
            assert sentence == first


def test_the_picture_has_every_room() -> None:
    picture = PAGE.split("```text")[1].split("```")[0]
    assert sorted(re.findall(r"(?:^ |\| +)(\w+) ", picture, re.M)) == ROOMS


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_is_there(name: str) -> None:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if (
            CORE.joinpath(*parts[:count]).with_suffix(".py").is_file()
            or CORE.joinpath(*parts[:count]).is_dir()
        ):
            found = importlib.import_module(".".join(["pegboard", *parts[:count]]))
            for part in parts[count:]:
                found = getattr(found, part)
            return
    pytest.fail(f"there is no {name}")
