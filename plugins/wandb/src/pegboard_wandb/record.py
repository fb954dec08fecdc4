"""The end of the file in which W&B records a run.

W&B's service writes the last rows after `finish` has returned. Whoever reads the run folder right
after training should find them, so the tracker waits until the file holds its last record.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

BLOCK = 32 * 1024  # the file is cut into blocks, a message into pieces that fit
PIECE = struct.Struct("<IHB")  # checksum, length, kind
WHOLE, FIRST, LAST = 1, 2, 4


def wait_for_end(path: Path, seconds: float = 5.0) -> bool:
    """Whether the record is complete, once it is or the time has passed."""
    until = time.monotonic() + seconds
    while not (path.exists() and ended(path)):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def ended(path: Path) -> bool:
    """Whether the last message of the file is the one with which a run ends."""
    from wandb.proto import wandb_internal_pb2

    record: Any = wandb_internal_pb2  # its classes are made at import, unseen by type checkers
    message = last_message(path)
    try:
        return bool(message) and bool(record.Record.FromString(message).HasField("exit"))
    except ValueError:  # protobuf's error for half a message
        return False


def last_message(path: Path) -> bytes:
    """The last complete message, b"" where the file ends in the middle of one."""
    size = path.stat().st_size
    start = max(0, size // BLOCK - 1) * BLOCK  # the last message is small: two blocks hold it
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    at = 7 if start == 0 else 0  # the file's own header
    message, complete = b"", False
    while at + PIECE.size <= len(data):
        room = BLOCK - (start + at) % BLOCK
        if room < PIECE.size:  # padding at the end of a block
            at += room
            continue
        _, length, kind = PIECE.unpack_from(data, at)
        at += PIECE.size + length
        if at > len(data):
            return b""
        message = (b"" if kind in (WHOLE, FIRST) else message) + data[at - length : at]
        complete = kind in (WHOLE, LAST)
    return message if complete else b""
