"""Environments that hold built wheels of the project and nothing else of it.

Installing torch for every test would take minutes, so a sandbox borrows third-party packages from
the environment that runs the tests: links to those, and only those, that the wheels in it declare as
dependencies, and theirs. An import that a wheel does not declare fails here as it would for a user.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[3]
PROJECTS = sorted(
    path.parent
    for pattern in ("framework", "plugins/*", "zoo")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)


def build_wheels(folder: Path, projects: Iterable[Path] = PROJECTS) -> dict[str, Path]:
    """The wheels of projects, by the names of their distributions."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--no-index", "--wheel-dir", str(folder), *map(str, projects)]
    subprocess.run(command, check=True)
    return {str(parse_wheel_filename(path.name)[0]): path for path in sorted(folder.glob("*.whl"))}


def requirements(wheel: Path) -> list[Requirement]:
    """What a wheel says it depends on, extras left out."""
    (found,) = metadata.distributions(name=wheel.name.split("-")[0], path=[str(wheel)])
    parsed = [Requirement(text) for text in found.requires or []]
    return [r for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})]


def closure(wanted: Iterable[Requirement]) -> dict[str, metadata.Distribution]:
    """The installed third-party distributions that requirements lead to, theirs included."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    queue = [(r.name, extra) for r in wanted for extra in ("", *r.extras)]
    while queue:
        name, extra = queue.pop()
        name = canonicalize_name(name)
        if (name, extra) in seen or name.split("-")[0] == "pegboard":
            continue
        seen.add((name, extra))
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # `pip check` in the sandbox says so where it matters
        for text in found[name].requires or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                queue += [(needed.name, e) for e in ("", *needed.extras)]
    return found


@dataclass(frozen=True)
class Sandbox:
    """A virtual environment with wheels in it."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, wheels: Iterable[Path], tools: Iterable[str] = ()) -> Sandbox:
        """An environment with these wheels, and tools that none of them needs, such as pytest."""
        wheels = list(wheels)
        wanted = [*map(Requirement, tools), *(r for wheel in wheels for r in requirements(wheel))]
        sandbox = cls(folder)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        links = folder / "borrowed"
        links.mkdir()
        for found in closure(wanted).values():
            for top in {Path(file).parts[0] for file in found.files or []} - {"..", "__pycache__"}:
                if not (links / top).exists():
                    (links / top).symlink_to(Path(str(found.locate_file(top))))
        version = f"python{sysconfig.get_python_version()}"
        site = folder / "lib" / version / "site-packages"
        (site / "borrowed.pth").write_text(f"{links}\n")
        sandbox.pip("install", "--no-deps", "--no-index", "--no-compile", *map(str, wheels))
        return sandbox

    def pip(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the pip of this environment on the sandbox."""
        command = [sys.executable, "-m", "pip", "--python", str(self.folder / "bin" / "python")]
        quiet = ["--quiet", "--disable-pip-version-check"]
        outcome = subprocess.run([*command, *quiet, *words], capture_output=True, text=True)
        if words[0] == "install" and outcome.returncode:
            raise RuntimeError(outcome.stderr)
        return outcome

    def install(self, project: Path, extra: str = "") -> None:
        """Install a project for editing, as its author does, with what is here: hatchling must be."""
        words = ("--no-index", "--no-build-isolation", "--no-compile", "--editable")
        self.pip("install", *words, f"{project}[{extra}]" if extra else str(project))

    def run(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the sandbox, cut off from the environment that runs the tests."""
        with self.start(*words, cwd=cwd, env=env) as process:
            said = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, *said)

    def start(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """The same, to be spoken with while it runs."""
        kept = {key: os.environ[key] for key in ("HOME", "LANG", "PATH", "TMPDIR") if key in os.environ}
        kept |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        kept |= {"XDG_CACHE_HOME": str(self.folder / "cache"), **(env or {})}
        program, pipe = str(self.folder / "bin" / words[0]), subprocess.PIPE
        command = [program, *words[1:]]
        return subprocess.Popen(
            command, cwd=cwd or self.folder, env=kept, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
