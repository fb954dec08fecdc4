"""What a plan or a part refuses while it is built, reported with its place in the config."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..base.errors import PegboardError
from .check import written
from .errors import ConfigError, Mistake, join, leaves
from .load import locate
from .merge import part_at
from .nodes import Settings

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

    Its place is the field that the error names, a key that its text names, a value of the part that raised it
    which its text quotes, or that part.
    """
    path, known, named = error.part, written(settings), _key_in(str(error), settings)
    if path and error.field:
        path = f"{path}.{error.field}"
    elif named:
        path = named
    elif not path and part_of is not None:
        frames = reversed(traceback.extract_tb(error.__traceback__))
        path = next(filter(None, (part_of(frame.filename) for frame in frames)), "")
    if not path:
        return None
    if not error.field and path != named:
        path = _value_in(str(error), path, settings) or path
    message, *more = str(error).splitlines() or [""]
    hint = "\n".join(line.strip() for line in more)
    return locate(
        Mistake(path=path, message=message, hint=hint, at_key=part_at(tuple(path.split("."))) is not None),
        known,
    )


def _key_in(text: str, settings: Settings) -> str:
    """The first key of the config that a text names, as `data.batch_size`, of those that were written."""
    known = set(settings.plain)
    for path, _ in leaves(settings.plain):
        known |= {path, path.rpartition(".")[0]}
    named = [word for word in re.findall(r"[a-z_]+(?:\.[\w-]+)+", text) if word in known]
    return next((word for word in named if word in settings.origins), named[0] if named else "")


def _value_in(text: str, part: str, settings: Settings) -> str:
    """The path of what a part's config says and a text quotes first, if it stands there once."""
    places: dict[str, list[str]] = {}
    for path, value in _texts(settings.plain, ""):
        if path.startswith(f"{part}.") and path != f"{part}.name" and path in settings.values:
            places.setdefault(value, []).append(path)
    blamed = re.split(r"; (?:nearest|did you mean)", text.partition("\n")[0])[0]
    for quoted in re.findall(r"'([^']+)'", blamed):
        if quoted in places:
            return places[quoted][0] if len(places[quoted]) == 1 else ""
    return ""


def _texts(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in a config with its dotted path: values, and names that stand before a colon."""
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            if "." in path:  # inside a field of a part: below it are the fields themselves
                yield join(path, key), str(key)
            yield from _texts(value, join(path, key))
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _texts(value, join(path, index))
