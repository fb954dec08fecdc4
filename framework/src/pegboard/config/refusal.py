"""What a plan or a part refuses while it is built, reported with its place in the config."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import PegboardError
from .check import written
from .load import locate
from .merge import part_at
from .nodes import Settings
from .report import ConfigError, Mistake, leaves

Finder = Callable[[str], str]  # the file of a frame -> dotted path of the part it belongs to, "" for none


@contextmanager
def as_config_errors(
    settings: Settings, part_of: Finder | None = None, parts_alone: bool = False
) -> Iterator[None]:
    """Turn a refusal inside into one that says where in the config its cause stands.

    With `parts_alone` only what a part itself raises: the core tells a defect in code by its lines.
    """
    try:
        yield
    except ConfigError:
        raise
    except PegboardError as error:
        last = traceback.extract_tb(error.__traceback__)[-1].filename
        if parts_alone and not (part_of is not None and part_of(last)):
            raise
        if (mistake := mistake_of(error, settings, part_of)) is None:
            raise
        raise ConfigError([mistake], f"config {settings.name!r}") from error


def mistake_of(error: PegboardError, settings: Settings, part_of: Finder | None = None) -> Mistake | None:
    """The mistake that an error tells, with its place; None where it is about nothing in the config.

    Its place is the field that the error names, a key that its text names, or the part that raised it.
    """
    path, known = error.part, written(settings)
    if path and error.field:
        path = f"{path}.{error.field}"
    elif (named := _key_in(str(error), settings)) != "":
        path = named
    elif not path and part_of is not None:
        frames = reversed(traceback.extract_tb(error.__traceback__))
        path = next(filter(None, (part_of(frame.filename) for frame in frames)), "")
    if not path:
        return None
    message, *more = str(error).splitlines() or [""]
    hint = "\n".join(line.strip() for line in more)
    return locate(
        Mistake(path=path, message=message, hint=hint, at_key=part_at(tuple(path.split("."))) is not None),
        known,
    )


def _key_in(text: str, settings: Settings) -> str:
    """The first key of the config that a text names, as `data.batch_size`."""
    known = set(settings.plain)
    for path, _ in leaves(settings.plain):
        known |= {path, path.rpartition(".")[0]}
    for word in re.findall(r"[a-z_]+(?:\.[\w-]+)+", text):
        if word in known:
            return str(word)
    return ""
