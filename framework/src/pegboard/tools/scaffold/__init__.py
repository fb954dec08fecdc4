"""A new plugin, written from templates: what `pegboard new` does. No torch at import.

A template is named for the file that it becomes, with `.in` behind it. In it `part_name`, `PartName`,
`part-slug`, `part-dist` and `part_module` stand for what the author calls things, so that it reads as the
code it will be. A line `include NAME` stands for the text of another template.
"""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from ...base.nearest import nearest
from ...base.version import __version__
from ...config.schema import HEADER
from ...contract.kinds import KINDS

WRITTEN = (*KINDS, "recipe")  # what a plugin may be written for
CALLED = {"trick": "regularizer", "callback": "regularizer", "logger": "tracker", "data": "dataset"}
LONGEST = 32  # characters of a name: lines of the templates are short enough for it
YAML = {"null", "true", "false", "yes", "no", "on", "off"}  # words that are no names in a config

TEMPLATES = Path(__file__).parent / "templates"
# Where a template goes that does not belong to the package itself.
PLACES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "config.yaml": "config.yaml",
    "gitignore": ".gitignore",
    "test.yml": ".github/workflows/test.yml",
    "test_conformance.py": "tests/test_conformance.py",
}
FOR_EDITORS = f"""\
{HEADER}pegboard.schema.json
# Editors complete and check this file once `pegboard schema -o pegboard.schema.json` has written that one.
"""


class Draft:
    """A plugin to be written: its kind, and what its author calls it."""

    def __init__(self, kind: str, name: str, dist: str = "", folder: str | Path = "") -> None:
        self.kind, self.given = kind, name
        self.name = name.replace("-", "_")
        self.slug = name.replace("_", "-")
        self.dist = dist or f"pegboard-{self.slug}"
        self.module = self.dist.replace("-", "_")
        self.folder = Path(folder or self.dist)
        self.cls = "".join(word.capitalize() for word in self.name.split("_"))

    @cached_property
    def templates(self) -> dict[str, str]:
        """The text of each template, by the name of what it becomes."""
        found = {}
        for root in (TEMPLATES / "common", TEMPLATES / self.kind):
            for path in root.rglob("*.in"):
                found[path.relative_to(root).as_posix().removesuffix(".in")] = path.read_text("utf-8")
        return found

    def files(self) -> dict[str, str]:
        """Every file of the plugin: its path, and what it holds."""
        words = self._words()

        def filled(text: str) -> str:
            text = re.sub(r"^include (\S+)\n", lambda found: self.templates[found[1]], text, flags=re.M)
            return re.sub("|".join(words), lambda found: words[found[0]], text)

        made = {f"src/{self.module}/py.typed": ""}
        for name, text in self.templates.items():
            place = PLACES.get(name, f"src/part_module/{name}")
            made[filled(place)] = (FOR_EDITORS if name == "config.yaml" else "") + filled(text)
        return dict(sorted(made.items()))

    def write(self) -> None:
        """Write all files."""
        for path, text in self.files().items():
            place = self.folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8", newline="\n")

    def _words(self) -> dict[str, str]:
        """What stands in the templates, and what it stands for."""
        least, below, oldest = core_range(__version__)
        needs = [f"pegboard>={least},<{below}"]
        code = [text for name, text in self.templates.items() if name.endswith(".py")]
        if any(re.search(r"^(import|from) torch", text, re.M) for text in code):
            needs.append("torch")  # the core says which
        if self.kind == "recipe":  # which needs the parts that it names, not only to be tested
            needs += re.findall(r"pegboard-\w+", self.templates["pyproject.toml"])
        return {
            "part_name": self.name,
            "PartName": self.cls,
            "part-slug": self.slug,
            "part-dist": self.dist,
            "part_module": self.module,
            "part_summary": self.templates["__init__.py"].removeprefix('"""').partition(".")[0],
            "part_needs": ", ".join(f'"{need}"' for need in needs),
            "core_oldest": oldest,
        }

    def mistakes(self) -> Iterator[str]:
        """All that is wrong with what was asked for; nothing where it can be written."""
        if self.kind not in WRITTEN:
            near = [CALLED[self.kind]] if self.kind in CALLED else nearest(self.kind, WRITTEN)
            yield f"unknown kind {self.kind!r}{_hint(near)}\n    kinds: {', '.join(WRITTEN)}"
        fine = _fine(self.given, "[_-]", LONGEST)
        if not fine:
            near = [mended.replace("-", "_")] if (mended := _mended(self.given)) else []
            yield (
                f"{self.given!r} is no name for a part{_hint(near)}\n    expected words of lower case "
                f"letters and digits with _ or - between them, {LONGEST} characters at most, as in max_norm"
            )
        else:
            yield from self._wrong_name()
        if fine or self.dist != f"pegboard-{self.slug}":  # else what is wrong with it was told
            yield from self._wrong_dist()
        if self.folder.is_dir() and any(self.folder.iterdir()):
            yield f"the folder {str(self.folder)!r} is not empty; choose another with --folder"
        elif self.folder.exists() and not self.folder.is_dir():
            yield f"{str(self.folder)!r} is a file; choose another with --folder"

    def _wrong_name(self) -> Iterator[str]:
        known = _known_parts().get(self.kind, {})
        if self.name in YAML or keyword.iskeyword(self.name) or keyword.iskeyword(self.cls):
            yield f"the name {self.given!r} is a word of Python or YAML; choose another"
        elif self.name in sys.stdlib_module_names:
            yield f"the name {self.given!r} is that of a module of Python; choose another"
        elif self.cls in dir(builtins) or self.cls in self._defined():
            yield f"the name {self.given!r} would make a class {self.cls}, which there is; choose another"
        elif self.name in known:
            yield f"{known[self.name]} has a {self.kind} {self.name!r} already; choose another name"

    def _wrong_dist(self) -> Iterator[str]:
        taken = {"pegboard", "torch", *(dist for parts in _known_parts().values() for dist in parts.values())}
        if not _fine(self.dist, "-", 2 * LONGEST):
            near = [mended] if (mended := _mended(self.dist)) else []
            yield (
                f"{self.dist!r} is no name for a distribution{_hint(near)}\n    expected words of lower case "
                "letters and digits with - between them, as in acme-max-norm"
            )
        elif self.module in sys.stdlib_module_names or keyword.iskeyword(self.module):
            yield f"a distribution {self.dist!r} would hide what Python has; choose another with --dist"
        elif self.dist in taken:
            yield f"there is a distribution {self.dist!r} already; choose another: --dist acme-{self.slug}"

    def _defined(self) -> set[str]:
        """The names that its code has besides those that follow from its own."""
        found: set[str] = set()
        for name, text in self.templates.items() if self.kind in WRITTEN else ():
            for node in ast.walk(ast.parse(text)) if name.endswith(".py") else ():
                if isinstance(node, ast.Import | ast.ImportFrom):
                    found |= {alias.asname or alias.name for alias in node.names}
                elif isinstance(node, ast.ClassDef):
                    found.add(node.name)
        return found


def core_range(version: str) -> tuple[str, str, str]:
    """For a version of the core: the least that fits, the first that does not, a pattern for the least."""
    from packaging.version import Version

    found = Version(version)
    least = f"{found.major}.{found.minor}"
    if found.is_prerelease:  # which comes before the release of its number
        return version, str(found.major + 1), version
    return least, str(found.major + 1), f"{least}.*"


def _fine(text: str, between: str, longest: int) -> bool:
    """Whether it is words of lower case letters and digits with such a character between them."""
    return len(text) <= longest and bool(re.fullmatch(rf"[a-z][a-z0-9]*({between}[a-z0-9]+)*", text))


def _mended(text: str) -> str:
    """The likeliest good spelling of a name, or ""."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", text).lower()
    near = re.sub(r"[^a-z0-9]+", "-", spaced).strip("-")
    return near if _fine(near, "-", LONGEST) else ""


def _hint(near: list[str]) -> str:
    return f", did you mean {near[0]!r}?" if near else ""


def _known_parts() -> Mapping[str, Mapping[str, str]]:
    """Kind -> part -> the distribution of the project that offers it."""
    path = Path(__file__).parents[2] / "registry" / "known_parts.json"
    found: Mapping[str, Mapping[str, str]] = json.loads(path.read_text("utf-8"))
    return found
