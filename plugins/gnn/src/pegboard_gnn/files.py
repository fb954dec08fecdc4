"""Where the files of known data sets are: in a folder, or downloaded into one."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from pegboard import PegboardError

SECONDS = 30  # to wait for an answer


def home(kind: str, root: str | None) -> Path:
    """The folder of a kind of data sets: as given, that of PEGBOARD_DATA, or one of the user's."""
    if root is not None:
        return Path(os.path.expanduser(root))  # of an unknown user it is left as it is
    given = os.environ.get("PEGBOARD_DATA")
    return Path(given) / kind if given else Path.home() / ".cache" / "pegboard" / kind


def find(kind: str, root: str | None, dataset: str, files: Sequence[str], addresses: Sequence[str]) -> Path:
    """The folder `raw` of a data set, downloaded where its files are not there.

    An address of a zip archive holds all files; else there is one for each file.
    """
    folder = home(kind, root) / dataset / "raw"
    missing = [name for name in files if not (folder / name).is_file()]
    if not missing:
        return folder
    fresh = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for address in addresses:
            if address.endswith(".zip"):
                _archive(address, folder)
            elif address.rpartition("/")[2] in missing:
                _file(address, folder / address.rpartition("/")[2])
    except (OSError, ValueError, HTTPException, zipfile.BadZipFile) as error:
        with suppress(OSError):  # no empty folders stay behind; one that holds something does
            for path in fresh:
                path.rmdir()
        raise PegboardError(
            f"{folder} lacks {', '.join(missing[:3])}{' and more' if missing[3:] else ''}, and they cannot "
            f"be downloaded: {error}\n  from: {addresses[0]}\n"
            f"  expected: the files in {folder}, or another folder: data.root=FOLDER"
        ) from None
    if lacking := [name for name in files if not (folder / name).is_file()]:
        raise PegboardError(f"{addresses[0]} did not bring {', '.join(lacking)}")
    return folder


def _file(address: str, path: Path) -> None:
    """Download a file beside its place, then move it there, so that none is ever half there."""
    from urllib.request import urlopen

    with (
        urlopen(address, timeout=SECONDS) as answer,
        tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file,
    ):
        shutil.copyfileobj(answer, file)
    os.replace(file.name, path)


def _archive(address: str, folder: Path) -> None:
    """Download an archive and take out its files, whatever folder they are in there."""
    path = folder / "archive.zip"
    _file(address, path)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = Path(member.filename).name
            if not member.is_dir() and name:
                with archive.open(member) as source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
    path.unlink()
