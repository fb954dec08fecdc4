"""The run folder: making it, and the rows and records written to it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from ..base.errors import PegboardError, system_words
from ..base.files import point, write_text
from .names import FIGURES, LATEST, PLAN

FAR = 2**30  # place of the byte of plan.txt that Windows locks


def new_name(root: Path, name: str) -> Path:
    """A path `root/name/<time>-<id>` for a run folder; that it can be made there is seen at once."""
    folder = root / name / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    fresh = [path for path in (folder.parent, *folder.parent.parents) if not path.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(folder.parent, os.W_OK) and folder.parent.exists():
            raise PermissionError(13, "it is not writable")
        with suppress(OSError):  # another run begins just now
            for path in fresh:  # made again with the run: one that does not begin leaves nothing behind
                path.rmdir()
    except OSError as error:
        raise PegboardError(
            f"cannot make a run folder in {folder.parent}: {error.strerror or error}"
        ) from None
    return folder


def make_folder(
    folder: Path,
    files: Mapping[str, str | bytes],
    latest: bool = True,
    fill: Callable[[Path], object] = lambda part: None,
) -> None:
    """Make a run folder with its first files, of which some stand in folders, in one operation.

    `fill` puts more into it before it is seen; `latest` points at it from then on.
    """
    part = folder.with_name(f".{folder.name}")
    shutil.rmtree(part, ignore_errors=True)  # of a process that was killed here
    try:
        (part / FIGURES).mkdir(parents=True)
        for name, contents in files.items():
            (part / name).parent.mkdir(exist_ok=True)
            (part / name).write_bytes(
                contents.encode("utf-8", "backslashreplace") if isinstance(contents, str) else contents
            )
        fill(part)
        part.rename(folder)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise PegboardError(f"cannot make the run folder {folder}: {system_words(error)}") from None
    if latest:
        with suppress(OSError):  # a folder of that name, or no links here: the run is whole without it
            point(folder.parent / LATEST, folder.name)


class MetricsFile:
    """`metrics.jsonl`: one JSON object a line, each complete on disk before the next begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """The rows of a file; a last line cut off by a crash is left out."""
        rows = []
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows

    @classmethod
    def rewind(cls, path: Path, step: int) -> list[dict[str, Any]]:
        """Drop the rows that a run resumed after a step writes again; returns those kept."""
        rows = [
            row
            for row in cls.read(path)
            if row["step"] <= step and not any(name.startswith("test/") for name in row)
        ]
        write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
        return rows


class Claim:
    """The right to carry a run out, and the text of its plan, through whose file it is held."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.text = file.read()

    def rewrite(self, text: str) -> None:
        """Put another plan in the place of the one that was."""
        self._file.seek(0)
        self._file.write(text)
        self._file.truncate()
        self._file.flush()
        self.text = text


def _lock(handle: int) -> None:
    """Lock an open file for this process, or raise BlockingIOError or PermissionError at once."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        windows: Any = msvcrt  # of which a type checker knows nothing elsewhere
        os.lseek(handle, FAR, os.SEEK_SET)  # what is locked there nobody else can read
        try:
            windows.locking(handle, windows.LK_NBLCK, 1)
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
    else:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def claimed(folder: Path) -> Iterator[Claim]:
    """A run with the text of its plan, while no other process may carry the run out.

    A claim ends with its process, however that ends; and where that closes plan.txt, so only this opens it.
    """
    with (folder / PLAN).open("r+", encoding="utf-8", errors="replace") as file:
        try:
            _lock(file.fileno())
        except (BlockingIOError, PermissionError):
            raise PegboardError(
                f"another process is training {folder}: wait for it, or end it, then resume"
            ) from None
        except (ImportError, OSError):  # a system or a disk without locks
            pass
        yield Claim(file)
