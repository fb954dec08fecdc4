"""Keys that stand in the wrong node: where in the config they belong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..registry import Registry
from .fields import describe
from .nearest import CUTOFF, score
from .nodes import DataOptions, Plugins, Trainer
from .report import Mistake, listed
from .sections import Read, part_fields, section

TOP = (
    "name",
    "seed",
    "data",
    "model",
    "optimizer",
    "objective",
    "regularizers",
    "trainer",
    "trackers",
    "plugins",
)


def relocate(mistakes: Iterable[Mistake], reads: Mapping[str, Read], registry: Registry) -> Iterator[Mistake]:
    """Mistakes with, for each unknown key, the node that has such a key."""
    core = dict(_core())
    own = dict(_parts(reads, registry))
    for mistake in mistakes:
        yield _relocate(mistake, core, own, reads, registry) if mistake.unknown else mistake


def _core() -> Iterator[tuple[str, str]]:
    """Dotted path and key of everything that is the core's."""
    for name in TOP:
        yield name, name
    for path, cls in (("trainer", Trainer), ("data", DataOptions), ("plugins", Plugins)):
        for field in describe(cls):
            yield f"{path}.{field.name}", field.name
    yield "optimizer.schedule", "schedule"
    yield "model.weights", "weights"


def _parts(reads: Mapping[str, Read], registry: Registry) -> Iterator[tuple[str, str]]:
    """Dotted path and key of what the parts of this config have, and of parts that stand under a key."""
    for path, read in reads.items():
        for field in part_fields(read.entry):
            yield f"{path}.{field.name}", field.name
    for kind in ("model", "optimizer", "dataset", "objective"):
        if section(kind) not in reads:  # any that may yet be named there
            for entry in registry.entries(kind):
                for field in part_fields(entry):
                    yield f"{section(kind)}.{field.name}", field.name
    for kind in ("regularizer", "tracker"):
        for entry in registry.entries(kind):
            yield f"{section(kind)}.{entry.part.name}", entry.part.name


def _relocate(
    mistake: Mistake,
    core: Mapping[str, str],
    own: Mapping[str, str],
    reads: Mapping[str, Read],
    registry: Registry,
) -> Mistake:
    key = mistake.unknown
    parent = mistake.path.removesuffix(key).rstrip(".")
    first = key.split(".")[0]
    if "." in key and first in TOP:
        nested = f"nest it: {first}: {{{key.partition('.')[2].replace('.', ': {')}: ..."
        nested += "}" * key.count(".")
        return replace(mistake, hint=nested, nearest=())
    siblings: list[str] = []
    if parent in reads:
        kind = reads[parent].entry.part.kind
        siblings = [e.part.name for e in registry.entries(kind) if any(f.name == key for f in part_fields(e))]
    places = core if siblings else {**core, **own}
    scored = [(score(key, name), path) for path, name in places.items() if path.rpartition(".")[0] != parent]
    best, place = max(scored, key=lambda s: (s[0], -s[1].count(".")))
    here = max((score(key, n) for n in mistake.nearest), default=0.0)
    if best >= 0.75 and best > here + 0.1:
        top = "" if "." in place else f"{place!r} stands at the top of the config: is it indented too far?\n"
        mistake = replace(mistake, nearest=(place, *mistake.nearest), hint=f"{top}{mistake.hint}".strip())
    if siblings:
        if here < CUTOFF:  # a guess from the value is worth less than this
            mistake = replace(mistake, nearest=tuple(n for n in mistake.nearest if "." in n))
        kind = reads[parent].entry.part.kind
        hint = f"{key!r} is a key of {kind} {listed(map(repr, siblings))}"
        mistake = replace(mistake, hint=f"{hint}\n{mistake.hint}".strip())
    return mistake
