"""Whether what a release publishes is whole: `make release-check`.

Builds the sdist of every project and the wheel from that sdist into dist/, looks both over, asks `twine
check` what an index would say of them, and installs each with the core, and with nothing that it does not
declare, into a fresh environment. `--tag v1.2.3` also holds version and changelog against the tag of a
release. `--set 1.2.3` writes a version into every project instead.
"""

from __future__ import annotations

import argparse
import email
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from email.message import Message
from pathlib import Path

from sandbox import PROJECTS, ROOT, Sandbox, requirements

DIST = ROOT / "dist"
ZOO = "zoo/pyproject.toml"
SITE = ("Homepage", "Source", "Issues", "Changelog")  # the addresses an index shows


def name_of(project: Path) -> str:
    return str(tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]["name"])


def core_version() -> str:
    text = (ROOT / "framework/src/pegboard/base/version.py").read_text("utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.M)[0]


def build(project: Path, folder: Path) -> tuple[Path, Path]:
    """The sdist of a project, and the wheel that is built from the sdist alone."""
    stem = f"{name_of(project).replace('-', '_')}-{core_version()}"
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sdist = folder / f"{stem}.tar.gz"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-index", "--no-build-isolation", "--wheel-dir", str(folder), str(sdist)]
    subprocess.run(command, check=True)
    return sdist, folder / f"{stem}-py3-none-any.whl"


def wheel_files(wheel: Path) -> dict[str, str]:
    """The text files of a wheel by their paths."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name).decode("utf-8", "replace") for name in archive.namelist()}


def sdist_files(sdist: Path) -> dict[str, str]:
    """The text files of an sdist by their paths below its folder."""
    with tarfile.open(sdist) as archive:
        files = {m.name.partition("/")[2]: archive.extractfile(m) for m in archive if m.isfile()}
        return {name: file.read().decode("utf-8", "replace") for name, file in files.items() if file}


def wrong_metadata(metadata: Message, version: str) -> list[str]:
    """What an index would show that is not so."""
    wrong = []
    if metadata["Version"] != version:
        wrong.append(f"its version is {metadata['Version']}, that of the release {version}")
    if metadata["License-Expression"] != "Apache-2.0" or "LICENSE" not in metadata.get_all(
        "License-File", []
    ):
        wrong.append("its metadata name no licence, or no file with its text")
    if lacking := set(SITE) - {url.partition(",")[0] for url in metadata.get_all("Project-URL", [])}:
        wrong.append(f"it has no address: {', '.join(sorted(lacking))}")
    if not metadata.get_payload():
        wrong.append("it has no description")
    return wrong


def wrong_wheel(files: Mapping[str, str], name: str, version: str, licence: str) -> list[str]:
    """What a wheel lacks, or has too much of."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    if f"{info}/METADATA" not in files:
        return [f"it has no {info}/METADATA"]
    wrong = wrong_metadata(email.message_from_string(files[f"{info}/METADATA"]), version)
    if files.get(f"{info}/licenses/LICENSE") != licence:
        wrong.append("it does not hold the text of the licence")
    if f"{module}/py.typed" not in files:
        wrong.append("it does not say that it is typed")
    stray = [file for file in files if not file.startswith((f"{module}/", f"{info}/"))]
    stray += [file for file in files if "/tests/" in file or "__pycache__" in file]
    return wrong + [f"it holds {file}" for file in stray]


def wrong_sdist(files: Mapping[str, str], version: str, licence: str) -> list[str]:
    """What an sdist lacks, and where else than once it says the version."""
    wrong = [f"it has no {name}" for name in ("pyproject.toml", "README.md", "PKG-INFO") if name not in files]
    if files.get("LICENSE") != licence:
        wrong.append("it does not hold the text of the licence")
    if not wrong:
        wrong += wrong_metadata(email.message_from_string(files["PKG-INFO"]), version)
    source = {
        name: text for name, text in files.items() if name == "pyproject.toml" or name.startswith("src/")
    }
    saying = [name for name, text in source.items() if name[-3:] in (".py", "oml") and f'"{version}"' in text]
    if len(saying) != 1:
        wrong.append(f"it says its version {len(saying)} times, not once: {', '.join(saying) or 'nowhere'}")
    return wrong


def wrong_release(tag: str, version: str, changelog: str) -> list[str]:
    """Where a tag, the version and the changelog differ."""
    wrong = [] if tag == f"v{version}" else [f"the tag is {tag}, the version {version}"]
    number = version.removesuffix(".0")
    if not re.search(rf"^## {re.escape(number)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.M):
        wrong.append(f"CHANGELOG.md has no section '## {number} (date)'")
    return wrong


def needed_wheels(name: str, wheels: Mapping[str, Path]) -> list[Path]:
    """The wheel of a project, that of the core, and those of the projects that it declares."""
    wanted: list[str] = []
    queue = [name, "pegboard"]
    while queue:
        if (found := queue.pop()) not in wanted:
            wanted.append(found)
            queue += [needed.name for needed in requirements(wheels[found]) if needed.name in wheels]
    return [wheels[found] for found in wanted]


def wrong_alone(name: str, wheels: Mapping[str, Path], folder: Path) -> list[str]:
    """What is wrong with a project that was installed beside the core alone."""
    sandbox = Sandbox.create(folder, needed_wheels(name, wheels))
    done = sandbox.pip("check")
    wrong = [line for line in done.stdout.splitlines() if "pegboard" in line]
    code = f"import {name.replace('-', '_')}, importlib.metadata as m; print(m.version({name!r}))"
    done = sandbox.run("python", "-c", code)
    if done.stdout.strip() != core_version():
        wrong.append(f"imported alone it says {done.stdout}{done.stderr}")
    done = sandbox.run("pegboard", "plugins", "list")
    line = next((line for line in done.stdout.splitlines() if re.search(rf"{name}\b", line)), "")
    if done.returncode or (name != "pegboard" and "ready" not in line):
        wrong.append(f"pegboard plugins list says {done.stdout}{done.stderr}")
    return wrong


def set_version(version: str, root: Path = ROOT) -> list[Path]:
    """Write a version where it is said, and into what plugins ask of the core and of each other."""
    minor, changed = ".".join(version.split(".")[:2]), []
    for path in (
        root / "framework/src/pegboard/base/version.py",
        *root.glob("*/*/pyproject.toml"),
        root / ZOO,
    ):
        before = path.read_text("utf-8")
        text = re.sub(r'^(__version__|version) = ".+"$', rf'\1 = "{version}"', before, flags=re.M)
        text = re.sub(r'"(pegboard(?:-[a-z-]+)?)>=[\d.]+', rf'"\1>={minor}', text)
        if text != before:
            path.write_text(text, "utf-8")
            changed.append(path)
    return changed


def check(projects: Sequence[Path], folder: Path, tag: str = "") -> list[str]:
    """Build and try the projects; every line is something wrong."""
    version, licence = core_version(), (ROOT / "LICENSE").read_text("utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    wrong = wrong_release(tag, version, changelog) if tag else []
    shutil.rmtree(folder, ignore_errors=True)
    wheels: dict[str, Path] = {}
    for project in projects:
        name = name_of(project)
        sdist, wheels[name] = build(project, folder)
        found = wrong_sdist(sdist_files(sdist), version, licence)
        wrong += [f"{sdist.name}: {line}" for line in found]
        found = wrong_wheel(wheel_files(wheels[name]), name, version, licence)
        wrong += [f"{wheels[name].name}: {line}" for line in found]
        print(f"built    {name} {version}", flush=True)
    wrong += twine(folder.iterdir())
    for name in wheels:
        with tempfile.TemporaryDirectory() as place:
            wrong += [f"{name}: {line}" for line in wrong_alone(name, wheels, Path(place) / "env")]
        print(f"alone    {name} {version}", flush=True)
    return wrong


def twine(files: Iterable[Path]) -> list[str]:
    """What an index would refuse."""
    command = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, sorted(files))]
    done = subprocess.run(command, capture_output=True, text=True)
    return [] if done.returncode == 0 else [f"twine check: {done.stdout}{done.stderr}"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build, check and install what a release publishes.")
    parser.add_argument("--tag", default="", help="the tag of the release, as v1.2.3")
    parser.add_argument("--set", default="", help="write this version into every project, and nothing else")
    args = parser.parse_args()
    if args.set:
        print("\n".join(str(path.relative_to(ROOT)) for path in set_version(args.set)))
        return 0
    started = time.monotonic()
    wrong = check(PROJECTS, DIST, args.tag)
    print("\n".join(wrong) or f"{len(PROJECTS)} projects can be released: {DIST}")
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
