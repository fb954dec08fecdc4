"""Pictures in a folder for each class. No torch at import, and no picture is opened here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pegboard import (
    Classes,
    Context,
    Dataset,
    DataSpec,
    Facts,
    Ge,
    Image,
    Lt,
    Problem,
    Splits,
    hookimpl,
)

from .listing import SUFFIXES, find_classes, pictures

Pixels = Annotated[int, Ge(1)]
Share = Annotated[float, Ge(0), Lt(1)]


@dataclass(frozen=True)
class PictureFolder:
    """Pictures in a folder for each class: `folder/cat/1.png`."""

    folder: str  # holds a folder for each class; relative to where the command is started
    size: tuple[Pixels, Pixels] = (32, 32)  # height and width that pictures are brought to
    channels: Literal[1, 3] = 3  # 1 grey, 3 colour
    val: Share = 0.1  # about this share of the pictures validates
    test: Share = 0.1  # about this share tests
    memory: Literal["auto", "always", "never"] = "auto"  # hold the pictures; never reads every batch anew


def spec(config: PictureFolder) -> DataSpec | None:
    """What a sample is, from the config and the names of folders; None where `check` has to complain."""
    try:
        names = find_classes(config.folder)
    except OSError:
        return None
    if len(names) < 2:
        return None
    picture = Image(config.channels, *config.size)
    return DataSpec((picture,), Classes(len(names), tuple(names)), ("picture",))


def check(config: PictureFolder, facts: Facts) -> Iterable[Problem]:
    """What is wrong with the shares and with the folder, as far as a look at names can tell."""
    if config.val + config.test >= 1:
        yield Problem(
            f"val {config.val:g} and test {config.test:g} leave nothing to train on",
            "val",
            expected="shares that sum to less than 1",
        )
    try:
        names = find_classes(config.folder)
        loose = not names and bool(pictures(config.folder, "."))
    except OSError as error:
        yield Problem(
            f"cannot list {error.filename!r}: {error.strerror}",
            "folder",
            expected="a folder that can be read, relative to where the command is started",
        )
        return
    if not names:
        yield Problem(
            f"no folder in {config.folder!r} holds a picture ({', '.join(SUFFIXES)})",
            "folder",
            expected=f"a folder of pictures for each class: {config.folder}/cat/1.png",
            hint="its pictures lie side by side: give each class a folder" if loose else "",
        )
    elif len(names) == 1:
        yield Problem(
            f"all pictures in {config.folder!r} are of one class, {names[0]!r}",
            "folder",
            expected="at least two folders of pictures",
        )


def build(config: PictureFolder, context: Context) -> Splits:
    from .reading import read_splits

    known = spec(config)
    assert known is not None  # the config was checked
    return read_splits(config, known)


def trial(folder: Path) -> dict[str, Any]:
    """Forty tiny pictures, bright above or bright below, to try the data set with."""
    from PIL import Image as Picture

    for name in ("above", "below"):
        (folder / name).mkdir(exist_ok=True)
        for number in range(20):
            picture = Picture.new("L", (8, 8), number)
            picture.paste(255 - number, (0, 0, 8, 4) if name == "above" else (0, 4, 8, 8))
            picture.save(folder / name / f"{number}.png")
    return {"folder": str(folder), "size": [8, 8], "channels": 1, "val": 0.2, "test": 0.2}


@hookimpl
def pegboard_datasets() -> list[Dataset[PictureFolder]]:
    return [Dataset("picture_folder", PictureFolder, build, check=check, spec=spec, trial=trial)]
