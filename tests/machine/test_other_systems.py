"""A run trains and goes on where macOS or Windows, a disk or a container lacks what Linux has."""

from __future__ import annotations

import ast
import errno
import multiprocessing
import os
import re
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.base import files
from pegboard.data import workers
from pegboard.run import interruption, malloc
from pegboard.store import checkpoint, run_folder
from pegboard.store.names import CHECKPOINTS, LATEST
from sandbox import ROOT
from sweeps import only

CONFIG = {
    "name": "tiny",
    "seed": 0,
    "data": {"name": "blobs", "batch_size": 100},
    "model": {"name": "mlp", "hidden": [4]},
    "optimizer": {"name": "adamw", "lr": 0.01},
    "regularizers": {"dropout": {"p": 0.2}},
    "trainer": {"epochs": 2, "device": "cpu", "diagnose": False},
}
Patch = pytest.MonkeyPatch


def no_links(patch: Patch) -> None:
    patch.delattr(os, "symlink")


def links_refused(patch: Patch) -> None:
    """As on Windows for a user without the right to make them, and on FAT."""

    def refuse(*words: Any, **more: Any) -> None:
        raise OSError(errno.EPERM, "a required privilege is not held by the client")

    patch.setattr(os, "symlink", refuse)


def no_locks(patch: Patch) -> None:
    patch.setitem(sys.modules, "fcntl", None)
    patch.setitem(sys.modules, "msvcrt", None)


def locks_of_windows(patch: Patch) -> None:
    patch.setitem(sys.modules, "fcntl", None)
    msvcrt: Any = types.ModuleType("msvcrt")
    msvcrt.LK_NBLCK, msvcrt.locking = 2, lambda handle, mode, size: None
    patch.setitem(sys.modules, "msvcrt", msvcrt)


def no_hangup(patch: Patch) -> None:
    patch.delattr(signal, "SIGHUP")
    patch.setattr(interruption, "HANGUP", None)
    patch.setattr(workers, "ENDING", [signal.SIGINT, signal.SIGTERM])


def no_groups_of_processes(patch: Patch) -> None:
    patch.delattr(os, "killpg")
    patch.delattr(signal, "SIGKILL")
    patch.delattr(signal, "pthread_sigmask")


def no_folder_opens(patch: Patch) -> None:
    """As Windows does: a folder cannot be synced, and a file only by who may write it."""
    opened, synced = os.open, os.fsync
    readable: set[int] = set()

    def open_file(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "permission denied", path)
        handle = opened(path, flags, *more, **named)
        (readable.discard if flags & (os.O_RDWR | os.O_WRONLY) else readable.add)(handle)
        return handle

    def sync(handle: int) -> None:
        if handle in readable:
            raise OSError(errno.EBADF, "bad file descriptor")
        synced(handle)

    other = types.SimpleNamespace(**{**vars(os), "open": open_file, "fsync": sync})
    patch.setattr(checkpoint, "os", other)  # for this module alone: here shutil opens folders


def no_glibc(patch: Patch) -> None:
    patch.setattr(malloc, "sys", types.SimpleNamespace(platform="darwin"))


def no_sysconf(patch: Patch) -> None:
    patch.delattr(os, "sysconf")


LACKS: tuple[Callable[[Patch], None], ...] = (
    no_links, links_refused, no_locks, locks_of_windows, no_hangup, no_groups_of_processes, no_folder_opens,
    no_glibc, no_sysconf,
)  # fmt: skip


def windows(patch: Patch) -> None:
    """All of it at once."""
    for lack in LACKS:
        if lack not in (links_refused, no_locks):
            lack(patch)


def weights(run: Path | pegboard.Run) -> dict[str, torch.Tensor]:
    return dict(pegboard.load(run, which="last").state_dict())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """Weights of a run on this system that was not interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("whole"))
        return weights(pegboard.train(CONFIG, quiet=True))


@pytest.mark.parametrize("lack", only([*LACKS, windows], (windows, no_links)), ids=lambda lack: lack.__name__)
def test_a_run_trains_and_goes_on_to_the_same_weights(
    lack: Callable[[Patch], None], whole: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    lack(monkeypatch)
    run = pegboard.train(CONFIG, "trainer.epochs=1", quiet=True)
    latest = Path("runs", "tiny", LATEST)
    again = pegboard.resume(latest, quiet=True, overrides=["trainer.epochs=2"])
    assert again.folder.resolve() == run.folder.resolve()
    found = weights(latest)
    assert all(torch.equal(found[name], value) for name, value in whole.items())
    assert checkpoint.find(latest, "best").resolve().parent == (run.folder / CHECKPOINTS).resolve()
    assert (
        checkpoint.find(latest, "last").resolve().name == checkpoint.history(run.folder / CHECKPOINTS)[0].name
    )
    assert len(checkpoint.history(run.folder / CHECKPOINTS)) <= 2
    assert not list((run.folder / CHECKPOINTS).glob(".*"))


def test_a_config_is_found_through_a_link_that_is_a_file(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    no_links(monkeypatch)
    pegboard.train(CONFIG, "trainer.epochs=1", quiet=True)
    latest = Path("runs", "tiny", LATEST)
    assert latest.is_file()
    plan = pegboard.plan(latest / "config.yaml", "trainer.epochs=3")
    assert plan.settings.trainer.epochs == 3
    later = pegboard.train(CONFIG, "trainer.epochs=1", f"model.weights={latest}", quiet=True)
    assert pegboard.Run(latest).folder.name == later.folder.name


@pytest.mark.parametrize("name", ["", "..", ".", "../run", "missing", "run\n", "file"])
def test_a_file_that_is_no_link_is_not_followed(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "file").write_text("")
    link = tmp_path / "latest"
    link.write_text(name)
    assert files.follow(link / "config.yaml") == link / "config.yaml"
    link.write_text("run")
    assert files.follow(link / "config.yaml") == tmp_path / "run" / "config.yaml"


def test_a_second_process_is_refused_by_the_lock_of_windows(tmp_path: Path, monkeypatch: Patch) -> None:
    locks_of_windows(monkeypatch)
    places: list[int] = []

    def held(handle: int, mode: int, size: int) -> None:
        places.append(os.lseek(handle, 0, os.SEEK_CUR))
        raise PermissionError(errno.EACCES, "permission denied")

    (tmp_path / "plan.txt").write_text("the plan")
    with run_folder.claimed(tmp_path) as claim:
        assert claim.text == "the plan"
    monkeypatch.setattr(sys.modules["msvcrt"], "locking", held)
    with (
        pytest.raises(pegboard.PegboardError, match="another process is training"),
        run_folder.claimed(tmp_path),
    ):
        pass
    assert places == [run_folder.FAR]


def test_processes_that_read_ahead_need_no_fork(tmp_path: Path, monkeypatch: Patch) -> None:
    contexts: list[Any] = []
    get = multiprocessing.get_context
    monkeypatch.setattr(workers, "START", "spawn")
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda how: contexts.append(how) or get(how))
    pool = workers.Pool(Doubled().read, 1, 4, 1024)
    try:
        pool.begin([torch.tensor([1, 2]), torch.tensor([3])], None)
        assert [pool.next().inputs[0].tolist() for _ in range(2)] == [[2, 4], [6]]
    finally:
        pool.close()
    assert contexts == ["spawn"]


class Doubled:
    """Sends to another process by its name, as every source must where nothing is forked."""

    def read(self, rows: list[int]) -> pegboard.Batch:
        return pegboard.Batch((torch.tensor(rows) * 2,), None)


# What Windows or macOS lacks, by the names under which Python has it; each is taken away above.
ONLY_SOME = {
    "os": {
        "symlink", "link", "fork", "forkpty", "killpg", "openpty", "sysconf", "getuid", "geteuid", "sync",
        "wait", "setsid", "mkfifo", "uname", "statvfs", "sched_getaffinity", "sched_setaffinity",
        "posix_fadvise", "register_at_fork", "O_DIRECTORY", "fdatasync",
    },
    "signal": {
        "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGBUS", "SIGALRM", "alarm", "setitimer",
        "pthread_sigmask", "pause",
    },
}  # fmt: skip
MODULES = {"fcntl", "resource", "pty", "termios", "tty", "pwd", "grp"}
MAYBE = re.compile(rf"\b({'|'.join({*ONLY_SOME['os'], *ONLY_SOME['signal'], *MODULES})})\b")  # worth parsing
WITH_FALLBACK = {
    ("data/workers.py", "signal.pthread_sigmask"),
    ("run/provenance.py", "os.killpg"),
    ("run/provenance.py", "signal.SIGKILL"),
    ("run/provenance.py", "os.sysconf"),
    ("store/run_folder.py", "fcntl"),
    ("tools/isolated_import.py", "os.killpg"),
    ("tools/isolated_import.py", "signal.SIGKILL"),
    ("tools/ledger.py", "os.sysconf"),
}


def uses(tree: ast.AST) -> set[str]:
    """What of `ONLY_SOME` and `MODULES` a module names; not where it asks with getattr or hasattr."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in ONLY_SOME.get(module, ()):
                found.add(f"{module}.{name}")
            case ast.Import(names=names):
                found |= {alias.name for alias in names} & MODULES
            case ast.ImportFrom(module=str(module)) if module in MODULES:
                found.add(module)
    return found


def test_nothing_that_only_some_systems_have_is_used_without_a_fallback() -> None:
    core = ROOT / "framework" / "src" / "pegboard"
    sources = [*core.rglob("*.py"), *ROOT.glob("plugins/*/src/**/*.py"), *ROOT.glob("zoo/src/**/*.py")]
    found = {
        (path.relative_to(core if path.is_relative_to(core) else ROOT).as_posix(), name)
        for path in sources
        if MAYBE.search(text := path.read_text("utf-8"))
        for name in uses(ast.parse(text))
    }
    assert found == WITH_FALLBACK


def test_a_use_without_a_fallback_is_found() -> None:
    code = (
        "import os, resource\nfrom fcntl import lockf\nos.fork()\nsignal.SIGHUP\nos.path.join()\nx.link()\n"
    )
    assert uses(ast.parse(code)) == {"resource", "fcntl", "os.fork", "signal.SIGHUP"}
