"""Going on with a run from its newest whole checkpoint, on the data that it was trained with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config.check import check
from .engine import checkpoint
from .engine.precision import choose_device
from .errors import PegboardError
from .loading import read_saved
from .planning import Plan, make_plan
from .provenance import comparable, data_changes, data_record
from .recorded import read_object, refuse_links
from .report.console import Console
from .run import MetricsFile, claimed, write_json
from .spec_names import from_json
from .training import assemble_run, carry_out, codec_files, fitting, prepared

ENVIRONMENT = "environment.json"


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """How a run is taken up again."""

    local: Sequence[str | Path] = ()  # Python files that its config names as plugins, and may run
    other_data: bool = False  # go on where the data is not that of the run


def resume_run(folder: Path, console: Console, how: Resumption) -> int:
    """Go on from the newest whole checkpoint of a run; from the beginning, where there is none yet.

    Returns what `carry_out` does.
    """
    refuse_links(folder)
    settings = check(read_saved(folder / "config.yaml", how.local), begun=True)
    device = choose_device(settings.trainer.device)
    checkpoints, metrics = folder / "checkpoints", folder / "metrics.jsonl"
    with prepared(settings, device) as precision, claimed(folder) as text:
        checkpoint.recover(checkpoints)
        anew = not checkpoint.history(checkpoints)
        where, manifest = (folder, {}) if anew else checkpoint.find_whole(folder, console.warn)
        plan = make_plan(settings, read=True, quiet=console.quiet)
        compare_data(plan, folder, console, how, manifest)
        _compare_files(plan, folder, console)
        assembly = assemble_run(plan, device, folder, console, anew)
        if anew:
            metrics.unlink(missing_ok=True)
            return carry_out(assembly, precision, folder, console, text)
        if plan.fingerprint() != manifest.get("plugins"):
            then, now = manifest.get("plugins"), plan.fingerprint()
            console.warn(f"plugins differ from those of the run: {then} then, {now} now")
        weights = checkpoint.read_weights(where / checkpoint.WEIGHTS)
        checkpoint.fit_weights(assembly.model, weights, True, str(where))
        state = checkpoint.read_state(where)
        with fitting(f"{where} or {metrics.name}"):
            progress = state["progress"]
            # A process killed right after a save had no time to move the links.
            checkpoint.point(checkpoints, "last", where)
            best = checkpoints / f"step-{progress['best_step']:08d}"
            if progress["best"] is not None and best.is_dir():
                checkpoint.point(checkpoints, "best", best)
            rows = MetricsFile.rewind(metrics, progress["logged"])
        return carry_out(assembly, precision, folder, console, text, rows, state)


def compare_data(
    plan: Plan, folder: Path, console: Console, how: Resumption, manifest: Mapping[str, Any]
) -> None:
    """Refuse data that is not that of the run; where it is meant, the change is noted in environment.json."""
    assert plan.splits is not None
    path = folder / ENVIRONMENT
    environment = read_object(path)
    if environment is None:
        return  # whoever needs it says what is wrong with it
    changes = environment.get("other_data")
    step = manifest.get("step", 0)
    then: Any = environment.get("data")
    if isinstance(changes, list) and changes and isinstance(changes[-1], dict):
        then = changes[-1].get("now")  # the run has gone on with other data before
    then = then if isinstance(then, dict) else {}
    now = data_record(plan.splits)
    differences = [*_spec_change(plan, manifest), *data_changes(then, now)]
    if differences and not how.other_data:
        what = f"the data is not that of the run {folder}, which stands at step {step}:"
        raise PegboardError(
            "\n  ".join((what, *differences))
            + "\nput the data, or `data` in config.yaml, back as they were; where the other data is meant, "
            f"go on with: {shlex.join(['pegboard', 'resume', str(folder), '--other-data'])} "
            f"(in Python: other_data=True), and {ENVIRONMENT} notes the change"
        )
    if differences:
        environment["other_data"] = [
            *(changes if isinstance(changes, list) else ()),
            {"step": step, "then": then, "now": now},
        ]
        write_json(path, environment)
        console.warn("\n  ".join((f"from step {step} on the run goes on with other data:", *differences)))
    elif not comparable(then, now):
        sizes = "as many samples as" if then.get("samples") else "perhaps not the data of"
        console.warn(
            f"{path} has no fingerprint that the data can be compared by, as in runs of older versions: "
            f"it has {sizes} the run"
        )


def _spec_change(plan: Plan, manifest: Mapping[str, Any]) -> list[str]:
    """A line where the data holds other things than when the checkpoint was written."""
    registry, owner = plan.settings.registry, plan.settings.data.entry.plugin.dist
    assert registry is not None  # of settings that `check` made
    names = registry.specs
    try:
        spec = from_json(manifest["spec"], lambda name, keys: names.find(name, keys, owner))
    except (AttributeError, KeyError, TypeError, ValueError):
        return []  # there is none yet, or its plugin is not there: the fingerprint tells
    return [] if spec == plan.spec else [f"it holds: {spec} then, {plan.spec} now"]


def _compare_files(plan: Plan, folder: Path, console: Console) -> None:
    """Tell where a data set gives other symbols than those that the run has learned."""
    for name, contents in codec_files(plan).items():
        if (folder / name).is_file() and (folder / name).read_bytes() != contents:
            console.warn(
                f"{folder / name} is not what the data set keeps now: samples may be read differently"
            )
