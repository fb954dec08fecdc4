"""Pictures in files or bytes -> uint8 tensors, with Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor

from .mistakes import mistake

Channels = Literal[1, 3]
Size = tuple[int, int]  # height, width
GREY = frozenset({"1", "L", "LA", "I", "I;16", "F"})


def read_pixels(
    values: Sequence[Any],
    name: str,
    channels: Channels | None = None,
    size: Size | None = None,
    folder: Path | None = None,
    resize: bool = True,
    where: Callable[[int], str] | None = None,
) -> Tensor:
    """Pictures as paths, bytes, {"bytes", "path"} or Pillow images -> uint8 (n, channels, height, width).

    Without `channels` and `size` the first picture decides; others of its size are then expected.
    `where` says how a person finds a row.
    """

    def place() -> str:
        return f"column {name!r}, {where(row) if where else f'row {row} (0 is the first)'}"

    pixels = bytearray()
    for row, value in enumerate(values):  # noqa: B007 `place` reads the row where something is wrong
        picture = _open(value, place, folder)
        if channels is None:
            channels = 1 if picture.mode in GREY else 3
        if size is None:
            size, resize = (picture.height, picture.width), False
        picture = _convert(picture, channels)
        if (picture.height, picture.width) != size:
            if not resize:
                raise _other_size(picture, place(), size)
            picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        pixels += picture.tobytes()
    shape = (len(values), *(size or (0, 0)), channels or 1)
    if not pixels:
        return torch.empty(shape, dtype=torch.uint8).permute(0, 3, 1, 2)
    return torch.frombuffer(pixels, dtype=torch.uint8).view(shape).permute(0, 3, 1, 2).contiguous()


def _convert(picture: Image.Image, channels: Channels) -> Image.Image:
    if picture.mode == ("L" if channels == 1 else "RGB"):
        return picture
    if picture.mode.startswith("I"):
        # Pillow clips 16 bits to 8 instead of scaling them.
        picture = picture.point(lambda v: v / 257).convert("L")
    return picture.convert("L" if channels == 1 else "RGB")


def _open(value: Any, where: Callable[[], str], folder: Path | None) -> Image.Image:
    if isinstance(value, Image.Image):
        return value
    if isinstance(value, dict):
        value = value["bytes"] if value.get("bytes") is not None else value.get("path")
    if isinstance(value, str):
        value = (folder or Path()) / Path(value).expanduser()
    if not isinstance(value, bytes | Path):
        found = "nothing" if value is None else f"{value!r:.60}"
        raise mistake(f"{where()}: {found}", "a picture: the path of a file, or its bytes")
    try:
        picture = Image.open(io.BytesIO(value) if isinstance(value, bytes) else value)
        picture.load()
    except FileNotFoundError:
        raise mistake(f"{where()}: there is no file {str(value)!r}", "the path of a picture") from None
    except Image.DecompressionBombError as error:
        raise mistake(f"{where()}: {error}", "a picture of at most 178 million pixels") from None
    except Exception as error:  # a damaged or hostile file makes a decoder raise anything
        raise mistake(f"{where()}: {error or type(error).__name__}", "a picture that Pillow reads") from None
    return picture


def _other_size(picture: Image.Image, where: str, size: Size) -> Exception:
    return mistake(
        f"{where}: a picture of {picture.height}x{picture.width}",
        f"{size[0]}x{size[1]} as the first",
        f"give the column a size to bring all pictures to: {{size: [{size[0]}, {size[1]}]}}",
    )
