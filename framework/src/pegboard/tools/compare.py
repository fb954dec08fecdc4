"""What differs between two run folders, from what they record. Nothing of them is run; no torch is needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..config.errors import leaves
from ..config.moved_fields import LEFT
from ..store.run_reader import Recorded

SECTIONS = ("config", "plugins", "data", "environment", "history", "weights", "figures")


class _Absent:
    """A value that is not there, which null is not."""

    def __repr__(self) -> str:
        return "not there"


ABSENT = _Absent()


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same in both runs."""

    path: str
    a: Any
    b: Any
    origin_a: str = ""  # where a value was written, or the interval in which a mean lies
    origin_b: str = ""
    decides: bool = True  # whether runs that should be equal may not differ in it

    @property
    def both(self) -> bool:
        """Whether both runs have a value."""
        return self.a is not ABSENT and self.b is not ABSENT

    @property
    def by_default(self) -> bool:
        """Whether no one wrote either value, so that it follows from others."""
        return {self.origin_a, self.origin_b} in ({"default"}, {"default", ""})

    def to_json(self) -> dict[str, Any]:
        values = {k: v for k, v in (("a", self.a), ("b", self.b)) if v is not ABSENT}
        origins = {"origin_a": self.origin_a, "origin_b": self.origin_b}
        return {"path": self.path, **values, **{k: v for k, v in origins.items() if v}}


@dataclass(frozen=True)
class History:
    """How far two histories go together, and where they part first."""

    rows_a: int
    rows_b: int
    equal: int  # rows before the first that differs
    step: int | None = None  # of that row
    differences: tuple[Difference, ...] = ()  # in that row, the losses first
    lacks: str = ""  # "a" or "b", where one of them has no such row
    later: tuple[int, Difference] | None = None  # step and loss that differ first, where not in that row

    @property
    def ended(self) -> bool:
        """Whether one of them only goes on where the other ends."""
        return bool(self.lacks) and self.equal == (self.rows_a if self.lacks == "a" else self.rows_b)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"rows_a": self.rows_a, "rows_b": self.rows_b, "equal_rows": self.equal}
        if self.step is not None:
            found |= {"step": self.step, "differences": [d.to_json() for d in self.differences]}
        if self.lacks:
            found["lacks"] = self.lacks
        if self.later:
            found["later"] = {"step": self.later[0], **self.later[1].to_json()}
        return found


@dataclass
class Comparison:
    """All that differs between two runs."""

    a: Recorded
    b: Recorded
    found: dict[str, list[Difference]] = field(default_factory=dict)
    history: History = field(default_factory=lambda: History(0, 0, 0))
    notes: list[str] = field(default_factory=list)  # what could not be compared

    @property
    def decisive(self) -> list[str]:
        """The sections in which runs that should be equal are not."""
        return [
            name
            for name in SECTIONS
            if any(d.decides for d in self.found.get(name, ()))
            or (name == "history" and self.history.step is not None)
        ]

    @property
    def equal(self) -> bool:
        return not self.decisive

    @property
    def written(self) -> list[Difference]:
        """The values of the config that somebody wrote; all of them, where nobody did."""
        config = [d for d in self.found["config"] if d.decides]
        return [d for d in config if not d.by_default] or config

    def to_json(self) -> dict[str, Any]:
        sections = {n: [d.to_json() for d in self.found[n]] for n in SECTIONS if n != "history"}
        return {
            "a": self.a.to_json(),
            "b": self.b.to_json(),
            "equal": self.equal,
            "different": self.decisive,
            **sections,
            "history": self.history.to_json(),
            "notes": self.notes,
        }


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal to the last bit; nan is equal to nan, and true is not 1."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


def differences(a: Mapping[str, Any], b: Mapping[str, Any], decides: bool = True) -> list[Difference]:
    """What two flat mappings do not have in common, in the order of the first."""
    pairs = [(p, a.get(p, ABSENT), b.get(p, ABSENT)) for p in dict.fromkeys((*a, *b))]
    return [Difference(p, x, y, decides=decides) for p, x, y in pairs if not same(x, y)]


def compare(one: str | Path, other: str | Path) -> Comparison:
    """Compare two run folders; a folder that is none is a PegboardError."""
    a, b = Recorded(one), Recorded(other)
    made = Comparison(a, b)
    made.found = {
        "config": _config(a, b),
        "plugins": _plugins(a, b, made.notes),
        "data": _data(a, b, made.notes),
        "environment": _environment(a, b),
        "weights": _weights(a, b, made.notes),
        "figures": _figures(a, b, made.notes),
    }
    made.history = histories(a.rows, b.rows)
    made.notes[:0] = [*a.notes, *b.notes]
    return made


def _config(a: Recorded, b: Recorded) -> list[Difference]:
    def empty(value: Any, path: str, other: Recorded) -> bool:
        """A node without values, which the other run has with some: those are listed."""
        return value == {} and any(p.startswith(f"{path}.") for p in other.config)

    def left(d: Difference) -> bool:
        """A field that the core had when one of the runs was made, and that did nothing in it."""
        return ABSENT in (d.a, d.b) and d.path in LEFT and LEFT[d.path] in (d.a, d.b)

    def origin(run: Recorded, d: Difference, value: Any) -> str:
        return "" if value is ABSENT else str(run.origins.get(d.path, ""))

    found = [
        replace(d, origin_a=origin(a, d, d.a), origin_b=origin(b, d, d.b), decides=d.path != "name")
        for d in differences(a.config, b.config)
        if not (empty(d.a, d.path, b) or empty(d.b, d.path, a) or left(d))
    ]
    return sorted(found, key=lambda d: d.by_default)  # what somebody wrote comes first


def _plugins(a: Recorded, b: Recorded, notes: list[str]) -> list[Difference]:
    """Versions of plugins, hashes of local ones, and parts of one name that come from different plugins."""
    hashed = "local" in a.environment and "local" in b.environment  # older versions did not
    ours, theirs = _versions(a, hashed), _versions(b, hashed)
    for run, versions in ((a, ours), (b, theirs)):
        if not versions:
            notes.append(f"{run.path} does not say with which plugins it was made")
    if not ours or not theirs:
        return []
    moved = [
        d
        for d in differences(a.section("parts"), b.section("parts"))
        if str(d.a).rpartition(":")[2] == str(d.b).rpartition(":")[2]
    ]
    return [*differences(ours, theirs), *moved]


def _versions(run: Recorded, hashed: bool) -> dict[str, str]:
    """Distribution -> version of the plugins of a run, from its beginning and from its checkpoints."""
    versions = {dist: str(version) for dist, version in run.section("plugins").items()}
    for dist, digest in run.section("local").items() if hashed else ():
        versions[dist] = f"local, sha256 {str(digest)[:12]}"
    for checkpoint in run.checkpoints().values():
        later = checkpoint.manifest.get("plugins")
        for dist, version in later.items() if isinstance(later, dict) else ():
            known = versions.setdefault(dist, str(version))
            if str(version) not in (known, "local"):  # the run was resumed with another
                versions[dist] = f"{known.partition(', then ')[0]}, then {version}"
    return versions


def _data(a: Recorded, b: Recorded, notes: list[str]) -> list[Difference]:
    """The fingerprints decide; where there are none, whatever the data set noted."""
    ours, theirs = a.section("data"), b.section("data")
    both = "fingerprint" in ours and "fingerprint" in theirs
    if not both:
        lacking = [str(run.path) for run in (a, b) if "fingerprint" not in run.section("data")]
        notes.append(f"no fingerprint of the data in {' and '.join(lacking)}")
    shared = ours.keys() & theirs.keys()  # other versions may note other things
    one, other = (dict(leaves({k: v for k, v in data.items() if k in shared})) for data in (ours, theirs))
    found = [replace(d, decides=not both or d.path == "fingerprint") for d in differences(one, other)]
    if a.other_data or b.other_data:
        found += differences({"other data": a.other_data or "none"}, {"other data": b.other_data or "none"})
    if "start" in a.environment and "start" in b.environment:
        name = "weights it starts from"
        found += differences({name: a.environment["start"]}, {name: b.environment["start"]})
    return found


def _environment(a: Recorded, b: Recorded) -> list[Difference]:
    """What may change the last bits of a run but was not asked for by its config."""
    apart = {"plugins", "local", "parts", "data", "other_data", "start", "command", "git", "config"}
    ours, theirs = a.environment, b.environment
    shared = [  # other versions may record other things, or in another form
        key
        for key, value in ours.items()
        if key not in apart and key in theirs and isinstance(value, dict) == isinstance(theirs[key], dict)
    ]
    one, other = (dict(leaves({k: found[k] for k in shared})) for found in (ours, theirs))
    if "git" in ours and "git" in theirs:
        one["git commit"], other["git commit"] = (r.section("git").get("commit", "none") for r in (a, b))
    if a.origins and b.origins:  # an older version kept no diff
        one["git diff"], other["git diff"] = a.git_diff, b.git_diff
    return differences(one, other, decides=False)


def _weights(a: Recorded, b: Recorded, notes: list[str]) -> list[Difference]:
    """The best and the last weights, and those of every step that both still have."""
    ours, theirs = a.checkpoints(), b.checkpoints()
    for run, kept in ((a, ours), (b, theirs)):
        if not kept:
            notes.append(f"{run.path} has no checkpoint, so weights are not compared")
    found = []
    seen: set[tuple[Path, Path]] = set()
    for name in (n for n in ours if n in theirs):
        one, other = ours[name], theirs[name]
        pair = one.path.resolve(), other.path.resolve()
        if pair in seen:
            continue  # a step that was compared as the best or the last
        seen.add(pair)
        if one.step != other.step or (one.digest != other.digest and one.tensors != other.tensors):
            found.append(Difference(name, str(one), str(other)))
    return found


def _figures(a: Recorded, b: Recorded, notes: list[str]) -> list[Difference]:
    ours, theirs = (run.summary.get("figures") for run in (a, b))
    for run, figures in ((a, ours), (b, theirs)):
        if not isinstance(figures, dict):
            notes.append(f"{run.path} has no final figures: it is {run.status}")
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return []
    return [
        replace(d, origin_a=a.interval(d.path), origin_b=b.interval(d.path))
        for d in differences(_comparable(ours, theirs), _comparable(theirs, ours))
    ]


def _comparable(figures: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Without those of the training split where others lack them: not every run and version measures them."""
    measured = any(name.startswith("train/") for name in others)
    return {n: v for n, v in figures.items() if measured or not n.startswith("train/")}


def histories(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> History:
    """Where two histories part first: a row that one of them lacks, or a figure that is another."""
    ours, theirs = dict(_keyed(a)), dict(_keyed(b))
    history = History(len(a), len(b), len(ours))
    for equal, key in enumerate(sorted(ours.keys() | theirs.keys())):
        row, other = ours.get(key), theirs.get(key)
        found = [] if row is None or other is None else _in_row(row, other)
        if history.step is None and (row is None or other is None or found):
            lacks = "a" if row is None else "b" if other is None else ""
            history = replace(history, equal=equal, step=key[0], differences=tuple(found), lacks=lacks)
            if found and _loss(found[0]):
                break
        elif found and _loss(found[0]):
            return replace(history, later=(key[0], found[0]))
    return history


def _keyed(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[int, int], Mapping[str, Any]]]:
    """Rows by step; a step may have several, as the last one has, with the test split."""
    count: dict[int, int] = {}
    for row in rows:
        step = int(row["step"])
        yield (step, count.get(step, 0)), row
        count[step] = count.get(step, 0) + 1


def _in_row(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    return sorted(differences(a, b), key=lambda d: not _loss(d))


def _loss(difference: Difference) -> bool:
    return difference.path.endswith("loss")
