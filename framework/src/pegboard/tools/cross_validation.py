"""Cross-validation: a run for each fold, in one folder, and what their figures come to together."""

from __future__ import annotations

import json
import math
import shlex
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..base.files import write_json
from ..config.check import check
from ..config.nodes import Origin, Settings
from ..contract.results import RunInfo
from ..contract.specs import DataSpec
from ..data import say_fold
from ..engine.loop import Interrupted
from ..engine.precision import choose_device
from ..inference.loading import read_saved
from ..planning.plan import make_plan
from ..report.console import Console, split_place
from ..report.trackers import Dispatch
from ..run.diagnosis import Diagnosis
from ..run.finish import judged_lines, reference_line
from ..run.interruption import Ended
from ..run.resume import Resumption, compare_data, find_extension, resume_run, write_extension
from ..run.training import PLAIN, Manner, begin_run, identity, make_parent, make_trackers, run_plan
from ..store.names import CONFIG, ENVIRONMENT, METRICS, PAGE, SUMMARY
from ..store.run_folder import MetricsFile, claimed
from ..store.run_reader import fold_count, fold_folder, read_object, refuse_links, write_report

SHARED = "shared"  # prefix of figures of val that all folds have at one epoch
LEVEL = 0.95  # of the interval in which the mean lies
DONE = ("finished", "stopped")
_PLAIN = Resumption()


def train(settings: Settings, root: Path, console: Console, manner: Manner = PLAIN) -> Path:
    """Train in a new folder below `root`: one run, or one for each fold where the config says so."""
    if settings.trainer.folds is None or settings.trainer.fold is not None:
        return run_plan(settings, root, console, manner)
    folder = make_parent(settings, root, console.quiet, manner.strict)
    with claimed(folder) as claim:
        _carry_out(settings, folder, console, claim.text, manner=manner)
    return folder


def resume(folder: Path, console: Console, how: Resumption = _PLAIN) -> None:
    """Go on with a run, or with the folds of a cross-validation that are not finished."""
    if not fold_count(folder):
        resume_run(folder, console, how)
        return
    refuse_links(folder)
    if how.overrides:
        _extend(folder, console, how)
        how = replace(how, overrides=())
    settings = check(read_saved(folder / CONFIG, how.local), begun=True)
    with claimed(folder) as claim:
        if not _done(folder):  # folds that have not begun are compared with nothing else
            compare_data(make_plan(settings, read=True, quiet=console.quiet), folder, console, how, None)
        _carry_out(settings, folder, console, claim.text, how)


def _extend(folder: Path, console: Console, how: Resumption) -> None:
    """Change all folds that have begun, and the cross-validation itself; none where one cannot be."""
    places = [fold_folder(folder, number) for number in range(fold_count(folder))]
    begun = [place for place in places if (place / CONFIG).is_file()]
    for place in begun:
        refuse_links(place)
    found = [(place, find_extension(place, console, how)) for place in begun]
    whole = find_extension(folder, console, how)
    quiet = Console(quiet=True)
    for place, one in (*found, (folder, whole)):
        write_extension(one, place, quiet)
    shown = next((one for _, one in found if one.differs), found[0][1] if found else whole)
    (console.warn if shown.differs else console.say)(shown.say())
    console.say(
        ", ".join(f"{place.name} from step {one.step}" for place, one in found) or "no fold has begun"
    )


def _carry_out(
    settings: Settings,
    folder: Path,
    console: Console,
    text: str,
    how: Resumption = _PLAIN,
    manner: Manner = PLAIN,
) -> None:
    """Every fold that is not finished yet, one after the other; then their means."""
    count = settings.trainer.folds
    assert count is not None
    before = read_object(folder / SUMMARY) or {}
    if before.get("status") in DONE:
        console.say(f"all {count} folds are finished")
        _show(before, folder, console)
        return
    own = getattr(settings.data.entry.part, "folds", False)
    ended: dict[str, Any] = {"status": "failed"}
    named = [word for path in settings.plugins.local for word in ("--local", path)]
    go_on = shlex.join(["pegboard", "resume", str(folder), *named])
    at = 0
    try:
        for at in range(count):
            place = fold_folder(folder, at)
            if _done(place):
                continue
            console.say(say_fold((at, count), own))
            late = _fold(settings, place, at, console, how, manner)
            if late and at + 1 < count:
                raise Interrupted("", late)
        ended = summarize(folder, count)
    except (Interrupted, Ended) as error:  # in the steps of a fold, or between those of two
        ended["status"] = "interrupted"
        raise Interrupted(
            f"stopped by a signal in fold {at} of {count}, saved; go on with: {go_on}", error.signal
        ) from None
    except KeyboardInterrupt:
        ended["status"] = "interrupted"
        raise
    except Exception as error:
        ended["why"] = f"fold {at}: {type(error).__name__}: {error}".split("\n")[0]
        console.warn(f"fold {at} of {count} failed; once that is mended, all go on with: {go_on}")
        raise
    finally:
        write_json(folder / SUMMARY, ended)
    page = write_report(folder, text, ended)
    _show(ended, folder, console)
    console.say(f"report      {page}")
    _tell_trackers(settings, folder, console, text, ended)


def _done(folder: Path) -> bool:
    """True if a run, or all folds of a cross-validation, came to their end."""
    return (read_object(folder / SUMMARY) or {}).get("status") in DONE


def _fold(
    settings: Settings, place: Path, number: int, console: Console, how: Resumption, manner: Manner
) -> int:
    """Carry one fold out, or go on with it; returns the signal that came too late to interrupt it, or 0."""
    if (place / CONFIG).is_file():
        return resume_run(place, console, how)
    trainer = {**settings.plain["trainer"], "fold": number}
    one = replace(
        settings,
        trainer=replace(settings.trainer, fold=number),
        plain={**settings.plain, "trainer": trainer},
        origins={**settings.origins, "trainer.fold": Origin(file=str(place.parent / CONFIG))},
    )
    return begin_run(one, choose_device(settings.trainer.device), place, console, manner, latest=False)


def summarize(folder: Path, count: int) -> dict[str, Any]:
    """The summary of all folds: of every figure that they share, the values, the mean and its interval."""
    found = [read_object(fold_folder(folder, number) / SUMMARY) or {} for number in range(count)]
    described = _described([one["figures"] for one in found])
    rows = [MetricsFile.read(fold_folder(folder, number) / METRICS) for number in range(count)]
    epoch, shared = shared_epoch(found, rows)
    described |= {f"{SHARED}/{name}": describe(values) for name, values in shared.items()}
    summary: dict[str, Any] = {
        "status": "finished",
        "folds": count,
        "seconds": round(sum(float(one.get("seconds", 0.0)) for one in found), 3),
        "figures": {name: of["mean"] for name, of in described.items()},
        "statistics": described,
        **({} if epoch is None else {"shared_epoch": epoch, "monitor": found[0]["monitor"]}),
    }
    if all("diagnosis" in one for one in found):
        summary["diagnosis"] = asdict(judge([one["diagnosis"] for one in found]))
    if all("baselines" in one for one in found):
        summary["baselines"] = _baselines([one["baselines"] for one in found], summary["figures"])
    if all("gap" in one.get("reference", {}) for one in found):
        summary["reference"] = _beside([one["reference"] for one in found])
    return summary


def shared_epoch(
    found: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Mapping[str, Any]]]
) -> tuple[float | None, dict[str, list[float]]]:
    """The epoch that is best in the mean of the monitored figure over the folds, and figures of val there.

    `found` are the summaries of the folds and `rows` what they measured; the first of epochs that are equal.
    """
    monitor, mode = found[0].get("monitor", ""), found[0].get("mode")
    if not str(monitor).startswith("val/") or mode is None:
        return None, {}
    measured = [{row["epoch"]: row for row in own if monitor in row} for own in rows]
    epochs = sorted(epoch for epoch in measured[0] if all(epoch in one for one in measured))
    means = {epoch: statistics.fmean(one[epoch][monitor] for one in measured) for epoch in epochs}
    known = [epoch for epoch in epochs if math.isfinite(means[epoch])]
    if not known:
        return None, {}
    best = (max if mode == "max" else min)(known, key=means.__getitem__)
    names = [name for name in measured[0][best] if name.startswith("val/")]
    return best, {n.removeprefix("val/"): [float(one[best][n]) for one in measured] for n in names}


def _described(figures: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    names = [name for name in figures[0] if all(name in others for others in figures)]
    return {name: describe([float(one[name]) for one in figures]) for name in names}


def judge(found: Sequence[Mapping[str, Any]]) -> Diagnosis:
    """The diagnosis of most folds, with the mean of their gaps; no verdict where most have none alike."""
    gaps = [one["gap"] for one in found]
    gap = None if None in gaps else statistics.fmean(gaps)
    counts = Counter(one["verdict"] for one in found).most_common()
    verdict, times = counts[0]
    if verdict is None and times == len(found):
        return Diagnosis(gap, None, found[0]["rule"])
    if verdict is not None and 2 * times > len(found):
        others = "".join(f", {other or 'no verdict'} in {n}" for other, n in counts[1:])
        return Diagnosis(gap, verdict, f"in {times} of {len(found)} folds{others}")
    said = ", ".join(f"{one or 'no verdict'} in {n}" for one, n in counts)
    return Diagnosis(gap, None, f"{said} of {len(found)} folds")


def _baselines(found: Sequence[Mapping[str, Any]], figures: Mapping[str, float]) -> dict[str, Any]:
    """Rules without learning: the means of their figures, and the model's mean error as a share of theirs."""
    shared = [name for name in found[0]["figures"] if all(name in one["figures"] for one in found)]
    means = {
        name: {
            figure: of["mean"] for figure, of in _described([one["figures"][name] for one in found]).items()
        }
        for name in shared
    }
    figure = str(found[0]["figure"])
    ratios = {
        n: figures[figure] / of[figure] for n, of in means.items() if figure in figures and of.get(figure)
    }
    return {"figures": means, "figure": figure, "ratios": ratios}


def _beside(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The optima of the folds: the means of what was reached, of what could be, and of their figures."""
    means = {name: statistics.fmean(one[name] for one in found) for name in ("objective", "optimum", "gap")}
    figures = {name: of["mean"] for name, of in _described([one["figures"] for one in found]).items()}
    about = {name: found[0][name] for name in ("name", "formula")}
    return {**about, **means, "figures": figures}


def describe(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard deviation and the interval of the mean of figures that differ by chance alone."""
    count, mean = len(values), statistics.fmean(values)
    deviation = statistics.stdev(values) if math.isfinite(mean) else math.nan
    half = quantile(LEVEL, count - 1) * deviation / math.sqrt(count)
    return {"values": list(values), "mean": mean, "std": deviation, "interval": [mean - half, mean + half]}


def quantile(level: float, freedom: int) -> float:
    """The t between whose negative and itself Student's distribution has this share of its mass."""
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _mass(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _mass(angle: float, freedom: int) -> float:
    """The mass between -t and t = sqrt(freedom) tan(angle): Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    y, x = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = x if odd else 1.0
    total = term if freedom > 1 else 0.0
    for n in range(2 + odd, freedom - 1, 2):
        term *= x**2 * (n - 1) / n
        total += term
    return 2 / math.pi * (angle + y * total) if odd else y * total


def _show(summary: Mapping[str, Any], folder: Path, console: Console) -> None:
    """The statistics, the optimum beside them, and what most folds are judged."""
    found, reference = summary.get("statistics", {}), summary.get("reference", {})
    names = sorted(found, key=split_place)
    rows = [[name, found[name]["mean"], found[name]["std"], *found[name]["interval"]] for name in names]
    columns = ["figure", "mean", "std", "from", "to"]
    baselines = summary.get("baselines", {})
    if reference:
        columns.append("optimum")
        rows = [[*row, reference["figures"].get(row[0], "")] for row in rows]
    title = f"{summary['folds']} folds: mean, standard deviation, and the 95 % interval of the mean"
    console.table(title, columns, rows)
    if "shared_epoch" in summary:
        console.say(
            f"{SHARED}      every fold at epoch {summary['shared_epoch']:g}, which is best by the mean of "
            f"{summary['monitor']} over the folds; val is at the best epoch of each"
        )
    if "diagnosis" in summary:
        console.say(judged_lines(Diagnosis(**summary["diagnosis"])))
    if baselines:
        shares = ", ".join(f"{ratio:.3g} of {name}" for name, ratio in baselines["ratios"].items())
        console.say(f"baselines   mean {baselines['figure']}: {shares}")
    if reference:
        console.say(reference_line(reference))
    console.say(f"run folder  {folder}")


def _tell_trackers(
    settings: Settings, folder: Path, console: Console, text: str, summary: Mapping[str, Any]
) -> None:
    """A run without rows for the means, beside the folds in their group."""
    spec, device = settings.spec or DataSpec(), choose_device(settings.trainer.device)
    dispatch = Dispatch(make_trackers(settings, spec, device, folder), console.warn)
    name = identity(folder)["id"]
    info = RunInfo(
        folder=folder,
        name=settings.name,
        id=name,
        config=settings.plain,
        plan=text,
        environment=json.loads((folder / ENVIRONMENT).read_text("utf-8")),
        warn=console.warn,
        group=name,
    )
    dispatch.send("start", info)
    dispatch.send("figure", "report", folder / PAGE)
    dispatch.send("finish", summary["status"], summary)
    dispatch.close()
