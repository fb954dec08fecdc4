"""Pictures in files or bytes -> uint8 tensors, with Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image, UnidentifiedImageError
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
) -> Tensor:
    """Pictures as paths, bytes, {"bytes", "path"} or Pillow images -> uint8 (n, channels, height, width).

    Without `channels` and `size` the first picture decides; others of its size are then expected.
    """
    pixels = bytearray()
    for row, value in enumerate(values):
        picture = _open(value, name, row, folder)
        if channels is None:
            channels = 1 if picture.mode in GREY else 3
        if size is None:
            size, resize = (picture.height, picture.width), False
        picture = _convert(picture, channels)
        if (picture.height, picture.width) != size:
            if not resize:
                raise _other_size(picture, name, row, size)
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


def _open(value: Any, name: str, row: int, folder: Path | None) -> Image.Image:
    if isinstance(value, Image.Image):
        return value
    if isinstance(value, dict):
        value = value["bytes"] if value.get("bytes") is not None else value.get("path")
    if isinstance(value, str):
        value = (folder or Path()) / Path(value).expanduser()
    where = f"column {name!r}, row {row} (0 is the first)"
    if not isinstance(value, bytes | Path):
        found = "nothing" if value is None else f"{value!r:.60}"
        raise mistake(f"{where}: {found}", "a picture: the path of a file, or its bytes")
    try:
        picture = Image.open(io.BytesIO(value) if isinstance(value, bytes) else value)
        picture.load()
    except FileNotFoundError:
        raise mistake(f"{where}: there is no file {str(value)!r}", "the path of a picture") from None
    except (UnidentifiedImageError, OSError) as error:
        raise mistake(f"{where}: {error}", "a picture that Pillow reads") from None
    return picture


def _other_size(picture: Image.Image, name: str, row: int, size: Size) -> Exception:
    return mistake(
        f"column {name!r}, row {row} (0 is the first): a picture of {picture.height}x{picture.width}",
        f"{size[0]}x{size[1]} as the first",
        f"give the column a size to bring all pictures to: {{size: [{size[0]}, {size[1]}]}}",
    )
