"""Fields that name a trained model, and whether there is one; nothing is loaded, no torch."""

from __future__ import annotations

import functools
import json
import os
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from ..base.files import follow
from ..base.nearest import nearest
from ..contract.records import SavedModel
from ..contract.specs import Classes, DataSpec, Image, Labels, Spec, Values, Vector
from ..registry.discovery import Registry
from ..registry.spec_names import from_json
from .errors import Mistake, join
from .fields import Field, describe, members, split
from .sections import Read

WEIGHTS, MANIFEST = "model.safetensors", "manifest.json"  # of a checkpoint folder
RESULT = "result.json"  # of a recipe
CHECKPOINTS = "checkpoints"  # the folder of them in that of a run
LATEST = "latest"  # a link to the newest run
FOLD = "fold-"  # before the number of a fold, whose run is a folder in that of all
ALONE = (".safetensors", ".pt", ".pth", ".bin")  # files of weights alone, of whatever made them
ZOO = "zoo:"


def weights_alone(ref: str) -> bool:
    """Whether a reference to weights is the path of a file that holds nothing else."""
    return Path(ref).suffix.lower() in ALONE and not os.path.isdir(ref)


def fit_saved(read: Read, registry: Registry, spec: DataSpec | None = None) -> Iterable[Mistake]:
    """Trained models that the fields of a part name and that are not there, or of other data than `spec`."""
    neutral = getattr(read.entry.part, "neutral", None)
    off = neutral and all(getattr(read.config, name, None) == value for name, value in neutral.items())
    for values in (read.options, None if off else read.config):  # of no strength, it needs no model
        if is_dataclass(values):
            for path, ref, kind in _named(values, read.path):
                absent = list(_absent(path, ref, kind, registry))
                yield from absent
                if kind.alike and spec is not None and not absent:
                    yield from _of_other_data(path, ref, spec, registry)


def _named(config: Any, path: str) -> Iterator[tuple[str, str, SavedModel]]:
    """Every trained model that a config dataclass names, with its dotted path."""
    cls: Any = type(config)
    for field in _naming(cls):
        yield from _in(field.hint, getattr(config, field.name), join(path, field.name))


@functools.cache
def _naming(cls: type[Any]) -> tuple[Field, ...]:
    """The fields of a config dataclass that may name a trained model, or hold what does."""
    return tuple(field for field in describe(cls) if not _plain(field.hint))


def _plain(hint: Any) -> bool:
    """Whether values of a type are numbers, texts and containers of such, which name no trained model."""
    inner = [member for member in getattr(hint, "__args__", ()) if member is not Ellipsis]
    if notes := getattr(hint, "__metadata__", ()):
        return not any(isinstance(note, SavedModel) for note in notes) and all(map(_plain, inner))
    if typing.get_origin(hint) is typing.Literal:
        return True
    return all(map(_plain, inner)) if inner else hint in (bool, int, float, str, Path, type(None))


def _in(hint: Any, value: Any, path: str) -> Iterator[tuple[str, str, SavedModel]]:
    bare, notes = split(hint)
    alternatives = [split(member) for member in members(bare)]
    if isinstance(value, str) and value.strip():
        notes = (*notes, *(note for _, inner in alternatives for note in inner))
        yield from ((path, value, note) for note in notes if isinstance(note, SavedModel))
    elif is_dataclass(value):
        yield from _named(value, path)
    elif isinstance(value, list | tuple | Mapping):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        inside = dict.fromkeys(
            a for one, _ in alternatives for a in typing.get_args(one) if a is not Ellipsis
        )
        yield from (found for key, item in items for a in inside for found in _in(a, item, join(path, key)))


def _absent(path: str, ref: str, kind: SavedModel, registry: Registry) -> Iterator[Mistake]:
    expected = "a run folder, a checkpoint folder or zoo:name"
    if kind.files:
        expected = f"a run folder, a checkpoint folder, zoo:name or a file of weights ({', '.join(ALONE)})"
    if ref.startswith(ZOO):
        message, near, hint = _recipe(ref.removeprefix(ZOO), registry)
    elif kind.files and weights_alone(ref):
        message = "" if os.path.exists(ref) else f"there is no file {ref!r}"
        near, hint = _beside(ref), ""
    else:
        message, near, hint = _run(ref)
    if message:
        yield Mistake(path=path, message=message, expected=expected, nearest=tuple(near), hint=hint)


def _of_other_data(path: str, ref: str, spec: DataSpec, registry: Registry) -> Iterator[Mistake]:
    """A trained model that cannot read such inputs, or predicts other numbers of classes or values."""
    theirs = _trained_on(ref, registry)
    if theirs is None:
        return
    pairs = [(spec.target, theirs.target)]
    if len(spec.inputs) == len(theirs.inputs):
        pairs += zip(spec.inputs, theirs.inputs, strict=True)
    if any(_apart(ours, other) for ours, other in pairs):
        yield Mistake(
            path=path,
            message=f"{ref!r} was trained on {theirs}, and the data is {spec}",
            expected="a model of the same inputs and the same target",
        )


def _apart(ours: Spec | None, other: Spec | None) -> bool:
    """Whether no model fits both; False where a model may well, as one of pictures of any size."""
    if isinstance(ours, Image) and isinstance(other, Image):
        sizes = (ours.channels, other.channels)
    elif isinstance(ours, Vector | Image) and isinstance(other, Vector | Image):
        sizes = (ours.size, other.size)  # a picture may be read as a vector
    elif isinstance(ours, Classes | Labels | Values) and type(ours) is type(other):
        sizes = (ours.size, other.size)
    else:
        return False
    return None not in sizes and sizes[0] != sizes[1]


def _trained_on(ref: str, registry: Registry) -> DataSpec | None:
    """The spec of the data of a trained model; None where it is not known, or its plugin is not here."""
    if ref.startswith(ZOO):
        folders = registry.recipe_folders() or Registry.discover().recipe_folders()
        name = ref.removeprefix(ZOO).rpartition(":")[2]
        notes = [folder / RESULT for known, folder, _ in folders if known == name]
    else:
        notes = [Path(ref) / MANIFEST, *sorted((Path(ref) / CHECKPOINTS).glob(f"*/{MANIFEST}"))]
    for note in notes:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return from_json(json.loads(note.read_text("utf-8"))["spec"], registry.specs.find)
    return None


def _recipe(ref: str, registry: Registry) -> tuple[str, list[str], str]:
    """What is wrong with a name of the zoo, if anything; the nearest names; how to mend it."""
    dist, _, name = ref.rpartition(":")
    folders = registry.recipe_folders() or Registry.discover().recipe_folders()
    found = [folder for known, folder, owner in folders if known == name and dist in ("", owner)]
    if found and any((folder / WEIGHTS).is_file() for folder in found):
        return "", [], ""
    if found:
        hint = f"make them: pegboard zoo train {name}"
        return f"{ZOO}{ref} is a recipe without weights", [], hint
    with_weights = sorted({known for known, folder, _ in folders if (folder / WEIGHTS).is_file()})
    hint = "list them: pegboard zoo list" if folders else "there are none: pip install pegboard-zoo"
    near = [f"{ZOO}{known}" for known in nearest(name, with_weights)]
    return f"no recipe {ref!r} in the zoo", near, hint


def _run(ref: str) -> tuple[str, list[str], str]:
    """What is wrong with the folder of a run, if anything; folders that may be meant; how to mend it."""
    path = follow(Path(ref))
    with suppress(OSError, ValueError):
        if (path / MANIFEST).is_file() or any((path / CHECKPOINTS).glob(f"*/{MANIFEST}")):
            return "", [], ""
    if not os.path.exists(ref):
        folder = path.parent
        hint = "" if os.path.isdir(folder) else _nearest_folder(path)
        return f"there is no run or checkpoint {ref!r}", _beside(ref), hint
    if os.path.isdir(first := path / f"{FOLD}0"):
        hint = f"name one of its runs, as {first}"
        return f"{ref!r} is a cross-validation, which has no weights of its own", [], hint
    if not os.path.isdir(path):
        return f"{ref!r} is a file, not the folder of a run", [], ""
    hint = f"the newest run in it: {path / LATEST}" if os.path.exists(path / LATEST) else ""
    return f"{ref!r} holds no checkpoint", [], hint


def _beside(ref: str) -> list[str]:
    """What has a like name in the same folder."""
    path, inside = Path(ref), list[str]()
    with suppress(OSError, ValueError):  # a folder that is not there, or that nobody may read
        inside = sorted(os.listdir(path.parent))
    return [str(path.parent / name) for name in nearest(path.name, inside)]


def _nearest_folder(path: Path) -> str:
    """What there is of a path, and what may have been meant by the rest."""
    missing, folder = path.name, path.parent
    while not os.path.isdir(folder) and folder != folder.parent:
        missing, folder = folder.name, folder.parent
    inside = list[str]()
    with suppress(OSError, ValueError):
        inside = sorted(p.name for p in folder.iterdir() if p.is_dir())
    if close := nearest(missing, inside, 1):
        return f"did you mean {str(folder / close[0])!r}?"
    some = ", ".join(inside[:5]) + (", ..." if len(inside) > 5 else "")
    return f"the nearest folder is {str(folder)!r}, which holds {some or 'no folders'}"
