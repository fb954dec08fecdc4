"""`pegboard plugins doctor` finds what is wrong with plugins and says what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crowd import MODULE, install
from pegboard.cli import main
from pegboard.tools.doctor import _manners
from pegboard.tools.isolated_import import Imported
from strangers import code, move_in, only_these

Records = dict[str, dict[str, Any]]
KINDS = ("well", "missing", "crashes", "hangs", "heavy", "prints", "draws", "calls", "deprecated", "unwell")
# Kind of finding, whether it is wrong, a piece of its text, a piece of what to do.
FOUND = {
    "acme-well": [],
    "acme-missing": [("import", True, "No module named 'surely_not", "install what it lacks, or do")],
    "acme-crashes": [("crash", True, "ended by SIGSEGV (at ", "pegboard plugins disable acme-crashes")],
    "acme-hangs": [("hang", True, "did not end within 3 s (at ", "--limit")],
    "acme-heavy": [("heavy", True, "imports mlflow", "inside the build functions")],
    "acme-prints": [("noise", True, "it prints: 'hello'", "")],
    "acme-draws": [("random", True, "random numbers", "context.generator()")],
    "acme-calls": [("network", True, "127.0.0.1:9", "")],
    "acme-deprecated": [("deprecated", False, "__init__.py:3: that is old", "author")],
    "acme-unwell": [("health", True, "no licence; a file acme.key; ask Acme", "")],
    "acme-any": [("unpinned", False, "does not say with which releases", 'dependencies = ["pegboard>=')],
    "acme-early": [("incompatible", True, "needs pegboard>=99", "disable acme-early")],
    "acme-one": [("clash", False, "regularizer twin is also offered by acme-two", "writes acme-one:twin")],
    "acme-two": [("clash", False, "regularizer twin is also offered by acme-one", "writes acme-two:twin")],
    "acme-point": [("clash", False, "'shared' is also one of acme-spot", "by their distributions")],
    "acme-spot": [("clash", False, "'shared' is also one of acme-point", "by their distributions")],
    "acme-off": [("disabled", False, "switched off by you; undo it: pegboard plugins enable acme-off", "")],
}  # fmt: skip


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Two folders of plugins, and nothing else installed."""
    root = tmp_path_factory.mktemp("doctor")
    first, second = root / "first", root / "second"
    move_in(first, *KINDS)
    install(first, "acme-any", MODULE.format(name="any"), ["pegboard>=0.1"])
    install(first, "acme-early", "raise AssertionError", ["pegboard>=99"])
    for name in ("one", "two"):
        install(first, f"acme-{name}", MODULE.format(name="twin"))
    for name in ("point", "spot"):
        install(first, f"acme-{name}", MODULE.format(name=name), point="shared")
    install(first, "acme-off", "raise AssertionError")
    install(first, "Acme_Copy", MODULE.format(name="copied"), version="2.0")
    install(second, "acme-copy", MODULE.format(name="copied"))
    with pytest.MonkeyPatch.context() as patch:
        only_these([first, second], patch)
        patch.setenv("XDG_CONFIG_HOME", str(root / "config"))
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        assert main(["plugins", "disable", "acme-off"]) == 0
        checkouts(root, first)
        yield [first, second]


def checkouts(root: Path, site: Path) -> None:
    """Distributions that are installed for editing, and were edited since."""
    fresh = "[project.entry-points.pegboard]\nlater = 'acme_later'\n"
    renamed = "[project.entry-points.pegboard]\nrenamed = 'acme_renamed'\nmoved = 'acme_renamed.plugin'\n"
    elsewhere = "[project]\ndynamic = ['entry-points']\n"
    for name, text, points in (
        ("later", fresh, ""),
        ("renamed", renamed, "moved = acme_renamed\nold = acme_renamed\n"),
        ("dynamic", elsewhere, ""),
        ("bare", None, ""),
    ):
        folder = root / name
        folder.mkdir()
        if text is not None:
            (folder / "pyproject.toml").write_text(text)
        info = install(site, f"acme-{name}", MODULE.format(name=name))
        (info / "direct_url.json").write_text(
            json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})
        )
        group = "pegboard" if points else "console_scripts"
        (info / "entry_points.txt").write_text(f"[{group}]\n{points or 'acme = acme:main'}\n")
    copy = install(site, "acme-plain", MODULE.format(name="plain"))
    (copy / "direct_url.json").write_text(json.dumps({"url": (root / "later").as_uri(), "dir_info": {}}))


@pytest.fixture(scope="module")
def found(sites: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Records:
    """What the doctor says of all of them; the first plugin of a distribution stands for it."""
    from contextlib import redirect_stdout

    file = tmp_path_factory.mktemp("said") / "doctor.json"
    with file.open("w") as stream, redirect_stdout(stream):
        assert main(["plugins", "doctor", "--json", "--limit", "3"]) == 1
    records: list[dict[str, Any]] = json.loads(file.read_text())
    shadowed = [r for r in records if r["status"] == "shadowed"]
    return {r["dist"]: r for r in reversed(records) if r not in shadowed} | {"shadowed": shadowed[0]}


@pytest.mark.parametrize("dist", FOUND)
def test_every_finding_says_what_and_what_to_do(dist: str, found: Records) -> None:
    record = found[dist]
    findings = record["findings"]
    assert [(f["kind"], f["wrong"]) for f in findings] == [(kind, wrong) for kind, wrong, _, _ in FOUND[dist]]
    for finding, (_, _, text, hint) in zip(findings, FOUND[dist], strict=True):
        assert text in finding["text"] and hint in finding["hint"]
    expected = "well" if not findings else "wrong" if findings[0]["wrong"] else "remark"
    assert record["verdict"] == ("disabled" if dist == "acme-off" else expected)


def test_a_hidden_copy_is_told_with_both_places(found: Records, sites: list[Path]) -> None:
    (finding,) = found["shadowed"]["findings"]
    assert found["shadowed"]["dist"] == "acme-copy" and finding["kind"] == "shadowed" and finding["wrong"]
    assert f"this copy, 1.0 in {sites[1]}" in finding["text"]
    assert f"hidden by 2.0 in {sites[0]}" in finding["text"]
    assert found["acme-copy"]["verdict"] == "well" and found["acme-copy"]["version"] == "2.0"


def test_entry_points_of_a_checkout_that_are_not_installed_are_found(
    found: Records, sites: list[Path]
) -> None:
    root = sites[0].parent
    (finding,) = found["acme-later"]["findings"]
    assert found["acme-later"]["status"] == "not installed" and finding["wrong"]
    file = root / "later" / "pyproject.toml"
    assert finding["text"] == f"{file} has the entry point 'later', which is not installed"
    assert finding["hint"] == f"install it again: pip install -e {root / 'later'}"
    texts = [f["text"] for f in found["acme-renamed"]["findings"] if f["kind"] == "entry-point"]
    assert len(texts) == 3 and all(str(root / "renamed" / "pyproject.toml") in text for text in texts)
    assert "entry point 'renamed', which is not installed" in texts[0]
    assert "says moved = 'acme_renamed.plugin', but 'acme_renamed' is installed" in texts[1]
    assert "'old' is installed, but" in texts[2]
    assert not {"acme-dynamic", "acme-bare"} & set(found)
    assert not found["acme-plain"]["findings"]


def test_parts_and_times_are_in_the_list(found: Records) -> None:
    assert found["acme-well"]["parts"] == ["regularizer part_well"]
    assert found["acme-well"]["milliseconds"] > 0 and found["acme-off"]["milliseconds"] == 0


def test_a_slow_import_is_remarked_on_unless_large_libraries_explain_it() -> None:
    (slow,) = _manners(Imported(milliseconds=400.0))
    assert (slow.kind, slow.wrong) == ("slow", False) and "takes 400 ms" in slow.text
    assert [f.kind for f in _manners(Imported(milliseconds=400.0, heavy=("torch",)))] == ["heavy"]
    (changes,) = _manners(Imported(changed=("sys.path", "threads")))
    assert (changes.kind, changes.wrong, changes.text) == ("change", True, "it changes sys.path, threads")


def test_one_plugin_can_be_looked_at_and_the_exit_code_says_how_it_is(
    sites: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", "doctor", "acme-well"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing is wrong"
    assert main(["plugins", "doctor", "acme_deprecated"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing is wrong; there are remarks on 1"
    assert main(["plugins", "doctor", "acme-deprecated", "acme-off", "--strict"]) == 1
    shown = capsys.readouterr()
    assert "\nacme-deprecated 1.0, plugin acme_deprecated\n  remark: deprecated: " in shown.out
    assert main(["plugins", "doctor", "acme-off", "--strict"]) == 0
    assert "switched off by you" in capsys.readouterr().out
    assert main(["plugins", "doctor", "acme-later"]) == 1
    assert "to mend it: install it again: pip install -e " in capsys.readouterr().out


def test_a_local_file_can_be_looked_at(
    sites: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(code("prints"))
    assert main(["plugins", "doctor", str(file)]) == 1
    shown = capsys.readouterr()
    assert "wrong: noise: it prints: 'hello'" in shown.out and "plugin 1/1" in shown.err
    assert main(["plugins", "doctor", str(tmp_path / "mien.py")]) == 2
    assert "Did you mean 'mine.py'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["acme-wel"], "no plugin 'acme-wel' is installed. Did you mean 'acme-well'?"),
        (["acme-well", "--limit", "soon"], "found 'soon', expected a number of seconds"),
        (["acme-well", "--limit", "-3"], "found '-3', expected a number of seconds"),
    ],
)
def test_slips_are_answered(
    words: list[str], piece: str, sites: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        exit_code: object = main(["plugins", "doctor", *words])
    except SystemExit as stopped:
        exit_code = stopped.code
    assert exit_code == 2 and piece in capsys.readouterr().err


def test_what_a_plugin_says_cannot_talk_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "acme-escape", "raise RuntimeError('\\x1b[2J[bold]')")
    only_these([tmp_path], monkeypatch)
    assert main(["plugins", "doctor"]) == 1
    assert r"RuntimeError: \x1b[2J[bold]" in capsys.readouterr().out


def test_where_nothing_is_installed_nothing_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only_these([tmp_path], monkeypatch)
    assert main(["plugins", "doctor"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
