"""The parts of `make release-check` find what is wrong with a distribution."""

from __future__ import annotations

from pathlib import Path

import pytest
import release
from pegboard import __version__
from sandbox import ROOT

LICENCE = (ROOT / "LICENSE").read_text("utf-8")
URLS = "".join(f"Project-URL: {name}, https://pypi.org/project/acme/\n" for name in release.SITE)
METADATA = (
    f"Metadata-Version: 2.4\nName: acme-x\nVersion: 1.2.0\n{URLS}"
    "License-Expression: Apache-2.0\nLicense-File: LICENSE\n\n# acme-x\n"
)
WHEEL = {
    "acme_x/__init__.py": "",
    "acme_x/py.typed": "",
    "acme_x-1.2.0.dist-info/METADATA": METADATA,
    "acme_x-1.2.0.dist-info/licenses/LICENSE": LICENCE,
}
SDIST = {
    "pyproject.toml": '[project]\nversion = "1.2.0"\n',
    "README.md": "# acme-x\n",
    "LICENSE": LICENCE,
    "PKG-INFO": METADATA,
    "src/acme_x/__init__.py": "",
}


def test_a_whole_distribution_passes() -> None:
    assert release.wrong_wheel(WHEEL, "acme-x", "1.2.0", LICENCE) == []
    assert release.wrong_sdist(SDIST, "1.2.0", LICENCE) == []


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("acme_x-1.2.0.dist-info/licenses/LICENSE", "MIT", "text of the licence"),
        ("acme_x-1.2.0.dist-info/METADATA", METADATA.replace("1.2.0", "1.1"), "its version is 1.1"),
        ("acme_x-1.2.0.dist-info/METADATA", METADATA.replace("Issues", "Wiki"), "no address: Issues"),
        ("acme_x-1.2.0.dist-info/METADATA", METADATA.replace("Apache", "GPL"), "name no licence"),
        ("acme_x-1.2.0.dist-info/METADATA", METADATA.partition("\n\n")[0] + "\n\n", "no description"),
        ("acme_x-1.2.0.dist-info/METADATA", None, "it has no acme_x-1.2.0.dist-info/METADATA"),
        ("acme_x/py.typed", None, "that it is typed"),
        ("acme_x/tests/test_x.py", "", "it holds acme_x/tests/test_x.py"),
        ("notes.txt", "", "it holds notes.txt"),
    ],
)
def test_a_defect_of_a_wheel_is_found(file: str, text: str | None, message: str) -> None:
    files = {name: said for name, said in {**WHEEL, file: text}.items() if said is not None}
    (wrong,) = release.wrong_wheel(files, "acme-x", "1.2.0", LICENCE)
    assert message in wrong


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("LICENSE", None, "text of the licence"),
        ("PKG-INFO", None, "it has no PKG-INFO"),
        ("src/acme_x/__init__.py", '__version__ = "1.2.0"', "2 times, not once"),
        ("pyproject.toml", "", "0 times, not once: nowhere"),
    ],
)
def test_a_defect_of_an_sdist_is_found(file: str, text: str | None, message: str) -> None:
    files = {name: said for name, said in {**SDIST, file: text}.items() if said is not None}
    (wrong,) = release.wrong_sdist(files, "1.2.0", LICENCE)
    assert message in wrong


def test_a_tag_is_that_of_the_version_and_in_the_changelog() -> None:
    changelog = "# Changelog\n\n## 0.4 (unreleased)\n\n## 0.3 (2026-12-01)\n"
    assert release.wrong_release("v0.3.0", "0.3.0", changelog) == []
    assert release.wrong_release("0.3.0", "0.3.0", changelog) == ["the tag is 0.3.0, the version 0.3.0"]
    assert "no section '## 0.4 (date)'" in release.wrong_release("v0.4.0", "0.4.0", changelog)[0]


def test_a_project_is_built_from_its_sdist(tmp_path: Path) -> None:
    sdist, wheel = release.build(ROOT / "plugins" / "dropout", tmp_path)
    assert release.core_version() == __version__
    files = release.sdist_files(sdist)
    assert release.wrong_sdist(files, __version__, LICENCE) == []
    assert "src/pegboard_dropout/__init__.py" in files
    assert release.wrong_wheel(release.wheel_files(wheel), "pegboard-dropout", __version__, LICENCE) == []


def test_a_version_is_written_where_it_is_said(tmp_path: Path) -> None:
    shown = {
        "framework/src/pegboard/base/version.py": '__version__ = "0.3.0"\nAPI = 3\n',
        "plugins/x/pyproject.toml": 'version = "0.3.0"\ndependencies = ["pegboard>=0.3,<1", "torch>=2.13"]\n',
        "zoo/pyproject.toml": 'version = "0.3.0"\ndependencies = ["pegboard-x>=0.3"]\n',
    }
    for name, text in shown.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert len(release.set_version("0.4.1", tmp_path)) == 3
    for name, text in shown.items():
        assert (tmp_path / name).read_text() == text.replace("0.3.0", "0.4.1").replace(">=0.3", ">=0.4")
    assert release.set_version("0.4.1", tmp_path) == []
