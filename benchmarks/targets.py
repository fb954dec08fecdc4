"""What the engine is held to, as data: which row must be how many times as fast as which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ratios import Ratio, measured, ratio, series

OTHERS = ("cnn", "lstm", "transformer", "gcn")
ALL = ("mlp", *OTHERS)


@dataclass(frozen=True)
class Target:
    """`ours` must be `needed` times as fast as `other`; "peers" is the fastest of all frameworks."""

    text: str
    ours: str
    other: str
    needed: float | None = None  # None: shown, and nothing is promised
    workloads: tuple[str, ...] = ("mlp",)
    mode: str = "off"  # of ours
    against: str = "off"  # mode of the other

    def verdict(self, found: Ratio) -> str:
        """Whether it is met, which takes three of four rounds; nothing, where nothing is promised."""
        if self.needed is None:
            return ""
        return "met" if found.low >= self.needed else "not met"


TARGETS = (
    Target("eager, the best hand-written loop", "pegboard", "hand", 1.0, ALL),
    Target("eager, the best hand-written loop: the aim", "pegboard", "hand", 1.3),
    Target("eager, the plain DataLoader loop", "pegboard", "plain", 1.6),
    Target("compiled step, the best hand-written loop", "step", "hand", 2.0),
    Target("32 compiled steps a call, the best hand-written loop", "steps32", "hand", 3.5),
    Target("compiled step, eager", "step", "pegboard", 1.0, OTHERS),
    Target("32 compiled steps a call, eager", "steps32", "pegboard", 1.0, OTHERS),
    Target("compiled step, a compiled step by hand", "step", "hand_step", None, ALL),
    Target("32 a call, a compiled step by hand, guards skipped", "steps32", "hand_step_unguarded", None, ALL),
    Target("eager, Lightning", "pegboard", "lightning", 2.7),
    Target("compiled, Lightning", "steps32", "lightning", 9.0),
    Target("eager, HF Trainer", "pegboard", "transformers", 2.7),
    Target("compiled, HF Trainer", "steps32", "transformers", 9.0),
    Target("eager, Composer", "pegboard", "composer", 4.0),
    Target("compiled, Composer", "steps32", "composer", 13.0),
    Target("eager, Ignite", "pegboard", "ignite", 1.8),
    Target("compiled, Ignite", "steps32", "ignite", 6.0),
    Target("eager, the fastest framework", "pegboard", "peers", 1.0, ALL),
    Target("everything on and five tricks, the fastest framework off", "tricks", "peers", 1.0, mode="on"),
    Target("the same compiled", "tricks32", "peers", 1.0, mode="on"),
    Target("defaults on, the fastest framework with its own", "pegboard", "peers", None, ALL, "on", "on"),
    Target("eager, the plain DataLoader loop with fused Adam", "pegboard", "plain_fused", None, ALL),
    Target("eager, the hand-written loop past Optimizer.step", "pegboard", "lean", None, ALL),
    Target("eager, the hand-written loop, channels first", "pegboard", "hand_usual", None, ("cnn",)),
    Target("eager, PyG's example", "pegboard", "pyg", None, ("gcn",)),
)


def judge_all(results: dict[str, dict[str, Any]]) -> Iterator[tuple[Target, str, dict[str, Ratio]]]:
    """Every target with each workload that was measured, and the ratio for each number of threads."""
    for target in TARGETS:
        for workload in target.workloads:
            if workload in results:
                of = results[workload]
                found = {t: made for t in measured(of) if (made := _least(of, target, t))}
                if found:
                    yield target, workload, found


def _least(of: dict[str, Any], target: Target, threads: str) -> Ratio | None:
    """How many times as fast ours is as the other, or as the fastest of the others."""
    names = [target.other]
    if target.other == "peers":
        names = [name for name, row in of["rows"].items() if row["kind"] == "peer"]
    mine = series(of, target.ours, threads, target.mode)
    found = [ratio(series(of, name, threads, target.against), mine) for name in names]
    return min((r for r in found if r is not None), key=lambda r: r.middle, default=None)
