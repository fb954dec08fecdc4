"""Carrying out a plan: the run folder, the loop, the last evaluation, and telling everybody."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from ..base.errors import PegboardError, no_memory, system_words
from ..base.files import write_json
from ..base.random_keys import key_seed
from ..config.build_errors import as_config_errors, mistake_of
from ..config.dump import to_yaml
from ..config.errors import ConfigError
from ..config.nodes import Settings
from ..contract.records import Context
from ..contract.results import RunInfo, Splits, Tracker
from ..contract.specs import DataSpec
from ..data import Unreadable, about, data_warnings, place
from ..engine import torch_private
from ..engine.evaluate import Halted
from ..engine.guard import NotFinite
from ..engine.loop import Interrupted, Loop
from ..engine.monitor import choose_monitor
from ..engine.precision import choose_device, choose_precision, full_precision, numeric_settings
from ..inference.loading import load_into
from ..planning.channels_last import lay_out
from ..planning.plan import Assembly, Plan, assemble, build, make_plan
from ..preview.explain import preview
from ..report.console import Console, working
from ..report.trackers import GRACE, SHORT_GRACE, Dispatch
from ..store import checkpoint
from ..store.names import CHECKPOINTS, CONFIG, DATA, ENVIRONMENT, FOLD, METRICS, PLAN, SUMMARY
from ..store.run_folder import MetricsFile, claimed, make_folder, new_name
from .finish import finish, picture_samples, report
from .interruption import signals
from .malloc import kept_heap
from .out_of_memory import explain_shortage, explained
from .provenance import provenance


class Profiling(Protocol):
    """What finds out where the time of a run goes: contexts for its phases, and one for `Loop.run`."""

    def phase(self, name: str) -> AbstractContextManager[Any]: ...
    def steps(self, loop: Loop) -> AbstractContextManager[Any]: ...


class Untimed:
    """Nobody asks where the time goes."""

    def phase(self, name: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def steps(self, loop: Loop) -> AbstractContextManager[Any]:
        return nullcontext()


UNTIMED = Untimed()


@dataclass(frozen=True)
class Manner:
    """How a person wants a run to be carried out, besides what its config says."""

    profile: Profiling = UNTIMED
    strict: bool = False  # what would wait on a GPU is an error, and no warning


PLAIN = Manner()


class Following:
    """Tells the console, metrics.jsonl and the trackers what happens in a run."""

    def __init__(
        self, folder: Path, console: Console, dispatch: Dispatch, profile: Profiling = UNTIMED
    ) -> None:
        self.console, self.dispatch, self.profile = console, dispatch, profile
        self.file = MetricsFile(folder / METRICS)

    def advanced(self, step: int) -> None:
        with self.profile.phase("progress"):
            self.console.advanced(step)

    def row(self, row: Mapping[str, Any]) -> None:
        with self.profile.phase("rows and trackers"):
            self.file.write(row)
            self.console.row(row)
            self.dispatch.send("log", dict(row))

    def saved(self, path: Path, aliases: Sequence[str]) -> None:
        self.dispatch.send("checkpoint", path, tuple(aliases))

    def note(self, text: str) -> None:
        self.console.say(text)

    def working(self, total: int, unit: str) -> AbstractContextManager[Callable[[int], None]]:
        """A progress bar for what comes before the first step; takes how much is done."""
        return nullcontext(lambda done: None) if self.console.quiet else working(total, unit)

    def epoch_ended(self, loop: Loop) -> None:
        """A picture of what the model generates by now, where one is due."""
        every, epoch = loop.settings.trainer.sample_every, loop.progress.epoch
        if every is not None and epoch % every == 0:
            with loop.eval_weights(), self.profile.phase("drawing"):
                picture_samples(loop, self, f"samples-{epoch:04d}", f"samples after epoch {epoch}")


def run_plan(settings: Settings, root: Path, console: Console, manner: Manner = PLAIN) -> Path:
    """Train from the beginning in a new run folder; returns the folder."""
    device = _device(settings)
    folder = new_name(root, settings.name)
    begin_run(settings, device, folder, console, manner)
    return folder


def begin_run(
    settings: Settings,
    device: str,
    folder: Path,
    console: Console,
    manner: Manner = PLAIN,
    latest: bool = True,
) -> int:
    """Train from the beginning in this folder, which is made; returns what `carry_out` does."""
    with prepared(settings, device):
        phase = manner.profile.phase
        with phase("data and plan"):
            plan = make_plan(settings, read=True, quiet=console.quiet)
        for note in plan.settings.notes:
            console.warn(note)
        with phase("model and optimizer"):
            assembly = assemble_run(plan, device, folder, console, anew=True)
        with phase("explain"):
            text = explained_plan(plan, console, manner.strict)
        with phase("run folder"):
            make_folder(folder, {**first_files(plan, device, text), **codec_files(plan)}, latest)
        with claimed(folder):
            return carry_out(assembly, folder, console, text, profile=manner.profile)


def explained_plan(plan: Plan, console: Console, strict: bool = False) -> str:
    """The text of `explain`; what would wait on a GPU is told at the console."""
    shown = preview(plan, strict)
    for warning in shown.warnings:
        console.warn(warning)
    return shown.text


def _device(settings: Settings) -> str:
    """The device that the config asks for."""
    with as_config_errors(settings):
        try:
            return choose_device(settings.trainer.device)
        except PegboardError as error:
            error.part, error.field = "trainer", "device"
            raise


def make_parent(settings: Settings, root: Path, quiet: bool, strict: bool = False) -> Path:
    """A new folder in which runs will stand, once all was checked and planned as for a run."""
    device = _device(settings)
    folder = new_name(root, settings.name)
    with prepared(settings, device):
        plan = make_plan(settings, read=True, quiet=quiet)
        assemble_run(plan, device, folder, Console(quiet=True), anew=True)
        make_folder(folder, first_files(plan, device, preview(plan, strict).text))
    return folder


def first_files(plan: Plan, device: str, text: str) -> dict[str, str]:
    return {CONFIG: to_yaml(plan.settings.plain), PLAN: text, **provenance(plan, device)}


def codec_files(plan: Plan) -> dict[str, bytes]:
    """What the data set keeps to read and write samples without the data, below data/."""
    files = {} if plan.splits is None else plan.splits.files
    if wrong := [name for name in files if not re.fullmatch(r"[\w-][\w.-]*", name)]:
        part = plan.settings.data.entry.part
        raise PegboardError(
            f"data set {part.name!r} names a file {wrong[0]!r}: expected a name without a folder"
        )
    return {f"{DATA}/{name}": contents for name, contents in files.items()}


def identity(folder: Path, fold: int | None = None) -> dict[str, str]:
    """By what trackers know a run: a fold by its cross-validation too, with which they group it."""
    folder = folder.resolve()  # one may be named by a link, as `latest`
    if fold is None or folder.name != f"{FOLD}{fold}":
        return {"id": folder.name}
    return {"id": f"{folder.parent.name}-{folder.name}", "group": folder.parent.name}


@contextmanager
def fitting(what: str) -> Iterator[None]:
    """A file that is whole and says other things than a run writes gives one message."""
    try:
        yield
    except PegboardError:
        raise
    except (AttributeError, LookupError, RecursionError, RuntimeError, TypeError, ValueError) as error:
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        raise PegboardError(f"{what} holds other things than this run needs: {cause}") from error


def assemble_run(plan: Plan, device: str, folder: Path, console: Console, anew: bool) -> Assembly:
    """The objects of a run; one that begins anew starts from saved weights where the config names some."""
    with explained(plan, "the run did not begin"):
        assembly = assemble(plan, device, folder)
    settings, splits = plan.settings, plan.splits
    assert splits is not None

    def start() -> None:
        if anew and settings.weights is not None:
            for line in load_into(assembly.model, settings.weights):
                console.say(f"weights: {line}")

    wrong = []  # said before there is a folder, all at once
    for path, look in (
        ("model.weights", start),
        ("trainer.monitor", lambda: choose_monitor(assembly, splits)),
        ("objective", lambda: assembly.objective.look(splits)),
    ):
        try:
            look()
        except PegboardError as error:
            error.part = error.part or path
            wrong.append(mistake_of(error, settings, plan.path_of))
    if wrong:
        raise ConfigError([m for m in wrong if m is not None], f"config {settings.name!r}")
    torch.manual_seed(key_seed(settings.seed, "train"))
    return assembly


@contextmanager
def prepared(settings: Settings, device: str) -> Iterator[None]:
    """Random streams and torch's switches for a run; both are put back afterwards."""
    if device.startswith("cuda"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it to be deterministic
    devices = [device] if device.startswith("cuda") else []
    switches, absent = numeric_settings(settings.trainer), torch_private.compiler_absent()
    with torch.random.fork_rng(devices=devices), switches, kept_heap(device), absent:
        try:
            yield
        except Exception as error:  # what happens in the loop was told already, with how to go on
            if isinstance(error, PegboardError) or (what := _machine(error)) is None:
                raise
            raise PegboardError(f"the run did not begin: {what}") from error


def carry_out(
    assembly: Assembly,
    folder: Path,
    console: Console,
    text: str,
    previous: Sequence[Mapping[str, Any]] = (),
    state: Mapping[str, Any] | None = None,
    profile: Profiling = UNTIMED,
) -> int:
    """Train, measure and report; the trackers hear of the end, whatever it is.

    Returns the number of a signal that came too late to interrupt it, 0 where none did.
    """
    plan = assembly.plan
    assert plan.splits is not None
    for line in torch_private.gone():
        console.warn(line)
    for line in about(plan.splits):
        console.say(f"data: {line}")
    for line in data_warnings(plan.splits):
        console.warn(f"data: {line}")
    with explained(plan, "the run did not begin"), profile.phase("data to device"):
        splits = _placed(assembly, console)
    full = full_precision(plan, assembly.model)
    precision = choose_precision(plan.settings.trainer.precision, assembly.device, full)
    if precision.why and precision.device != "cpu":
        console.say(f"precision: {precision.name}, {precision.why}")
    with profile.phase("trackers"):
        dispatch = Dispatch(make_trackers(plan.settings, plan.spec, assembly.device, folder), console.warn)
    following = Following(folder, console, dispatch, profile)
    with profile.phase("model and optimizer"):
        loop = Loop(assembly, splits, precision, following, folder)
    if state is not None:
        with explained(plan, "the run did not go on"), fitting("the checkpoint"):
            loop.load_state_dict(state)
    info = RunInfo(
        folder=folder,
        name=plan.settings.name,
        **identity(folder, plan.settings.trainer.fold),
        config=plan.settings.plain,
        plan=text,
        environment=_surroundings(folder, console),
        resumed=state is not None,
        previous=previous,
        warn=console.warn,
    )
    with (
        assembly.stepping.around(),
        signals(loop),
    ):  # to the very end: a second one must not cut off what is said of the first
        dispatch.send("start", info)
        summary: dict[str, Any] = {"status": "failed"}
        grace = GRACE
        try:
            _train(loop, following, summary)
            with profile.phase("report"):
                report(folder, text, summary, following)
        except (Interrupted, Halted, KeyboardInterrupt) as error:
            summary["status"], grace = "interrupted", SHORT_GRACE
            if isinstance(error, Halted):  # after the last save
                raise loop.interrupted() from None
            raise
        except Exception as error:
            summary["why"] = f"{type(error).__name__}: {error}".split("\n")[0]
            if (told := _tell(error, loop)) is not None:
                raise told from error
            raise
        finally:
            console.stop()
            for source in (splits.train, splits.val, splits.test):
                if source is not None:
                    source.close()  # ends processes that read ahead
            with suppress(OSError):  # a full disk must not hide what went wrong before
                write_json(folder / SUMMARY, summary)
            dispatch.send("finish", summary["status"], summary)
            with profile.phase("trackers"):
                dispatch.close(grace, lambda: bool(loop.halt))
            with suppress(OSError):  # it writes what is left, and a full disk has no room for that either
                following.file.close()
    return loop.halt


def _train(loop: Loop, following: Following, summary: dict[str, Any]) -> None:
    """Train and measure; what came of it is added to the summary as it is known."""
    console = following.console
    started, first = time.monotonic(), loop.progress.step
    assert loop.plan.steps is not None
    console.start(loop.plan.steps, first)
    with following.profile.steps(loop):
        why = loop.run()
    seconds = time.monotonic() - started
    summary |= {"why": why, "seconds": round(seconds, 3), "steps": loop.progress.step}
    summary |= loop.stepper.summary()
    summary["steps_per_second"] = round((loop.progress.step - first) / max(seconds, 1e-9), 1)
    console.stop()
    with following.profile.phase("last evaluation"):
        summary |= finish(loop, following, loop.folder, why)
    summary["status"] = "stopped" if why else "finished"


def _placed(assembly: Assembly, console: Console) -> Splits:
    """The data where the run wants it, in the layout that it wants."""
    splits = assembly.plan.splits
    assert splits is not None
    if where := place(splits, assembly.device):
        console.say(f"data: {where}")
    if assembly.channels_last:
        lay_out(splits)
    return splits


def make_trackers(settings: Settings, spec: DataSpec, device: str, folder: Path) -> dict[str, Tracker]:
    """Those that the config names, by their keys."""
    return {
        key: build(chosen, Context(spec=spec, device=device, key=key, folder=folder))
        for key, chosen in settings.trackers.items()
    }


def _surroundings(folder: Path, console: Console) -> dict[str, Any]:
    """What environment.json says; a config that is another one since then is told."""
    with fitting(ENVIRONMENT):
        found: dict[str, Any] = json.loads((folder / ENVIRONMENT).read_text("utf-8"))
        written = checkpoint.digest(folder / CONFIG)
        if found.get("config", written) != written:
            console.warn(
                f"{folder / CONFIG} was changed after the run began: its values hold from now on, but "
                "for what a checkpoint has of the optimizer, and the file alone does not repeat the run"
            )
    return found


def _tell(error: Exception, loop: Loop) -> PegboardError | None:
    """What happened and how to go on, for failures that are nobody's bug."""
    step = loop.progress.step
    if os.path.exists(loop.folder / CHECKPOINTS / "last"):  # unlike Path's, false where it may not look
        on = f"the last checkpoint is whole; go on with: {loop.go_on}"
    else:
        on = "nothing was saved yet"
    if isinstance(error, NotFinite):
        stops = all(link.guard is not None and link.guard.mode == "stop" for link in loop.linked)
        past = stops and not any(kit.closure for kit in loop.assembly.kits)
        return NotFinite(
            f"{error}; that update was not applied, and {on}\n"
            "a smaller optimizer.lr, a warm-up or clipping usually mends it"
            + ("; trainer.nonfinite=skip goes past it" if past else "")
        )
    if isinstance(error, Unreadable):
        return Unreadable(f"the run stopped after step {step}: {error}\n{on}")
    if isinstance(error, PegboardError):
        return None
    what = _machine(error, loop.plan)
    return None if what is None else PegboardError(f"the run stopped after step {step}: {what}\n{on}")


def _machine(error: Exception, plan: Plan | None = None) -> str | None:
    """What the machine refused, where it was that."""
    if no_memory(error):
        return explain_shortage(error, plan)
    if isinstance(error, OSError):
        return system_words(error) + (f": {error.filename}" if error.filename else "")
    return None
