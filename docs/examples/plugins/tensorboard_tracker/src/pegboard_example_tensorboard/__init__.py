"""The tracker `tensorboard`: a run as TensorBoard shows it. Imports neither torch nor TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated

from pegboard import Context, Facts, Gt, PegboardError, Problem, Tracker, TrackerPart, hookimpl


@dataclass(frozen=True)
class TensorBoard:
    """Write the run's numbers, tables, pictures and settings for TensorBoard."""

    folder: str = "tensorboard"  # where the event files are, inside the run folder
    flush_seconds: Annotated[float, Gt(0)] = 10.0  # how long a number may take to appear in the file


def check(config: TensorBoard, facts: Facts) -> Iterator[Problem]:
    """The files that a resume replaces must be those of the run, so they are inside its folder."""
    path = PurePath(config.folder)
    if path.is_absolute() or ".." in path.parts:
        yield Problem(
            f"{config.folder!r} is outside the run folder",
            field="folder",
            expected="a path inside it, as tensorboard",
            hint="to see many runs side by side, start TensorBoard on the folder above them: --logdir runs",
        )


def build(config: TensorBoard, context: Context) -> Tracker:
    """A tracker that writes from the first process alone."""
    if context.rank > 0:
        return Tracker()
    try:
        from .tracker import TensorBoardTracker
    except ImportError as error:
        raise PegboardError(
            f"the tracker tensorboard needs the package tensorboard, which cannot be imported: {error}\n"
            "install it with `pip install tensorboard`, or leave the tracker out: trackers.tensorboard=null"
        ) from error
    return TensorBoardTracker(config)


@hookimpl
def pegboard_trackers() -> list[TrackerPart[TensorBoard]]:
    return [
        TrackerPart(
            "tensorboard", TensorBoard, build, check=check, docs="https://www.tensorflow.org/tensorboard"
        )
    ]
