"""Which distribution of this workspace offers which part: kind -> name -> distribution.

Under `moved` stand fields that the core had, and those of parts that have taken their place.

The core ships the list as data, to tell somebody what to install for a part that is missing. Run as
a script, this writes it anew.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from pegboard.registry.discovery import Registry

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "framework" / "src" / "pegboard" / "registry" / "known_parts.json"


def text() -> str:
    """The file as it should be."""
    folders = [path.parent for path in ROOT.glob("plugins/*/pyproject.toml")]
    ours = {tomllib.loads((f / "pyproject.toml").read_text())["project"]["name"] for f in folders}
    index: dict[str, dict[str, str]] = {}
    for plugin in Registry.discover().plugins:
        for method in plugin.sample_methods if plugin.dist in ours else ():
            index.setdefault(method.kind, {})[method.name] = plugin.dist
        for part in plugin.parts if plugin.dist in ours else ():
            index.setdefault(part.kind, {})[part.name] = plugin.dist
            for old, new in getattr(part, "replaces", {}).items():
                index.setdefault("moved", {})[old] = f"{part.name}.{new}"
    return json.dumps(index, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)}")
