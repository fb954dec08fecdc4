"""What to say where a checkpoint could not be written, in words that are not the libraries' own."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from ..base.errors import system_words
from .names import CONFIG, MANIFEST

TRIED = 2**20  # bytes that are written to see what the disk says
LITTLE = 2**24  # bytes that a checkpoint may not fit in


def why_unwritten(folder: Path, error: Exception) -> OSError:
    """What the system says of writing to a folder, where a library says in its own words that it failed."""
    trial = folder / "trial"
    try:
        trial.write_bytes(bytes(TRIED))
    except OSError as found:
        return found
    finally:
        trial.unlink(missing_ok=True)
    if shutil.disk_usage(folder).free < LITTLE:
        return OSError(errno.ENOSPC, "No space left on device")  # for a checkpoint, if not for a trial
    return OSError(errno.EIO, str(error).splitlines()[0])


def not_saved(checkpoints: Path, step: int, error: OSError, go_on: str) -> str:
    """What happened to a checkpoint, what there is to go on from, and how."""
    run = checkpoints.parent
    gone = error.filename == str(run / CONFIG) or not os.path.isdir(run)
    if error.errno == errno.ENOENT and gone:
        return (
            f"the run folder {run} is gone, and with it what was saved: step {step} cannot be saved "
            f"({system_words(error)})\n"
            f"put the folder back, where it was moved, and go on with: {go_on}; or train anew"
        )
    free, saved = "", "the checkpoint before it is whole" if step else "nothing was saved yet"
    with suppress(OSError):  # it may not even be looked into
        left = shutil.disk_usage(run).free
        if error.errno == errno.ENOSPC and left < LITTLE:
            free = f" ({left // 1024:,} KiB are free)"
        # One that only waits for its name is whole as well, and gets it when the run goes on.
        found = [path.parent.name.removeprefix(".") for path in checkpoints.glob(f"*step-*/{MANIFEST}")]
        kept = [
            int(name[5:].partition(".")[0]) for name in found if name.startswith("step-")
        ]  # not .old-step-
        whole = [number for number in kept if number != step]
        saved = f"step {max(whole)} is saved whole" if whole else "nothing was saved yet"
    return (
        f"cannot save step {step} in {checkpoints}: {system_words(error)}{free}\n"
        f"{saved}; with room to write, go on with: {go_on}"
    )
