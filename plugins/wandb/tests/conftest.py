"""A reader of the files that W&B writes offline, independent of W&B's own."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HEADER, BLOCK, PREFIX = 7, 32 * 1024, struct.Struct("<IHB")  # checksum, length, kind of piece
WHOLE, BEGIN, END = 1, 2, 4


class Record:
    """What one .wandb file holds."""

    def __init__(self, path: Path) -> None:
        self.all = list(messages(path))

    def of(self, kind: str) -> list[Any]:
        return [getattr(m, kind) for m in self.all if m.WhichOneof("record_type") == kind]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The history without W&B's own keys."""
        return [without_own(values(history.item)) for history in self.of("history")]

    @property
    def steps(self) -> list[int]:
        return [values(history.item)["_step"] for history in self.of("history")]

    @property
    def config(self) -> dict[str, Any]:
        return without_own(values(self.of("run")[0].config.update))

    @property
    def summary(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for summary in self.of("summary"):
            merged.update(values(summary.update))
        return merged

    @property
    def files(self) -> set[str]:
        return {item.path for files in self.of("files") for item in files.files}


def messages(path: Path) -> Iterator[Any]:
    """The protobuf messages of the file, put together from the pieces in its blocks."""
    from wandb.proto import wandb_internal_pb2

    protocol: Any = wandb_internal_pb2
    data = path.read_bytes()
    at = HEADER
    parts: list[bytes] = []
    while True:
        room = BLOCK - at % BLOCK
        if room < PREFIX.size:  # the rest of a block too small for a piece is padding
            at += room
        if at + PREFIX.size > len(data):
            return
        checksum, length, kind = PREFIX.unpack_from(data, at)
        piece = data[at + PREFIX.size : at + PREFIX.size + length]
        at += PREFIX.size + length
        assert zlib.crc32(bytes([kind]) + piece) == checksum, f"damaged piece before byte {at}"
        parts = [piece] if kind in (WHOLE, BEGIN) else [*parts, piece]
        if kind in (WHOLE, END):
            yield protocol.Record.FromString(b"".join(parts))


def values(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def without_own(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("_")}


@pytest.fixture(scope="session")
def read() -> Callable[[Path], Record]:
    """Reads the one .wandb file of a W&B folder."""

    def from_folder(folder: Path) -> Record:
        (path,) = folder.glob("*.wandb")
        return Record(path)

    return from_folder


@pytest.fixture(scope="module")
def own_wandb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """W&B without keys, and with all its folders in a temporary place."""
    place = tmp_path_factory.mktemp("wandb-home")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("API_KEY", "MODE", "BASE_URL", "PROJECT", "ENTITY", "IDENTITY_TOKEN_FILE", "SERVICE"):
            patch.delenv(f"WANDB_{name}", raising=False)
        for name in ("DATA_DIR", "CACHE_DIR", "CONFIG_DIR"):
            patch.setenv(f"WANDB_{name}", str(place))
        patch.setenv("NETRC", str(place / "none"))
        yield place
