"""Checkpoints: folders that are complete or not there.

`checkpoints/step-00000120/` holds `model.safetensors`, `state.pt` (optimizers, tricks, random
streams, position; read with `weights_only=True`) and `manifest.json`. It is written beside, synced and
renamed, the last two while the run goes on; `last` and `best` are links that are replaced in one operation.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import threading
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save_model
from torch import Tensor, nn

from ..base.errors import PegboardError
from ..base.files import follow, point
from .names import CHECKPOINTS, CONFIG, LATEST, MANIFEST, STATE, WEIGHTS
from .save_errors import not_saved, why_unwritten

FORMAT = 1
SYNC_EVERY = 1.0  # seconds between two times that the disk is waited for
LONGEST = 64 * 2**20  # bytes of a manifest
NESTED = ("state_dict", "model")  # keys below which a file of torch's may have the weights
WRAPPED = "module."  # before every name of a model that was wrapped to train on several devices
FIELDS: dict[str, type] = {"step": int, "epoch": int, "figures": dict, "plugins": dict, "spec": dict}


def save(folder: Path, model: nn.Module, state: Mapping[str, Any], manifest: Mapping[str, Any]) -> Path:
    """Write `folder/step-N` for `manifest["step"]`; the folder appears only once it is complete."""
    return commit(write(folder, model, state, manifest))


def write(folder: Path, model: nn.Module, state: Mapping[str, Any], manifest: Mapping[str, Any]) -> Path:
    """The files of a checkpoint, beside those that have their names; a process killed now loses nothing."""
    folder.mkdir(exist_ok=True)  # not its parents: a run folder that was deleted does not come back half
    part = folder / f".step-{manifest['step']:08d}.{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
        _write(part, model, state, manifest)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)  # where the disk is full, it needs the room
        raise
    return part


def commit(part: Path) -> Path:
    """Give a checkpoint its name, once the disk has all of it."""
    final = part.with_name(part.name[1:].partition(".")[0])
    try:
        for path in (*(part / name for name in (WEIGHTS, STATE, MANIFEST)), part):
            _sync(path)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        raise
    if final.exists():  # the same step again, after a resume
        _discard(final)
    part.rename(final)  # a process killed just before this leaves it to `recover`
    _sync(part.parent)
    return final


class Waiting(NamedTuple):
    """A checkpoint that is complete and has not its name yet."""

    part: Path
    step: int
    aliases: tuple[str, ...]


class Saver:
    """Writes the checkpoints of a run, and lets a thread of its own wait for the disk and name them.

    Syncing takes longer than a small epoch, so it is done once a second at most. What waits for it is
    complete, so a process killed now loses nothing; what later ones take the place of while it waits goes
    unsynced. Whoever needs what was saved under its name calls `settle`; a failure is raised there, or by
    the next save.
    """

    def __init__(
        self, folder: Path, keep: int, saved: Callable[[Path, Sequence[str]], None], go_on: str
    ) -> None:
        self.folder, self.keep, self.saved, self.go_on = folder, keep, saved, go_on
        self.writer = ThreadPoolExecutor(1, "save")
        self.commits: deque[Future[None]] = deque()
        self.lock = threading.Lock()  # around these two
        self.waiting: list[Waiting] = []  # for the thread to take them
        self.asked = False  # whether it will
        self.hurry = threading.Event()  # whether somebody waits for it
        self.began = -math.inf  # when it last took some
        self.newest = -1  # step that was written last
        self.config = folder.parent / CONFIG
        self.named = self.config.exists()  # whether the folder is that of a run

    def save(
        self, model: nn.Module, state: Mapping[str, Any], manifest: Mapping[str, Any], aliases: Sequence[str]
    ) -> None:
        """Write a checkpoint to which the aliases will point."""
        step = manifest["step"]
        if step == self.newest:  # it would be written where the thread reads
            self.settle()
        while self.commits and self.commits[0].done():
            self.commits.popleft().result()
        with self._telling(step):
            if self.named:  # deleted while a checkpoint was written, a folder is left with that alone
                self.config.stat()
            part = write(self.folder, model, state, manifest)
        self.newest = step
        with self.lock:
            self.waiting.append(Waiting(part, step, tuple(aliases)))
            over, asked, self.asked = self._passed_over(), self.asked, True
        for one in over:
            shutil.rmtree(one.part, ignore_errors=True)
        if not asked:
            self.commits.append(self.writer.submit(self._commit))

    def _passed_over(self) -> list[Waiting]:
        """Take out those that later ones take the place of: no alias would stay with them, nor would they."""
        over = []
        for place, one in enumerate(self.waiting):
            later = self.waiting[place + 1 :]
            if len(later) >= self.keep and set(one.aliases) <= {a for other in later for a in other.aliases}:
                over.append(one)
        self.waiting = [one for one in self.waiting if one not in over]
        return over

    def _commit(self) -> None:
        """Sync and name what waits, in the order in which it was written."""
        self.hurry.wait(max(0.0, self.began + SYNC_EVERY - time.monotonic()))
        self.began = time.monotonic()
        with self.lock:
            waiting, self.waiting, self.asked = self.waiting, [], False
        for one in waiting:
            with self._telling(one.step):
                path = commit(one.part)
                for alias in one.aliases:
                    point(self.folder / alias, path.name)
                prune(self.folder, self.keep, path)
            self.saved(path, one.aliases)

    def settle(self) -> None:
        """Wait until what was saved is on the disk under its name."""
        self.hurry.set()
        try:
            while self.commits:
                self.commits.popleft().result()
        finally:
            self.hurry.clear()

    @contextmanager
    def _telling(self, step: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PegboardError(not_saved(self.folder, step, error, self.go_on)) from None


def _write(part: Path, model: nn.Module, state: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    """The files of a checkpoint; the manifest, which vouches for the others, last."""
    try:
        save_model(model, str(part / WEIGHTS))
        torch.save(dict(state), part / STATE)
    except (SafetensorError, RuntimeError) as error:  # how these two say that a write failed
        raise why_unwritten(part, error) from error
    hashes = {name: digest(part / name) for name in (WEIGHTS, STATE)}
    text = json.dumps({"format": FORMAT, **manifest, "sha256": hashes})  # indented it takes ten times as long
    (part / MANIFEST).write_text(text + "\n", "utf-8")


def _discard(path: Path) -> None:
    """Remove a checkpoint so that no instant shows half of it under its name."""
    hidden = path.with_name(f".old-{path.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    path.rename(hidden)
    shutil.rmtree(hidden)


def recover(folder: Path) -> None:
    """Give its name to a checkpoint that was complete when its process was killed, and remove the rest."""
    for part in folder.glob(".step-*.*"):
        final = folder / part.name[1:].partition(".")[0]
        try:
            verify(part, read_manifest(part))
        except PegboardError:
            continue
        if not final.exists():
            part.rename(final)
    _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove what a killed process left."""
    for path in folder.glob(".*"):
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)


def history(folder: Path) -> list[Path]:
    """The checkpoints of a run, the newest first."""
    return sorted((p for p in folder.glob("step-*") if p.is_dir()), reverse=True)


def prune(folder: Path, keep: int, newest: Path) -> None:
    """Remove all but `newest`, the checkpoints before it up to `keep`, and the best.

    Later steps than `newest` are damaged: the run was resumed from before them. They do not count.
    """
    best = follow(folder / "best").resolve()
    for path in [p for p in history(folder) if p.name <= newest.name][keep:]:
        if path.resolve() != best:
            _discard(path)


def digest(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Wait until the disk has a file, or a folder where the system opens folders: Windows does not."""
    folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)  # Windows syncs what it may write
    except PermissionError:
        if folder:
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def find(ref: str | Path, which: str = "best") -> Path:
    """The checkpoint folder that a reference means: a run folder or a checkpoint folder.

    `which` is "best" or "last"; a run without a best checkpoint gives its last.
    """
    if which not in ("best", "last"):
        raise PegboardError(f"there is no {which!r} checkpoint: expected best or last")
    path = follow(Path(ref))
    if (path / MANIFEST).is_file():
        return path
    for place in (
        follow(path / CHECKPOINTS / which),
        follow(path / CHECKPOINTS / "last"),
        *history(path / CHECKPOINTS),
    ):
        if (place / MANIFEST).is_file():
            return place
    if not path.exists():
        from ..base.nearest import nearest

        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = nearest(path.name, siblings)
        hint = f" Did you mean {path.parent / near[0]}?" if near else ""
        raise PegboardError(f"no run or checkpoint at {path}.{hint}\nRuns stand in runs/<name>/<time>-<id>.")
    newest = f"\nthe newest run in it: {path / LATEST}" if (path / LATEST).exists() else ""
    raise PegboardError(
        f"{path} holds no checkpoint: expected a run folder with {CHECKPOINTS}/last in it{newest}"
    )


def find_whole(run: Path, warn: Callable[[str], None]) -> tuple[Path, dict[str, Any]]:
    """The newest checkpoint of a run that is not damaged, with its manifest; damaged ones are named."""
    for place in history(run / CHECKPOINTS):
        try:
            manifest = read_manifest(place)
            verify(place, manifest)
        except PegboardError as error:
            warn(f"{error}; trying the one before it")
            continue
        return place, manifest
    raise PegboardError(f"no checkpoint of {run} is whole; begin anew with: pegboard train {run / CONFIG}")


def read_manifest(checkpoint: Path) -> dict[str, Any]:
    """The manifest of a checkpoint; damage and unknown formats are errors."""
    try:
        if (checkpoint / MANIFEST).stat().st_size > LONGEST:
            raise ValueError(f"it is longer than {LONGEST // 2**20} MiB")
        manifest = json.loads((checkpoint / MANIFEST).read_text("utf-8"))
        version = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise PegboardError(f"the manifest of checkpoint {checkpoint} is damaged: {error}") from None
    if version != FORMAT:
        raise PegboardError(
            f"checkpoint {checkpoint} has format {version!r:.40}, this version reads format {FORMAT}"
        )
    for name, kind in FIELDS.items():
        value = manifest.get(name, kind())
        negative = isinstance(value, int) and (isinstance(value, bool) or value < 0)
        if not isinstance(value, kind) or negative:
            raise PegboardError(
                f"the manifest of checkpoint {checkpoint} is damaged: {name} is {value!r:.40}"
            )
    return dict(manifest)


def verify(checkpoint: Path, manifest: Mapping[str, Any]) -> None:
    """Compare the files of a checkpoint with the hashes in its manifest."""
    hashes = manifest.get("sha256")
    for name in (WEIGHTS, STATE):
        if not isinstance(hashes, dict) or name not in hashes:
            raise PegboardError(f"the manifest of checkpoint {checkpoint} is damaged: no hash of {name!r}")
        if not (checkpoint / name).is_file():
            raise PegboardError(f"checkpoint {checkpoint} lacks its file {name!r}")
        if digest(checkpoint / name) != hashes[name]:
            raise PegboardError(f"{checkpoint / name} is damaged: its hash is not the one in the manifest")


def read_weights(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        if not str(path).isprintable():  # a name that is no UTF-8, which the library does not open
            return {name: x.to(device) for name, x in load(path.read_bytes()).items()}
        return load_file(path, device=device)
    except (SafetensorError, OSError) as error:
        raise PegboardError(f"cannot read weights from {path}: {error}") from None


def read_file(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of weights alone, by name; nothing in it is executed.

    What torch saved may have them below `state_dict` or `model`, and names as of a wrapped model.
    """
    if path.suffix.lower() == ".safetensors":
        return read_weights(path)
    found: Any = _unpack(path)
    for _ in range(3):  # a mapping may hold itself
        below = [found[key] for key in NESTED if isinstance(found, Mapping) and key in found]
        found = next((inner for inner in below if isinstance(inner, Mapping)), found)
    given = found if isinstance(found, Mapping) else {}
    tensors = {str(name): value for name, value in given.items() if isinstance(value, Tensor)}
    if not tensors:
        what = f"the keys {', '.join(map(str, list(given)[:5]))}" if given else f"a {type(found).__name__}"
        raise PegboardError(
            f"{path} holds no tensors by name, but {what}: expected a state_dict, alone or below "
            f"{' or '.join(map(repr, NESTED))}"
        )
    wrapped = all(name.startswith(WRAPPED) for name in tensors)
    return {name.removeprefix(WRAPPED) if wrapped else name: value for name, value in tensors.items()}


def _unpack(path: Path, archive: bool = False) -> Any:
    """What torch saved in a file, where it is plain data and tensors; old versions wrote no `archive`."""
    try:
        if archive or zipfile.is_zipfile(path):
            _check_archive(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile file may make the reader raise anything
        reason = str(error) or repr(error)
        if "Weights only load failed" in reason:
            reason = "it holds more than plain data and tensors, and nothing in it was executed"
        raise PegboardError(f"cannot read {path}: {reason.splitlines()[0]}") from None


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The training state of a checkpoint; nothing in it is executed."""
    path = checkpoint / STATE
    found = _unpack(path, archive=True)
    if not isinstance(found, dict):
        raise PegboardError(f"cannot read {path}: it holds a {type(found).__name__}")
    return found


def _check_archive(path: Path) -> None:
    """Refuse archives that unpack to more than they are: ours are stored without compression."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    packed = any(m.compress_type != zipfile.ZIP_STORED for m in members)
    if packed or sum(m.file_size for m in members) > path.stat().st_size:
        raise ValueError("it unpacks to more than it is, which no checkpoint does")


def fit_weights(model: nn.Module, weights: Mapping[str, Tensor], strict: bool, where: str) -> list[str]:
    """Copy weights into a model by name. Returns the names that the weights did not have.

    `strict` makes every missing, unexpected or misshapen name an error; otherwise what fits is taken.
    """
    lines = compare_weights(model, weights, strict, where)
    own = model.state_dict()
    taken = {k: v for k, v in weights.items() if k in own and own[k].shape == v.shape}
    model.load_state_dict(taken, strict=False)
    return lines


def compare_weights(model: nn.Module, weights: Mapping[str, Tensor], strict: bool, where: str) -> list[str]:
    """A line for each name that does not fit; an error where `strict` is set, or nothing fits."""
    own = model.state_dict()
    tied = _tied(model)
    unexpected = sorted(set(weights) - set(own))
    missing = sorted(k for k in set(own) - set(weights) if not tied.get(k, set()) & set(weights))
    shapes = [
        f"{k} {tuple(weights[k].shape)}, expected {tuple(own[k].shape)}"
        for k in sorted(set(own) & set(weights))
        if own[k].shape != weights[k].shape
    ]
    lines = [
        *(f"missing: {k}" for k in missing),
        *(f"unexpected: {k}" for k in unexpected),
        *(f"wrong shape: {k}" for k in shapes),
    ]
    if strict and lines:
        raise PegboardError("\n  ".join((f"the weights of {where} do not fit the model:", *lines)))
    if len(shapes) == len(set(own) & set(weights)):
        raise PegboardError(
            f"the weights of {where} do not fit the model: nothing in them has a name and the shape of it\n"
            f"  the model  {_some(own)}\n  the file   {_some(weights)}"
        )
    return lines


def _some(tensors: Mapping[str, Tensor], most: int = 6) -> str:
    """A few names with shapes."""
    shown = ", ".join(f"{name} {tuple(tensors[name].shape)}" for name in list(tensors)[:most])
    return shown + (f" and {len(tensors) - most} more" if len(tensors) > most else "")


def _tied(model: nn.Module) -> dict[str, set[str]]:
    """For every name of a parameter that has several, the others."""
    by_id: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        by_id.setdefault(id(parameter), set()).add(name)
    return {name: names - {name} for names in by_id.values() for name in names if len(names) > 1}
