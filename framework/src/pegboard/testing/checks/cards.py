"""The card of a plugin: its README."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ...config.fields import describe
from ..kit import Failed, Skipped, check
from ..subjects import Subject

HEADINGS = ("Use", "Fields", "How it works", "Where it comes from")


def card(subject: Subject) -> str | None:
    """The text of the README: in the metadata of a distribution, or beside a local file."""
    if subject.plugin.version == "local":
        beside = Path(subject.plugin.dist).with_name("README.md")
        return beside.read_text("utf-8") if beside.is_file() else None
    found = metadata.distribution(subject.plugin.dist)
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):  # its metadata is as old as its installation
        beside = Path(url2pathname(urlsplit(origin["url"]).path)) / "README.md"
        if beside.is_file():
            return beside.read_text("utf-8")
    described: Any = found.metadata  # an email message, which its type does not say
    return str(described.get_payload() or described.get("Description", ""))


@check()
def card_is_complete(subject: Subject) -> None:
    """Its README says how to use it, names every part and field, how it works and where it comes from."""
    text = card(subject)
    if text is None:
        raise Skipped("a local file without a README.md beside it")
    if not text.strip():
        raise Failed(f'{subject.what} has no card: readme = "README.md" in its pyproject.toml')
    if not subject.plugin.parts:
        raise Skipped("it brings no part that a config names")
    headings = re.findall(r"^#+ +(.+?) *$", text, re.M)
    wrong = [f"no heading {name!r}" for name in HEADINGS if name not in headings]
    if not re.search(r"^ *```yaml", text, re.M):
        wrong.append("no yaml block that shows a config")
    for part in subject.plugin.parts:
        if part.name not in text:
            wrong.append(f"nothing of {part.kind} {part.name!r}")
            continue
        missing = [f.name for f in describe(part.config) if not re.search(rf"\b{f.name}\b", text)]
        wrong += [f"nothing of {name} of {part.kind} {part.name!r}" for name in missing]
    if wrong:
        raise Failed(f"the card (README.md) of {subject.what} has {'; '.join(wrong)}")
