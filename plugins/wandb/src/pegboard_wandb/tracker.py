"""The tracker. W&B is imported when a run starts, so that a plan does not wait for it."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard import PegboardError, RunInfo, Table, Tracker

from .connection import Mode, choose, usable_mode
from .record import wait_for_end
from .values import flat, plain, slug

if TYPE_CHECKING:
    import wandb

    from . import Wandb

PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp"}
PAGES = {".html", ".svg"}
APART = ("figures", "diagnosis", "reference")  # of a summary: what they hold stands by itself, diagnosis/gap
EXIT = {"finished": 0, "stopped": 0, "interrupted": 255}  # any other status has failed: 1


class WandbTracker(Tracker):
    """Sends a run to W&B, or records it offline for `wandb sync`.

    A row's number in metrics.jsonl is its W&B step, so that W&B holds each row once whatever was
    interrupted and resumed. Tables and pictures go to the run's summary: in the history they would
    be rows of their own.
    """

    def __init__(self, config: Wandb) -> None:
        self.config = config
        self._run: wandb.Run | None = None
        self._session: Any = None  # W&B's settings for this process
        self._mode: Mode = "disabled"
        self._name = ""  # of the artifact whose versions are the checkpoints
        self._next = 0  # number of the next row in metrics.jsonl
        self._known = 0  # rows that W&B has from before a resume
        self._checkpoints: dict[str, Path] = {}  # alias -> newest file, for the end of the run
        self._memory = Path()  # their names on disk, for a run that is killed and resumed
        self._home = Path()  # folder of the run in which all of them stand
        self._warned: set[str] = set()
        self._tell: Callable[[str], object] = warnings.warn

    def start(self, run: RunInfo) -> None:
        """Start online where that is possible, else offline; then log what W&B has not seen yet."""
        # W&B's reports on its own health would wait for the network when the process ends.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._tell = run.warn
        require()
        import wandb

        with own_hooks(), usable_mode() as wrong:
            self._session = wandb.setup().settings
            wanted = "offline" if wrong and self.config.mode == "auto" else self.config.mode
            self._mode, reason = choose(wanted, self._session)
            if wrong and wanted != self.config.mode:
                reason = wrong
            if self._mode == "disabled":
                return
            wandb.termsetup(wandb.Settings(silent=True), None)  # until `finish`: the console is the run's
            root = Path(self.config.dir or run.folder).absolute()
            identity = slug(run.id)
            if run.resumed:
                supersede(root, identity)
            if self._mode == "online":
                try:
                    self._run = self._init(run, identity, root)
                except Exception as error:
                    self._mode, reason = "offline", say(error)
                    identity += "-offline"  # W&B does not let go of the id before the process ends
            if self._run is None:
                self._run = self._init(run, identity, root)
        self._name = slug(f"{run.name}-{slug(run.id)}", 128)
        self._memory = root / "wandb" / f"checkpoints-{slug(run.id)}.json"
        self._home = run.folder / "checkpoints"
        self._describe(self._run, run)
        self._catch_up(self._run, run)
        if reason:
            folder = Path(self._run.dir).parent
            under = f" --id {slug(run.id)}" if identity != slug(run.id) else ""
            self._warn(f"W&B is offline: {reason}. Upload the run with `wandb sync{under} {folder}`")

    def log(self, row: Mapping[str, Any]) -> None:
        """One row of the history."""
        if self._run is None:
            return
        number = self._next
        self._next += 1
        if number >= self._known:
            self._run.log(plain(row), step=number, commit=True)

    def table(self, name: str, table: Table) -> None:
        """A W&B table in the summary."""
        with self._aside("a table") as run:
            if run is None or not self._server_answers():
                return
            import wandb

            rows = [[plain(cell) for cell in row] for row in table.rows]
            columns: list[str | int] = [str(column) for column in table.columns]
            run.summary[name] = wandb.Table(columns=columns, data=rows, allow_mixed_types=True)

    def figure(self, name: str, path: Path) -> None:
        """A picture or page in the summary; other formats among the run's files."""
        with self._aside("a figure") as run:
            if run is None:
                return
            import wandb

            kind = path.suffix.lower()
            if kind in PICTURES:
                run.summary[name] = wandb.Image(str(path))
            elif kind in PAGES:
                run.summary[name] = wandb.Html(path.read_text(encoding="utf-8"), inject=False)
            else:
                keep(run, path.name, path.read_bytes())

    def checkpoint(self, path: Path, aliases: Sequence[str]) -> None:
        """An artifact, now or at the end."""
        if self._run is None:
            return
        if self.config.checkpoints == "all":
            self._artifact(path, aliases)
        elif self.config.checkpoints == "end":
            self._checkpoints.update(dict.fromkeys(aliases, path))
            inside = {a: p.name for a, p in self._checkpoints.items() if p.parent == self._home}
            part = self._memory.with_suffix(".part")
            part.unlink(missing_ok=True)  # in a folder from a stranger both may be links that lead elsewhere
            part.write_text(json.dumps(inside), encoding="utf-8")
            part.replace(self._memory)

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        """Log the checkpoints, write the last figures and upload what is left."""
        if self._run is None:
            return
        import wandb

        run = self._run
        try:
            newest: dict[Path, list[str]] = {}
            for alias in sorted(self._checkpoints):  # last after best: W&B calls the later one latest
                newest.setdefault(self._checkpoints[alias], []).append(alias)
            for path, aliases in newest.items():
                self._artifact(path, aliases)
            run.summary.update({**flat(plain(summary), APART), "status": status})
        finally:
            self._run = None
            record = Path(run.dir).parent / f"run-{run.id}.wandb"
            run.finish(exit_code=EXIT.get(status, 1))
            wandb.termsetup(self._session, None)
            wait_for_end(record)

    def _init(self, run: RunInfo, identity: str, root: Path) -> wandb.Run:
        import wandb

        online = self._mode == "online"
        return wandb.init(
            project=self.config.project or self._session.project or "pegboard",
            entity=self.config.entity,
            id=identity,
            name=shown_name(self.config.display_name or run.name, run),
            group=self.config.group or run.group or None,
            tags=self.config.tags,
            notes=self.config.notes,
            config=plain(run.config),
            dir=str(root),
            mode="online" if online else "offline",
            resume="allow" if run.resumed and online else None,  # offline, the new file holds all rows
            reinit="create_new",  # other runs of this process are left alone
            settings=wandb.Settings(
                silent=True,
                quiet=True,
                console="off",
                disable_git=True,  # the run's environment says it
                save_code=False,
                symlink=False,
                init_timeout=self.config.timeout,
                finish_timeout=self.config.finish_timeout,
            ),
        )

    def _describe(self, run: wandb.Run, info: RunInfo) -> None:
        """The plan and the environment as files, and the axis of the charts."""
        run.define_metric("step")
        run.define_metric("*", step_metric="step", step_sync=False)  # a synced step would be added to rows
        keep(run, "plan.txt", info.plan.encode())
        keep(run, "environment.json", json.dumps(plain(info.environment), indent=2).encode())

    def _catch_up(self, run: wandb.Run, info: RunInfo) -> None:
        """After a resume: rows that W&B lacks, and checkpoints that wait for the end."""
        if not info.resumed:
            return
        if self._mode == "online":
            self._known = run.starting_step
        for row in info.previous:
            self.log(row)
        if self.config.checkpoints == "end":
            self._checkpoints = self._waiting()

    def _waiting(self) -> dict[str, Path]:
        """The checkpoints of the run folder that have an alias, by the links there and what was written down.

        The folder may have come from anybody, so that nothing outside of its checkpoints is taken.
        """
        names: dict[Any, Any] = {}
        with suppress(OSError, ValueError, RecursionError):
            written = json.loads(self._memory.read_text(encoding="utf-8"))
            names |= written if isinstance(written, dict) else {}
        for alias in ("best", "last"):  # where the process was killed, what was written may lag behind them
            with suppress(OSError):  # no such link
                link = self._home / alias  # a file with the name where the system makes no links
                names[alias] = os.readlink(link) if link.is_symlink() else link.read_text("utf-8", "replace")
        found = {}
        for alias, name in names.items():
            path = own_checkpoint(self._home, name)
            if path is not None:
                found[str(alias)] = path
            else:
                self._warn(
                    f"W&B: {name!r:.80} is no checkpoint below {self._home}, so not uploaded as {alias}"
                )
        return found

    def _artifact(self, path: Path, aliases: Sequence[str]) -> None:
        with self._aside("a checkpoint") as run:
            if run is None or not self._server_answers():
                return
            import wandb

            artifact = wandb.Artifact(self._name, type="model")
            try:
                if path.is_dir():
                    artifact.add_dir(str(path))
                else:
                    artifact.add_file(str(path))
            except (FileNotFoundError, ValueError):
                if path.exists():
                    raise
                return  # a newer checkpoint took its place, and follows
            run.log_artifact(artifact, aliases=list(aliases))

    def _server_answers(self) -> bool:
        """False, with a warning, where W&B would wait for a server that has gone away."""
        if self._mode != "online":
            return True
        reason = choose("online", self._session)[1]
        if reason:
            self._warn(f"W&B: {reason}. Tables and checkpoints stay in the run folder")
        return not reason

    @contextmanager
    def _aside(self, what: str) -> Iterator[wandb.Run | None]:
        """What goes wrong inside is left out with a warning, and the rows go on."""
        try:
            yield self._run
        except Exception as error:
            self._warn(f"W&B did not take {what}: {say(error)}")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._tell(text)


def shown_name(name: str, run: RunInfo) -> str:
    """The name of a run; those of a cross-validation share it, so each says which one it is."""
    if not run.group:
        return name
    return f"{name} all folds" if run.id == run.group else f"{name} {run.folder.name}"


def require() -> None:
    """Say what to do where W&B itself is not installed."""
    try:
        import wandb
    except ImportError as error:
        raise PegboardError(
            f"the tracker wandb needs the package wandb, which cannot be imported: {error}\n"
            "install it with `pip install wandb`, or leave the tracker out with `trackers.wandb=null`"
        ) from error
    if not hasattr(wandb, "init"):  # a folder of earlier runs is an importable namespace
        raise PegboardError(
            f"`import wandb` found only a folder of that name ({', '.join(wandb.__path__)})\n"
            "install the package with `pip install wandb`"
        )


def keep(run: wandb.Run, name: str, content: bytes) -> None:
    """Put a file among those of the run."""
    path = Path(run.dir, name)
    path.write_bytes(content)
    run.save(str(path), base_path=run.dir, policy="now")


def own_checkpoint(home: Path, name: object) -> Path | None:
    """The checkpoint of this name; None for what is not a name, or leads out of the folder of checkpoints."""
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\\0"):
        return None
    path = home / name
    inside = [path, *path.rglob("*")] if path.exists() else []
    return path if inside and not any(part.is_symlink() for part in inside) else None


def supersede(root: Path, identity: str) -> None:
    """Set aside offline records that were not uploaded: the resumed run holds all their rows again."""
    files, aside = root / "wandb", root / "wandb" / "superseded"
    for name in (f"run-{identity}.wandb", f"run-{identity}-offline.wandb"):
        for record in list(files.glob(f"offline-run-*/{name}")):
            if not record.with_name(f"{name}.synced").exists():
                with suppress(OSError):
                    aside.mkdir(exist_ok=True)
                    record.parent.rename(aside / record.parent.name)


def say(error: Exception) -> str:
    """The first line of an error, without its full stop."""
    return str(error).strip().split("\n")[0].rstrip(". ") or type(error).__name__


@contextmanager
def own_hooks() -> Iterator[None]:
    """Take back `sys.exit` and `sys.excepthook` where W&B replaced them."""
    before = sys.exit, sys.excepthook
    try:
        yield
    finally:
        if str(getattr(sys.exit, "__module__", "")).startswith("wandb."):
            sys.exit = before[0]
        if str(getattr(sys.excepthook, "__module__", "")).startswith("wandb."):
            sys.excepthook = before[1]
