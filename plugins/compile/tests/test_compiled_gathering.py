"""Where the samples of a compiled step come from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard.config.check import check
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import assemble, make_plan
from pegboard.testing.runs import Tapped
from pegboard_compile import Compiled, stepping

CONFIG = {
    "data": {"name": "moons", "samples": 64, "batch_size": 16},
    "model": {"name": "mlp", "hidden": [4]},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "trainer": {"steps": 2, "device": "cpu"},
}


class Nobody:
    def working(self, total: int, unit: str) -> Any:
        return nullcontext(lambda done: None)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


def test_a_compiled_step_gathers_from_what_is_wrapped_and_the_wrapper_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []

    class Recorded:
        made = 0

        def __init__(self, update: Any, options: Any, plan: Any) -> None: ...

        def checked(self, numbers: Any, index: Any, batches: Any) -> None:
            calls.append((index.tolist(), len(batches)))

        def direct(self, given: Any) -> bool:
            calls.append((given[-1].tolist(), 0))
            return True

    def whole_update(linked: Any, updates: Any, turn: Any, gather: Any, sums: Any) -> Any:
        calls.append((gather.__self__,))

    monkeypatch.setattr(stepping, "Graph", Recorded)
    monkeypatch.setattr(stepping, "whole_update", whole_update)
    monkeypatch.setattr(stepping.Graphs, "_rates", lambda *given: [[torch.ones(1)]])
    monkeypatch.setattr(stepping, "functional_updates", lambda assembly: [None])
    plan = make_plan(check(CONFIG), read=True)
    assert plan.splits is not None
    resident = plan.splits.train
    seen = []
    for wrap in (lambda source: source, lambda source: Tapped(source, lambda: calls.append(("read",)))):
        plan.splits.train = wrap(resident)
        watcher: Any = Nobody()
        loop = Loop(assemble(plan, "cpu"), plan.splits, choose_precision("fp32", "cpu"), watcher, tmp_path)
        groups = loop.groups(0)
        stepping.Graphs(loop, [16], Compiled()).call([groups[0]], 0)
        seen.append([call for call in calls if call != ("read",)])
        assert calls.count(("read",)) == len(seen) - 1
        calls.clear()
    assert seen[0] == seen[1] and seen[0][0] == (resident,)
