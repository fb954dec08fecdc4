"""The catalogue's index is whole, its markers are checked, and what was once covered stays so."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import catalogue
import pytest
from pegboard.registry.discovery import Registry

COMPLETE = (
    *("core", "mlp", "optimizers", "objectives", "datasets"),
    *("dropout", "batchnorm", "weight_decay", "label_smoothing", "distillation"),
    *("cnn", "rnn", "transformer", "gnn", "generative"),
)
HEAD = "id,home,kind,duplicate_of,name,parts,recorded\n"


@pytest.fixture(scope="module")
def whole() -> catalogue.Catalogue:
    return catalogue.Catalogue()


def test_index_holds_every_entry_once(whole: catalogue.Catalogue) -> None:
    entries = whole.entries
    lines = (catalogue.ROOT / catalogue.INDEX).read_text(encoding="utf-8").splitlines()
    assert len(entries) == len(lines) - 1 == 570
    assert all(re.fullmatch(r"T\d{3}|S\d{2}|S[34]-\d{3}", id) for id in entries)
    assert all(entry.name and entry.home and entry.kind for entry in entries.values())
    duplicates = [entry.duplicate_of for entry in entries.values() if entry.duplicate_of]
    assert len(duplicates) == 84
    assert set(duplicates) <= set(entries)


@pytest.mark.parametrize("home", COMPLETE)
def test_every_entry_of_a_home_is_covered(home: str, whole: catalogue.Catalogue) -> None:
    entries = whole.homes()[home]
    assert entries
    assert not [f"{entry.id} {entry.name}" for entry in entries if not whole.status(entry.id)]


def test_no_entry_lost_its_test(whole: catalogue.Catalogue) -> None:
    assert not whole.lost(), "if that is meant: make catalogue ARGS=--record"


def test_what_is_covered_is_recorded_and_on_the_page(whole: catalogue.Catalogue) -> None:
    new = [e.id for e in whole.entries.values() if whole.status(e.id) != e.recorded]
    assert not new, "write it down: make catalogue ARGS=--record"
    page = (catalogue.ROOT / catalogue.PAGE).read_text("utf-8")
    assert page == whole.markdown(), "write it anew: make catalogue ARGS=--record"


def test_every_part_of_an_entry_is_there_and_every_model_and_trick_has_one(
    whole: catalogue.Catalogue,
) -> None:
    registry = Registry.discover()
    there = {f"{p.kind}:{p.name}" for plugin in registry.plugins for p in plugin.parts}
    named = {part for entry in whole.entries.values() for part in entry.parts.split()}
    assert len(named) > 20 and not named - there
    lacking = [
        f"{e.id} {e.name} ({e.kind})"
        for e in whole.entries.values()
        if e.id in whole.tests and not e.plain and not e.parts
    ]
    assert not lacking, "name in tests/catalogue.csv the parts that show them, as model:mlp"


def test_the_page_links_to_files_that_are_there(whole: catalogue.Catalogue) -> None:
    links = re.findall(r"\]\((\.\./[^)]+)\)", whole.markdown())
    assert len(links) > 100
    folder = (catalogue.ROOT / catalogue.PAGE).parent
    assert not [link for link in links if not (folder / link.partition("#")[0]).is_file()]


def test_markers_are_read_without_importing_the_file(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        "import pytest, nowhere\n"
        "pytestmark = pytest.mark.catalogue('T003')\n"
        "@pytest.mark.catalogue('T001', 'T002')\n"
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.catalogue('S01'))])\n"
        "def test_a(x): ...\n"
        "class TestB:\n    @pytest.mark.catalogue('T001')\n    def test_c(self): ...\n"
    )
    found = {id: list(map(str, tests)) for id, tests in catalogue.covered(tmp_path).items()}
    assert found == {
        "T001": ["test_one.py::test_a", "test_one.py::TestB::test_c"],
        "T002": ["test_one.py::test_a"],
        "S01": ["test_one.py::test_a"],
        "T003": ["test_one.py"],
    }


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


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A catalogue of three entries: one tested, one on a page, one open."""
    for folder in ("tests/support/workspace", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(
        catalogue.ROOT / "tests" / "support" / "workspace" / "catalogue.py",
        tmp_path / "tests" / "support" / "workspace",
    )
    rows = (
        "T001,mlp,model,,One|two,model:mlp,\nT002,docs,docs only,,Three,,\nT003,docs,docs only,T002,Four,,\n"
    )
    (tmp_path / catalogue.INDEX).write_text(HEAD + rows)
    (tmp_path / "tests" / "test_x.py").write_text(
        "import pytest\n@pytest.mark.catalogue('T001')\ndef test_y(): ...\n"
    )
    (tmp_path / "docs" / "page.md").write_text("# Page\n\n<!-- catalogue: T002 -->\nThree.\n")
    return tmp_path


def script(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tests" / "support" / "workspace" / "catalogue.py"), *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_recorded_entry_that_loses_its_test_or_page_is_an_error(small: Path) -> None:
    assert script(small, "--record").returncode == 0
    assert script(small).returncode == 0
    (small / "tests" / "test_x.py").write_text("def test_y(): ...\n")
    (small / "docs" / "page.md").write_text("# Page\n")
    done = script(small)
    assert done.returncode == 1
    assert "T001 One|two: recorded as tested, and nothing covers it now" in done.stderr
    assert "T002 Three: recorded as documented" in done.stderr and "T003" not in done.stderr
    assert script(small, "--record").returncode == script(small).returncode == 0


def test_the_page_has_a_row_with_parts_tests_and_status(small: Path) -> None:
    script(small, "--record")
    page = (small / catalogue.PAGE).read_text()
    test = r"[test\_x.py::test\_y](../tests/test_x.py)"
    assert rf"| T001 | One\|two | [mlp](../plugins/mlp/README.md#mlp) | {test} | tested |" in page
    assert "| T002 | Three |  | [page](page.md) | documented |" in page
    assert "| T003 | Four (as T002) |  |  | open |" in page


def test_a_page_settles_no_entry_that_asks_for_a_test(small: Path) -> None:
    (small / "docs" / "page.md").write_text("<!-- catalogue: T001 -->\n")
    assert "T001 is of kind 'model': a test settles it" in script(small).stderr
    (small / "docs" / "page.md").write_text("<!-- catalogue: T009 -->\n")
    assert "'T009' is not an entry" in script(small).stderr


def test_report_counts_every_home(whole: catalogue.Catalogue) -> None:
    lines = [line.split() for line in whole.totals().splitlines()]
    assert lines[0] == ["home", "entries", "covered", "open", "docs"]
    total = [int(n) for n in lines[-1][1:]]
    assert total[0] == 570 == sum(total[1:])
    assert total == [sum(int(line[i]) for line in lines[1:-1]) for i in range(1, 5)]


def test_report_of_a_home_lists_its_entries(whole: catalogue.Catalogue) -> None:
    text = whole.details("dropout")
    assert len(re.findall(r"^S\d-\d{3}", text, re.MULTILINE)) == 8
    with pytest.raises(SystemExit, match="expected one of core, mlp"):
        whole.details("dropuot")
