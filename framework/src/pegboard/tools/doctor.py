"""What is wrong with the installed plugins, each looked at in a process of its own."""

from __future__ import annotations

import json
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ..base.errors import PegboardError
from ..base.version import __version__
from ..registry.discovery import SLOW
from ..registry.enabled import Switches, absent, did_you_mean, matches
from ..registry.installed import (
    GROUP,
    Found,
    canonical,
    core_range,
    find_installed,
    names_of,
    negotiate,
    place,
)
from .isolated_import import LIMIT, Imported, import_each

MOST = 5  # deprecations that are told of a plugin
RANGE = f'"pegboard>={__version__.rpartition(".")[0]},<{int(__version__.split(".")[0]) + 1}"'


@dataclass(frozen=True)
class Finding:
    """One thing about a plugin, and what to do."""

    kind: str  # import, crash, hang, heavy, slow, noise, random, network, change, shadowed, entry-point, ...
    text: str
    hint: str = ""
    wrong: bool = True  # or only a remark


@dataclass
class Examined:
    """A plugin and what was found."""

    name: str  # of the entry point
    dist: str  # distribution, or the path of a local file
    version: str
    target: str
    status: str = "found"  # ready, broken, disabled, incompatible, shadowed, not installed
    milliseconds: float = 0.0
    parts: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """One word: disabled, wrong, remark or well."""
        if any(finding.wrong for finding in self.findings):
            return "wrong"
        return "disabled" if self.status == "disabled" else "remark" if self.findings else "well"

    def found(self, kind: str, text: str, hint: str = "", wrong: bool = True) -> None:
        self.findings.append(Finding(kind, text, hint, wrong))


def examine(
    names: Sequence[str] = (), limit: float = LIMIT, tell: Callable[[int, int], None] = lambda done, of: None
) -> list[Examined]:
    """Look at the plugins of these names, distributions or paths of local files; at all where there are none.

    `tell` is told how many were imported, and of how many.
    """
    found = list(find_installed())
    switches = Switches()
    switches.check(names_of(found))
    stale = _stale()
    files = [name for name in names if name.endswith(".py")]
    words = [name for name in names if name not in files]
    _check_names(words, found, stale)
    every = not names
    chosen = [one for one in found if every or any(matches(word, one[0]) for word in words)]
    looked = [
        *(_metadata(one, found, switches) for one in chosen),
        *(Examined(require_file(file).stem, file, "local", file) for file in files),
    ]
    running = [one for one in looked if one.status == "found"]
    tell(0, len(running))
    for done, (index, seen) in enumerate(import_each([one.target for one in running], limit), 1):
        _judge(running[index], seen)
        tell(done, len(running))
    _clashes(looked)
    for name, left in stale.items():
        if one := next((o for o in looked if o.dist == name and o.status != "shadowed"), None):
            one.findings += left.findings
        elif every or any(canonical(word) == name for word in words):
            looked.append(left)
    return looked


def _check_names(words: Sequence[str], found: Sequence[Found], stale: Collection[str]) -> None:
    known = names_of(found) | {*stale}
    if wrong := absent(words, known):
        told = [f"no plugin {name!r} is installed.{did_you_mean(name, known)}" for name in wrong]
        raise PegboardError("\n".join((*told, "List them: pegboard plugins list")))


def require_file(name: str) -> Path:
    """The path of a Python file that a person named; where there is none, the nearest is told."""
    path = Path(name)
    if not path.is_file():
        beside = [other.name for other in path.absolute().parent.glob("*.py")]
        raise PegboardError(f"no file {name!r}.{did_you_mean(path.name, beside)}")
    return path


def _metadata(one: Found, found: Sequence[Found], switches: Switches) -> Examined:
    """What can be said of a plugin before any of its code runs."""
    plugin, _, dist = one
    made = Examined(plugin.name, plugin.dist, plugin.version, plugin.target, plugin.status)
    if plugin.status == "shadowed":
        first = next(d for p, _, d in found if p.dist == plugin.dist and p.status != "shadowed")
        made.found(
            "shadowed",
            f"this copy, {plugin.version} in {place(dist)}, is hidden by {first.version} in {place(first)}, "
            "which stands earlier on sys.path",
            f"remove one of them: pip uninstall {plugin.dist} takes the first",
        )
        return made
    if why := switches.off(plugin):
        made.status = "disabled"
        made.found("disabled", why, wrong=False)
        return made
    same = [p.dist for p, _, _ in found if p.name == plugin.name and p.dist != plugin.dist]
    if same:
        made.found(
            "clash",
            f"its entry point {plugin.name!r} is also one of {', '.join(sorted(set(same)))}",
            "name them by their distributions in configs and switches",
            wrong=False,
        )
    negotiate(plugin)
    made.status = plugin.status
    if plugin.status == "incompatible":
        made.found("incompatible", plugin.reason, f"or do without it: pegboard plugins disable {plugin.dist}")
    elif not _bounded(plugin.needs):
        text = "it does not say with which releases of the core it works, from the oldest to the newest"
        made.found("unpinned", text, f"its author declares them: dependencies = [{RANGE}]", wrong=False)
    return made


def _bounded(needs: Sequence[str]) -> bool:
    """Whether requirements name an oldest and a newest release of the core."""
    operators = {spec.operator for spec in core_range(needs)}
    exact = bool({"==", "===", "~="} & operators)
    return exact or bool({">", ">="} & operators and {"<", "<="} & operators)


def _judge(one: Examined, seen: Imported) -> None:
    """What the import showed."""
    one.status = "broken" if seen.error else "ready"
    one.milliseconds, one.parts = seen.milliseconds, seen.parts
    without = f"or do without it: pegboard plugins disable {one.dist}"
    if one.version == "local":
        without = "or leave it out of plugins.local"
    if seen.error:
        kind = "hang" if seen.hung else "crash" if seen.signal else seen.phase
        at = f" (at {seen.where})" if seen.where else ""
        one.found(kind, f"{seen.error}{at}", f"{_remedy(kind, seen)}, {without}")
    for finding in _manners(seen):
        one.findings.append(finding)
    for text in seen.health:
        one.found("health", text)
    for text in seen.remarks:
        if not (seen.heavy and text.startswith("imports ")):  # told with what it costs
            one.found("record", text, "its author mends that", wrong=False)
    for text in _few(seen.warnings):
        one.found("deprecated", text, "its author changes that line", wrong=False)


def _remedy(kind: str, seen: Imported) -> str:
    if kind == "hang":
        return "give it longer with --limit, tell its author"
    if "ModuleNotFoundError" in seen.error:
        return "install what it lacks"
    return "tell its author"


def _manners(seen: Imported) -> Iterator[Finding]:
    """What a light module must not do when it is imported."""
    later = "its author does that inside the build functions, or not at all"
    if seen.heavy:
        text = f"it imports {', '.join(seen.heavy)}, which every command then waits for"
        yield Finding("heavy", text, later)
    elif seen.milliseconds > SLOW:
        text = f"its import takes {seen.milliseconds:.0f} ms, which every command waits for"
        yield Finding("slow", text, later, wrong=False)
    if printed := seen.printed.strip():
        yield Finding("noise", f"it prints: {printed.splitlines()[0]!r}", later)
    if seen.drew:
        text = "it draws random numbers from Python's own stream, so that a run with it is another"
        yield Finding("random", text, "a build function has context.generator()")
    if seen.network:
        yield Finding("network", f"it asks the network: {', '.join(seen.network)}", later)
    if seen.changed:
        yield Finding("change", f"it changes {', '.join(seen.changed)}", later)


def _few(texts: Sequence[str]) -> Iterator[str]:
    yield from texts[:MOST]
    if len(texts) > MOST:
        yield f"and {len(texts) - MOST} more like these"


def _clashes(looked: Sequence[Examined]) -> None:
    """Parts of one kind and name that several plugins offer."""
    owners: dict[str, list[Examined]] = {}
    for one in looked:
        for part in one.parts:
            owners.setdefault(part, []).append(one)
    for part, several in owners.items():
        for one in several if len(several) > 1 else ():
            others = ", ".join(sorted(other.dist for other in several if other is not one))
            name = part.split(" ")[1]
            hint = f"a config that means this one writes {one.dist}:{name}"
            one.found("clash", f"its {part} is also offered by {others}", hint, wrong=False)


# Entry points that a checkout has and its installation has not.


def _stale() -> dict[str, Examined]:
    """Distributions installed for editing whose checkout has other entry points than what is installed."""
    found: dict[str, Examined] = {}
    for dist in metadata.distributions():
        try:
            if (folder := _checkout(dist)) is None:
                continue
            made = Examined("", canonical(dist.metadata["Name"]), dist.version, "", "not installed")
            for text in _differences(folder, dist):
                made.found("entry-point", text, f"install it again: pip install -e {folder}")
        except Exception:  # a damaged installation is not ours to report
            continue
        if made.findings:
            found.setdefault(made.dist, made)
    return found


def _checkout(dist: metadata.Distribution) -> Path | None:
    """The folder from which a distribution is installed for editing."""
    told: dict[str, Any] = json.loads(dist.read_text("direct_url.json") or "{}")
    if not told.get("dir_info", {}).get("editable"):
        return None
    return Path(urllib.request.url2pathname(urllib.parse.urlparse(told["url"]).path))


def _differences(folder: Path, dist: metadata.Distribution) -> Iterator[str]:
    """What differs between the entry points of a checkout and of its installation."""
    file = folder / "pyproject.toml"
    tree = tomllib.loads(file.read_text("utf-8"))
    project = tree.get("project", {})
    if "entry-points" in project.get("dynamic", ()):
        return
    written = project.get("entry-points", {}).get(GROUP) or _poetry(tree)
    there = {p.name: p.value for p in dist.entry_points if p.group == GROUP}
    for name, value in written.items():
        if name not in there:
            yield f"{file} has the entry point {name!r}, which is not installed"
        elif there[name] != value:
            yield f"{file} says {name} = {value!r}, but {there[name]!r} is installed"
    for name in there:
        if name not in written:
            yield f"the entry point {name!r} is installed, but {file} has it no more"


def _poetry(tree: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = tree.get("tool", {}).get("poetry", {}).get("plugins", {}).get(GROUP, {})
    return found
