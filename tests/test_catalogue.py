"""The catalogue's index is whole, its markers are checked, and the tricks' entries are covered."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import catalogue
import pytest

TRICKS = ("dropout", "batchnorm", "weight_decay", "label_smoothing", "distillation")


def test_index_holds_every_entry_once() -> None:
    entries = catalogue.index()
    lines = (catalogue.ROOT / "tests" / "catalogue.csv").read_text(encoding="utf-8").splitlines()
    assert len(entries) == len(lines) - 1 == 570
    assert all(re.fullmatch(r"T\d{3}|S\d{2}|S[34]-\d{3}", id) for id in entries)
    assert all(entry.name and entry.home for entry in entries.values())
    duplicates = [entry.duplicate_of for entry in entries.values() if entry.duplicate_of]
    assert len(duplicates) == 84
    assert set(duplicates) <= set(entries)


@pytest.mark.parametrize("home", TRICKS)
def test_every_entry_of_a_trick_is_covered(home: str) -> None:
    tested = catalogue.covered()
    entries = [entry for entry in catalogue.index().values() if entry.home == home]
    assert entries
    assert not [f"{entry.id} {entry.name}" for entry in entries if entry.id not in tested]


def test_markers_are_read_without_importing_the_file(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        "import pytest, nowhere\n"
        "@pytest.mark.catalogue('T001', 'T002')\n"
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.catalogue('S01'))])\n"
        "def test(x): ...\n"
    )
    assert set(catalogue.covered(tmp_path)) == {"T001", "T002", "S01"}


def test_unknown_id_fails_collection_and_names_the_nearest(tmp_path: Path) -> None:
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(catalogue.ROOT / name, tmp_path)
    shutil.copytree(catalogue.ROOT / "tests" / "support", tmp_path / "tests" / "support")
    shutil.copy(catalogue.ROOT / "tests" / "catalogue.csv", tmp_path / "tests")
    markers = {"unknown": "'S3-913'", "empty": "", "number": "131"}
    for name, marker in markers.items():
        test = f"import pytest\n@pytest.mark.catalogue({marker})\ndef test_{name}(): ...\n"
        (tmp_path / "tests" / f"test_{name}.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1"]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert outcome.returncode != 0
    assert "3 errors" in outcome.stdout
    assert "test_unknown: 'S3-913' is not an entry of tests/catalogue.csv; nearest: S3-" in outcome.stdout
    assert "test_empty: the catalogue marker names no entry" in outcome.stdout
    assert "test_number: 131 is not an entry" in outcome.stdout


def test_report_counts_every_home() -> None:
    lines = [line.split() for line in catalogue.totals().splitlines()]
    assert lines[0] == ["home", "entries", "covered", "open"]
    total = [int(n) for n in lines[-1][1:]]
    assert total[0] == 570 == total[1] + total[2]
    assert total == [sum(int(line[i]) for line in lines[1:-1]) for i in (1, 2, 3)]


def test_report_of_a_home_lists_its_entries() -> None:
    text = catalogue.details("dropout")
    assert len(re.findall(r"^S\d-\d{3}", text, re.MULTILINE)) == 8
    with pytest.raises(SystemExit, match="expected one of core, mlp"):
        catalogue.details("dropuot")
