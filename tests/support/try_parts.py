"""Train two steps with every part of one plugin, each beside the plainest parts of the other kinds.

Run in a sandbox as `python try_parts.py DISTRIBUTION`, beside plain_parts.py; prints a line of
JSON for each part: its name, and what went wrong or null.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import yaml

TOY = {name: {"name": "toy"} for name in ("data", "model", "optimizer", "objective")}
TOY |= {"trainer": {"steps": 2}, "plugins": {"local": ["plain_parts.py"]}}


def target_for(part: Any) -> str:
    """The toy target that a part takes."""
    from plain_parts import TARGETS

    fitting = [name for name, spec in TARGETS.items() if not part.targets or isinstance(spec, part.targets)]
    if part.kind == "objective" and part.default_for:
        fitting = [name for name in fitting if isinstance(TARGETS[name], part.default_for)] or fitting
    return fitting[0]


def config_for(part: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The toy config with one part in its place."""
    node = {"name": part.name, **fields}
    match part.kind:
        case "dataset":
            return TOY | {"data": node}
        case "model" | "optimizer":
            return TOY | {part.kind: node}
        case "schedule":
            return TOY | {"optimizer": {"name": "toy", "schedule": node}}
        case "objective":
            return TOY | {"objective": node, "data": {"name": "toy", "target": target_for(part)}}
        case "regularizer":
            data = {"name": "toy", "target": target_for(part)}
            return TOY | {"regularizers": {part.name: fields}, "data": data}
        case "tracker":
            return TOY | {"trackers": {part.name: fields}}
        case kind:
            raise ValueError(f"no place for a {kind}")


def train(config: dict[str, Any], name: str) -> Path:
    import pegboard

    path = Path(f"{name}.yaml")
    path.write_text(yaml.safe_dump({"name": name, **config}))
    return Path(pegboard.train(str(path)).folder)


def main(distribution: str) -> None:
    from pegboard.registry import Registry

    teacher = train(TOY, "teacher")
    # What a part cannot work without; a part with other fields that have no default is left out.
    given: dict[str, dict[str, Any]] = {"distillation": {"teacher": str(teacher.resolve())}}
    for plugin in Registry.discover().plugins:
        for part in plugin.parts if plugin.dist == distribution else ():
            missing = dataclasses.MISSING
            fields = given.get(part.name, {})
            required = [
                field.name
                for field in dataclasses.fields(part.config)
                if field.default is missing and field.default_factory is missing
            ]
            if set(required) <= set(fields):
                wrong = None
                try:
                    train(config_for(part, fields), f"{part.kind}-{part.name}")
                except BaseException:
                    wrong = traceback.format_exc()
                print(json.dumps({"part": f"{part.kind} {part.name}", "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
