"""A small run for a machine to turn on, and what must have become of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pegboard.cli import main
from proofs import differences

CONFIG: dict[str, Any] = {
    "name": "machine",
    "data": {"name": "iris", "batch_size": 16},
    "model": {"name": "mlp", "hidden": [16]},
    "optimizer": {"name": "adamw", "lr": 0.01},
    "regularizers": {"dropout": {"p": 0.2}},
    "trainer": {"epochs": 4, "device": "cpu", "log_every": 3, "save_every": 5},
}
Fails = Callable[..., str]


def unharmed(run: Path, reference: Path) -> None:
    """A run ended as the one that nothing happened to; the trackers it had besides are no difference."""
    assert [d for d in differences(reference, run) if " manifest.parts.trackers." not in d] == []


def goes_on(root: Path, reference: Path) -> None:
    """The one run below `root` resumes and ends as the reference."""
    (run,) = (p for p in (root / "machine").iterdir() if not p.is_symlink() and not p.name.startswith("."))
    assert main(["resume", str(run), "--quiet"]) == 0
    unharmed(run, reference)


@contextmanager
def nth(owner: Any, name: str, count: int, first: Callable[[], Any]) -> Iterator[None]:
    """Let something happen just before the call of this number; then things are as before."""
    before, calls = getattr(owner, name), 0

    def replaced(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            first()
        return before(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, replaced)
        yield
