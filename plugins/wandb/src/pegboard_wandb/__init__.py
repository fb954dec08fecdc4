"""The tracker `wandb`: a run's numbers, tables, pictures and checkpoints on Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pegboard import Context, Facts, Gt, Matches, Problem, Tracker, TrackerPart, hookimpl

__all__ = ["Wandb"]

TAG = 64  # characters that the W&B server takes in a tag
PROJECT = Matches(r"[^/\\#?%:]{1,128}", r"at most 128 characters and none of / \ # ? % :")


@dataclass(frozen=True)
class Wandb:
    """Weights & Biases: log the run, online or offline."""

    project: Annotated[str, PROJECT] | None = None  # None: that of W&B's own settings, else pegboard
    entity: str | None = None  # user or team that owns the project; None is W&B's default
    group: str | None = None  # runs with the same group are shown together; None: those of a cross-validation
    tags: tuple[str, ...] = ()  # labels to filter runs by, 64 characters at most
    notes: str | None = None  # what a person should know of this run
    display_name: str | None = None  # how the run is called on W&B; None is the run's own name
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"  # auto: online if it can be
    checkpoints: Literal["end", "all", "none"] = "end"  # as artifacts: best and last at the end, or each one
    dir: str | None = None  # where W&B keeps its files; None is the run folder
    timeout: Annotated[float, Gt(0)] = 15.0  # seconds W&B may take to start before the run goes on offline
    finish_timeout: Annotated[float, Gt(0)] = 45.0  # seconds W&B may take to upload the rest at the end


def check(config: Wandb, facts: Facts) -> Iterator[Problem]:
    """Tags that the server would refuse."""
    for number, tag in enumerate(config.tags):
        if not 1 <= len(tag) <= TAG:
            yield Problem(
                f"a tag of {len(tag)} characters",
                field=f"tags.{number}",
                expected=f"1 to {TAG} characters",
                hint="put longer texts into notes",
            )
    if len(set(config.tags)) < len(config.tags):
        yield Problem("the same tag twice", field="tags", expected="different tags", hint="leave one out")


def build(config: Wandb, context: Context) -> Tracker:
    """A tracker that follows the run from the first process alone."""
    if config.mode == "disabled" or context.rank > 0:
        return Tracker()
    from .tracker import WandbTracker

    return WandbTracker(config)


def trial(folder: Path) -> dict[str, str]:
    """Offline, with W&B's files in a folder of their own."""
    return {"mode": "offline", "dir": str(folder)}


@hookimpl
def pegboard_trackers() -> Sequence[TrackerPart[Wandb]]:
    """The tracker `wandb`."""
    return [TrackerPart("wandb", Wandb, build, check=check, docs="https://docs.wandb.ai", trial=trial)]
