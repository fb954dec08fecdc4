"""Going on with a run from its newest whole checkpoint, on the data that it was trained with."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import PegboardError
from ..base.files import point, write_json
from ..config.check import check
from ..config.dump import to_yaml
from ..config.nodes import Settings
from ..contract.specs import DataSpec
from ..engine.precision import choose_device
from ..inference.loading import read_saved
from ..planning.plan import Assembly, Plan, make_plan
from ..preview.explain import preview
from ..registry.spec_names import from_json
from ..report.console import Console
from ..store import checkpoint
from ..store.names import CHECKPOINTS, CONFIG, ENVIRONMENT, METRICS, WEIGHTS
from ..store.run_folder import MetricsFile, claimed, make_folder, new_name
from ..store.run_reader import fold_count, fold_folder, not_a_run, read_object, refuse_links
from .extend import (
    Changes,
    Extension,
    changes_between,
    extension,
    moves_data,
    noted,
    refuse_changes,
    refuse_inexact,
    write_changes,
)
from .provenance import comparable, data_changes, data_record
from .training import assemble_run, carry_out, codec_files, explained_plan, first_files, fitting, prepared

SHOWN = 60  # characters of a value of a spec in a message


class Newest(NamedTuple):
    """The newest whole checkpoint of a run."""

    where: Path
    manifest: Mapping[str, Any]
    state: Mapping[str, Any]
    progress: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """How a run is taken up again."""

    local: Sequence[str | Path] = ()  # Python files that its config names as plugins, and may run
    overrides: Sequence[str] = ()  # values to change, as trainer.epochs=40
    other_data: bool = False  # go on where the data is not that of the run
    inexact: bool = False  # go on where it will not end as if it had been asked for so from the beginning


def resume_run(folder: Path, console: Console, how: Resumption) -> int:
    """Go on from the newest whole checkpoint of a run; from the beginning, where there is none yet.

    Returns what `carry_out` does.
    """
    refuse_links(folder)
    if how.overrides:
        _refuse_fold(folder)
        write_extension(find_extension(folder, console, how), folder, console)
    settings = check(read_saved(folder / CONFIG, how.local), begun=True)
    device = choose_device(settings.trainer.device)
    with prepared(settings, device), claimed(folder) as claim:
        checkpoint.recover(folder / CHECKPOINTS)
        newest = _newest(folder, console)
        plan = make_plan(settings, read=True, quiet=console.quiet)
        compare_data(plan, folder, console, how, newest)
        _compare_files(plan, folder, console)
        assembly = assemble_run(plan, device, folder, console, newest is None)
        if newest is None:
            (folder / METRICS).unlink(missing_ok=True)
            return carry_out(assembly, folder, console, claim.text)
        return _go_on(assembly, folder, console, claim.text, newest)


def _newest(folder: Path, console: Console) -> Newest | None:
    """The newest whole checkpoint of a run; None where it has not begun."""
    if not checkpoint.history(folder / CHECKPOINTS):
        return None
    where, manifest = checkpoint.find_whole(folder, console.warn)
    state = checkpoint.read_state(where)
    with fitting(str(where)):
        return Newest(where, manifest, state, dict(state["progress"]))


def _go_on(assembly: Assembly, folder: Path, console: Console, text: str, newest: Newest) -> int:
    """Carry out the rest of a run."""
    checkpoints, where, progress = folder / CHECKPOINTS, newest.where, newest.progress
    then, now = newest.manifest.get("plugins"), assembly.plan.fingerprint()
    if then != now:
        console.warn(f"plugins differ from those of the run: {then} then, {now} now")
    weights = checkpoint.read_weights(where / WEIGHTS)
    checkpoint.fit_weights(assembly.model, weights, True, str(where))
    with fitting(f"{where} or {METRICS}"):
        # A process killed right after a save had no time to move the links.
        point(checkpoints / "last", where.name)
        if (best := _best(checkpoints, progress)) is not None:
            point(checkpoints / "best", best.name)
        rows = MetricsFile.rewind(folder / METRICS, progress["logged"])
    return carry_out(assembly, folder, console, text, rows, newest.state)


def _best(checkpoints: Path, progress: Mapping[str, Any]) -> Path | None:
    best = checkpoints / f"step-{progress['best_step']:08d}"
    return best if progress["best"] is not None and best.is_dir() else None


def _refuse_fold(folder: Path) -> None:
    """One fold alone is not extended: the figures of all would not go together."""
    place = folder.resolve()
    count = fold_count(place.parent)
    if place in [fold_folder(place.parent, number) for number in range(count)]:
        raise PegboardError(
            f"{folder} is one of the {count} folds of a cross-validation, which are changed together\n"
            f"name all of them: {place.parent}"
        )


def find_extension(folder: Path, console: Console, how: Resumption) -> Extension:
    """What changes in a run by the overrides, once nothing speaks against it; nothing is written."""
    old = check(read_saved(folder / CONFIG, how.local), begun=True)
    new = check(read_saved(folder / CONFIG, how.local, how.overrides), begun=True)
    changes = changes_between(old, new)
    refuse_changes(changes, folder, how.overrides)
    with prepared(new, choose_device(new.trainer.device)), claimed(folder):
        checkpoint.recover(folder / CHECKPOINTS)
        newest = _newest(folder, console)
        plan = make_plan(new, read=True, quiet=console.quiet)
        known = compare_data(plan, folder, console, how, newest, note=False)
        _refuse_unknown(changes, known, folder, how)
        found = extension(plan, old, changes, newest.progress if newest else {}, str(folder))
        found.text = preview(plan).text
    if not how.inexact:
        refuse_inexact(found, str(folder))
    return found


def _refuse_unknown(changes: Changes, known: bool, folder: Path, how: Resumption) -> None:
    """Data that is read from elsewhere has to be shown to be the same."""
    if moves_data(changes) and not known and not how.other_data:
        raise PegboardError(
            f"{folder / ENVIRONMENT} has no fingerprint to tell whether the data is still the same\n"
            "where it is, or is meant to be another: --other-data (in Python: other_data=True)"
        )


def write_extension(found: Extension, folder: Path, console: Console) -> None:
    """Put the changes into the run folder, which goes on with them from now on."""
    if not found.changes:
        return
    with claimed(folder) as claim:
        write_changes(folder, found, claim)
    (console.warn if found.differs else console.say)(found.say())


def continue_run(settings: Settings, origin: Path, root: Path, console: Console, how: Resumption) -> Path:
    """Go on with a run in a new folder, by a config that differs in nothing but what may change."""
    if not (origin / CONFIG).is_file():
        raise PegboardError(not_a_run(origin))
    if folds := fold_count(origin):
        raise PegboardError(
            f"{origin} is a cross-validation of {folds} runs, which go on in their own folders: "
            f"{shlex.join(['pegboard', 'resume', str(origin), *how.overrides])}"
        )
    refuse_links(origin)
    old = check(read_saved(origin / CONFIG, settings.plugins.local), begun=True)
    device = choose_device(settings.trainer.device)
    folder = new_name(root, settings.name)
    with prepared(settings, device):
        newest = _newest(origin, console)
        if newest is None:
            raise PegboardError(f"{origin} has no checkpoint to go on from: leave --from out")
        plan = make_plan(settings, read=True, quiet=console.quiet)
        changes = {
            path: pair
            for path, pair in changes_between(old, plan.settings).items()
            if path != "name" and not path.startswith("plugins.")
        }
        refuse_changes(changes, origin, how.overrides)
        alone = replace(how, overrides=())  # they are of a config of its own
        known = compare_data(plan, origin, console, alone, newest, note=False)
        _refuse_unknown(changes, known, origin, how)
        found = extension(plan, old, changes, newest.progress, str(origin))
        if not how.inexact:
            refuse_inexact(found, str(origin))
        assembly = assemble_run(plan, device, folder, console, False)
        text = explained_plan(plan, console)
        make_folder(folder, _first_files(plan, device, text, found, origin), fill=_copier(origin, newest))
        (console.warn if found.differs else console.say)(found.say())
        with claimed(folder):
            copied = newest._replace(where=folder / CHECKPOINTS / newest.where.name)
            compare_data(plan, folder, Console(quiet=True), how, newest)
            _go_on(assembly, folder, console, text, copied)
    return folder


def _first_files(
    plan: Plan, device: str, text: str, found: Extension, origin: Path
) -> dict[str, str | bytes]:
    """The first files of a run that goes on from another: its data is that of the other one."""
    files: dict[str, str | bytes] = {**first_files(plan, device, text), **codec_files(plan)}
    environment, before = json.loads(files[ENVIRONMENT]), read_object(origin / ENVIRONMENT) or {}
    environment |= {name: before[name] for name in ("data", "other_data", "changes") if name in before}
    environment |= noted(before, found, to_yaml(plan.settings.plain))
    environment["from"] = {"run": origin.resolve().name, "step": found.step}
    return files | {ENVIRONMENT: json.dumps(environment, indent=1) + "\n"}


def _copier(origin: Path, newest: Newest) -> Callable[[Path], None]:
    """Copies the newest and the best checkpoint of a run, and its rows so far, into another folder."""

    def fill(part: Path) -> None:
        checkpoints = part / CHECKPOINTS
        best = _best(origin / CHECKPOINTS, newest.progress)
        for name in {newest.where.name} | ({best.name} if best is not None else set()):
            shutil.copytree(origin / CHECKPOINTS / name, checkpoints / name)
        if (origin / METRICS).is_file():
            shutil.copyfile(origin / METRICS, part / METRICS)

    return fill


def compare_data(
    plan: Plan, folder: Path, console: Console, how: Resumption, newest: Newest | None, note: bool = True
) -> bool:
    """Refuse data that is not that of the run; where it is meant, the change is noted in environment.json.

    Returns whether its fingerprint could be compared.
    """
    manifest = {} if newest is None else newest.manifest
    assert plan.splits is not None
    path = folder / ENVIRONMENT
    environment = read_object(path)
    if environment is None:
        return False  # whoever needs it says what is wrong with it
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
        words = [*how.overrides, *(word for path in how.local for word in ("--local", str(path)))]
        raise PegboardError(
            "\n  ".join((what, *differences))
            + "\nput the data, or `data` in config.yaml, back as they were; where the other data is meant, "
            f"go on with: {shlex.join(['pegboard', 'resume', str(folder), *words, '--other-data'])} "
            f"(in Python: other_data=True), and {ENVIRONMENT} notes the change"
        )
    if differences and note:
        environment["other_data"] = [
            *(changes if isinstance(changes, list) else ()),
            {"step": step, "then": then, "now": now},
        ]
        write_json(path, environment)
        console.warn("\n  ".join((f"from step {step} on the run goes on with other data:", *differences)))
    elif note and not comparable(then, now):
        sizes = "as many samples as" if then.get("samples") else "perhaps not the data of"
        console.warn(
            f"{path} has no fingerprint that the data can be compared by, as in runs of older versions: "
            f"it has {sizes} the run"
        )
    return comparable(then, now)


def _spec_change(plan: Plan, manifest: Mapping[str, Any]) -> list[str]:
    """A line where the data holds other things than when the checkpoint was written."""
    registry, owner = plan.settings.registry, plan.settings.data.entry.plugin.dist
    assert registry is not None  # of settings that `check` made
    names = registry.specs
    try:
        spec = from_json(manifest["spec"], lambda name, keys: names.find(name, keys, owner))
    except (AttributeError, KeyError, TypeError, ValueError):
        return []  # there is none yet, or its plugin is not there: the fingerprint tells
    if spec == plan.spec:
        return []
    if str(spec) != str(plan.spec):
        return [f"it holds: {spec} then, {plan.spec} now"]
    then, now = (_values(one) for one in (spec, plan.spec))
    differ = [
        f"{key} {_short(then[key])} then, {_short(now[key])} now" for key in then if then[key] != now[key]
    ]
    return [f"it holds: {spec}, with other values: {'; '.join(differ)}"]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


def _values(spec: DataSpec) -> dict[str, Any]:
    """The fields of the specs of the inputs and of the target, by name; a text of them may leave some out."""
    named = {f"input {number}": one for number, one in enumerate(spec.inputs)}
    every = {**named, "target": spec.target} if spec.target is not None else named
    values = {f"{of}: {f.name}": getattr(one, f.name) for of, one in every.items() for f in fields(one)}
    return {**values, "names": spec.names}


def _compare_files(plan: Plan, folder: Path, console: Console) -> None:
    """Tell where a data set gives other symbols than those that the run has learned."""
    for name, contents in codec_files(plan).items():
        if (folder / name).is_file() and (folder / name).read_bytes() != contents:
            console.warn(
                f"{folder / name} is not what the data set keeps now: samples may be read differently"
            )
