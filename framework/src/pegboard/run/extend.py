"""Going on with a run to another length: what may change, and whether it ends as if asked for so."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..base.errors import PegboardError
from ..base.files import write_json, write_text
from ..config.dump import to_yaml
from ..config.errors import leaves
from ..config.nodes import Settings
from ..contract.kinds import traceless_sections
from ..contract.options import DataOptions
from ..contract.records import Context
from ..planning.plan import Assembly, Plan, assemble
from ..store.names import CONFIG, ENVIRONMENT, ORIGINS, SUMMARY
from ..store.run_folder import Claim
from ..store.run_reader import read_object
from .provenance import origins

LENGTH = ("trainer.epochs", "trainer.steps")
# What leaves no trace in the weights: where a run computes, what it writes, whom it tells, what it measures.
FREE = (
    "trainer.device", "trainer.threads", "trainer.nonfinite", "trainer.log_every", "trainer.save_every",
    "trainer.save_minutes", "trainer.keep", "trainer.sample_every", "trainer.diagnose", "data.workers",
    "data.eval_batch_size",
)  # fmt: skip
CHOICE = ("trainer.monitor", "trainer.mode", "trainer.eval_every")
ROUNDING = (
    "trainer.precision", "trainer.compile", "trainer.compile_mode", "trainer.steps_per_call",
    "trainer.channels_last", "trainer.deterministic",
)  # fmt: skip
OPTIONS = {f"data.{option.name}" for option in fields(DataOptions)}

Changes = Mapping[str, tuple[Any, Any]]  # dotted path -> what it was, what is asked for


def changes_between(old: Settings, new: Settings) -> dict[str, tuple[Any, Any]]:
    """The values in which two configs differ."""
    was, now = dict(leaves(old.plain)), dict(leaves(new.plain))
    paths = dict.fromkeys([*was, *now])
    return {p: (was.get(p), now.get(p)) for p in paths if was.get(p) != now.get(p)}


def refuse_changes(changes: Changes, folder: Path, words: Sequence[str]) -> None:
    """Refuse, all at once, what the updates so far were made with."""
    wrong = {path: reason for path in changes if (reason := _reason(path))}
    if not wrong:
        return
    lines = [
        f"  {path}: {_shown(changes[path][0])} so far, {_shown(changes[path][1])} asked for\n    {reason}"
        for path, reason in wrong.items()
    ]
    anew = shlex.join(["pegboard", "train", str(folder / CONFIG), *words, f"model.weights={folder}"])
    raise PegboardError(
        "\n".join((f"{folder} cannot go on with other values than those it was trained with:", *lines))
        + f"\nwhat may change: {', '.join((*LENGTH, *FREE))}, "
        + ", ".join(f"{section}.*" for section in traceless_sections())
        + f", and where the data stays the same, what says where it is\na new run from its weights: {anew}"
    )


def _reason(path: str) -> str:
    """Why a value cannot change in a run that has begun; "" where it can."""
    section = path.partition(".")[0]
    if path in (*LENGTH, *FREE) or section in traceless_sections():
        return ""
    if path in CHOICE:
        return "by it the best checkpoint so far was chosen"
    if path in ROUNDING:
        return "it decides how numbers are rounded, and the updates so far were rounded so"
    if path in ("trainer.folds", "trainer.fold"):
        return "it says which samples train"
    if path == "name":
        return "the folder of the run is called by it"
    if section == "plugins":
        return "local plugins are named with --local"
    if section == "data" and path not in OPTIONS and path != "data.name":
        return ""  # the data itself is compared
    return "the updates so far were made with it"


def moves_data(changes: Changes) -> bool:
    """True if values of the data set itself change, so that only its fingerprint says that it is the same."""
    return any(path.startswith("data.") and path not in FREE for path in changes)


def _shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


@dataclass
class Extension:
    """A change of a run that was found right."""

    settings: Settings
    changes: Changes
    step: int  # updates made before
    lengths: tuple[int, int]  # updates asked for before, and now
    differs: list[str] = field(default_factory=list)  # in what it will not be as if asked for so
    notes: list[str] = field(default_factory=list)  # in what its records will not be
    text: str = ""  # of the plan

    def say(self) -> str:
        """One line, and what differs."""
        old, new = self.lengths
        if old == new:
            return f"changed     {', '.join(self.changes)}, from step {self.step} on"
        how = (
            "not as if asked for from the beginning:"
            if self.differs
            else "as if asked for from the beginning"
        )
        return "\n  ".join((f"extended    from {old} to {new} updates, {how}", *self.differs, *self.notes))

    def record(self) -> dict[str, Any]:
        """What environment.json notes."""
        changed = {path: list(pair) for path, pair in self.changes.items()}
        return {
            "step": self.step,
            "changed": changed,
            "updates": list(self.lengths),
            "exact": not self.differs,
        }


def extension(
    plan: Plan, old: Settings, changes: Changes, progress: Mapping[str, Any], where: str
) -> Extension:
    """What the changes of a config mean for a run that stands at `progress`."""
    assert plan.steps is not None
    before = replace(plan, settings=replace(plan.settings, trainer=old.trainer))
    assert before.steps is not None
    step, lengths = int(progress.get("step", 0)), (before.steps, plan.steps)
    found = Extension(plan.settings, changes, step, lengths)
    if not set(LENGTH) & set(changes):
        return found
    trainer = plan.settings.trainer
    asked = f"trainer.epochs={_given(trainer.epochs)} trainer.steps={_given(trainer.steps)}"
    if lengths[1] < step:
        raise PegboardError(
            f"{where} has made {step} updates, and {asked} asks for {lengths[1]}: a run is not made shorter"
        )
    if lengths[1] == lengths[0] and step >= lengths[0]:
        raise PegboardError(
            f"{where} has made all of its {step} updates, and {asked} asks for no more\n"
            "of the two the one that is reached first ends a run; null leaves it to the other"
        )
    if (stopped := progress.get("stopped")) and lengths[1] > step:
        raise PegboardError(
            f"{where} was ended at step {step} by {stopped}: a run asked for {lengths[1]} updates would have "
            f"ended there too\na new run from its weights: model.weights={where}"
        )
    if lengths[0] != lengths[1]:
        _compare(before, plan, progress, found)
    return found


def _given(value: int | None) -> str:
    return "null" if value is None else str(value)


def _compare(before: Plan, plan: Plan, progress: Mapping[str, Any], found: Extension) -> None:
    """Find in what the updates so far, and the records of them, are not those of a run of the new length."""
    asked: set[str] = set()

    class Noting(Context):
        """Notes which parts ask how long the run is."""

        def __getattribute__(self, name: str) -> Any:
            if name in ("steps", "epochs"):
                asked.add(object.__getattribute__(self, "key"))
            return object.__getattribute__(self, name)

    try:
        short, long = assemble(before, "meta"), assemble(plan, "meta", kind=Noting)
    except Exception:  # a part that cannot be built without numbers
        short, long = assemble(before, "cpu"), assemble(plan, "cpu", kind=Noting)
    found.differs += _schedules(short, long, found)
    found.differs += [
        f"{key} was built for a run of {found.lengths[0]} updates, and asks how many there are"
        for key in sorted(asked - {"optimizer.schedule"})
        if found.step
    ]
    inside, epoch = int(progress.get("position", 0)), int(progress.get("epoch", 0))
    ended = 0 < found.lengths[0] <= found.step  # else it was killed before its last evaluation
    found.differs += long.stepping.inexact(found.step, bool(inside) and ended)
    if ended and (inside or epoch % plan.settings.trainer.eval_every):
        where = f"the evaluation at step {found.step}, where the run ended"
        judges = [placed.key for placed in plan.order.get("after_eval", ())]
        if judges:
            found.differs.append(f"{', '.join(judges)} saw {where}")
        else:
            found.notes.append(f"the weights are the same; metrics.jsonl has besides {where}")


def _schedules(short: Assembly, long: Assembly, found: Extension) -> list[str]:
    """A line for each player whose rates up to now were not those of a run of the new length."""
    lines = []
    for old, new in zip(short.kits, long.kits, strict=True):
        if old.schedule is None or new.schedule is None:
            continue
        step = next((s for s in range(found.step) if not _same(old.schedule(s), new.schedule(s))), None)
        if step is not None:
            player = f" of player {old.player.name!r}" if len(short.kits) > 1 else ""
            last = max(found.step - 1, 0)
            lines.append(
                f"optimizer.schedule{player} depends on the length of the run: step {step} had the factor "
                f"{old.schedule(step):.6g}, and in a run of {found.lengths[1]} updates has "
                f"{new.schedule(step):.6g}; the factor goes from {old.schedule(last):.4g} at step {last} to "
                f"{new.schedule(found.step):.4g} at step {found.step}, and on as in a run of "
                f"{found.lengths[1]}"
            )
    return lines


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def refuse_inexact(found: Extension, where: str) -> None:
    """Refuse what would not end as a run that was asked for so from the beginning."""
    old, new = found.lengths
    if found.differs:
        raise PegboardError(
            "\n  ".join(
                (
                    f"{where} cannot go on from {old} to {new} updates as if asked for from the beginning:",
                    *found.differs,
                )
            )
            + "\nto go on all the same, as said above: --inexact (in Python: inexact=True)"
            + "\nto have them exactly, train anew, without the run"
        )


def write_changes(folder: Path, found: Extension, claim: Claim) -> None:
    """Put the changed config into a run folder, from which it goes on from now on."""
    written = to_yaml(found.settings.plain)
    environment = read_object(folder / ENVIRONMENT) or {}
    known = read_object(folder / ORIGINS) or {}
    fresh = origins(found.settings)
    if found.lengths[0] != found.lengths[1]:
        (folder / SUMMARY).unlink(missing_ok=True)  # the run is not finished any more
    write_text(folder / CONFIG, written)
    write_json(folder / ENVIRONMENT, environment | noted(environment, found, written))
    write_json(
        folder / ORIGINS,
        {p: fresh[p] if p in found.changes else known.get(p, fresh[p]) for p in fresh},
    )
    claim.rewrite(found.text)


def noted(environment: Mapping[str, Any], found: Extension, written: str) -> dict[str, Any]:
    """What environment.json says of a changed config."""
    before = environment.get("changes")
    return {
        "config": hashlib.sha256(written.encode()).hexdigest(),
        "changes": [
            *(before if isinstance(before, list) else ()),
            json.loads(json.dumps(found.record(), default=str)),
        ],
    }
