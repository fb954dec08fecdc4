"""Many installed plugins that nobody uses: a folder of distributions as pip leaves them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

NEEDS = ("pegboard<1,>=0.1", "torch>=2.13")
MODULE = '''"""A trick that does nothing."""

from dataclasses import dataclass
from typing import Annotated, Any

from pegboard import Context, Ge, Lt, Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class Idle:
    """Does nothing."""

    p: Annotated[float, Ge(0), Lt(1)] = 0.5  # how much of it
    often: int = 1  # how often


def build(config: Idle, context: Context) -> Trick:
    return Trick()


@hookimpl
def pegboard_regularizers() -> list[Regularizer[Any]]:
    return [Regularizer("{name}", Idle, build, stages={{"edit_target": "smooth"}})]
'''


def install_crowd(site: Path, count: int) -> Path:
    """Put so many plugins into a folder that belongs on the path; each has a part `idle_N`."""
    for number in range(count):
        install(site, f"pegboard-idle-{number}", MODULE.format(name=f"idle_{number}"))
    return site


def install(
    site: Path, dist: str, code: str, requires: Sequence[str] = NEEDS, version: str = "1.0", point: str = ""
) -> Path:
    """One distribution with one module, and a record of its files; the folder of its metadata."""
    module = dist.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {need}\n" for need in requires),
        f"{info}/entry_points.txt": f"[pegboard]\n{point or module.removeprefix('pegboard_')} = {module}\n",
    }
    record = "".join(f"{name},{_hash(text)},{len(text)}\n" for name, text in files.items())
    for name, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    return site / info


def _hash(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
