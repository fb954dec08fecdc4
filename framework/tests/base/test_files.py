"""Files are written whole or not at all, and the folders of a person are where the system says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pegboard.base import files


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"a": 1})
    assert path.read_text() == '{\n "a": 1\n}\n'

    def full(self: Path, *args: object, **options: object) -> None:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        files.write_text(path, "half")
    assert path.read_text() == '{\n "a": 1\n}\n' and os.listdir(tmp_path) == ["a.json"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    for name in ("page", files.beside(tmp_path / "page").name):
        (tmp_path / name).symlink_to("mine")
    files.write_text(tmp_path / "page", "new \udcff")
    assert (tmp_path / "mine").read_text() == "kept"
    assert not (tmp_path / "page").is_symlink() and (tmp_path / "page").read_text() == "new \\udcff"


def test_a_link_is_replaced_and_what_is_no_link_stays(tmp_path: Path) -> None:
    for name in ("one", "two"):
        files.point(tmp_path / "latest", name)
        assert os.readlink(tmp_path / "latest") == name
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        files.point(tmp_path / "folder", "one")
    assert sorted(os.listdir(tmp_path)) == ["folder", "latest"]


def test_folders_are_where_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", f"/some/{name}")
    assert [str(files.cache_folder()), str(files.config_folder())] == [
        "/some/CACHE/pegboard",
        "/some/CONFIG/pegboard",
    ]
    for name in ("CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert str(files.cache_folder()) == "/home/me/.cache/pegboard"
    assert str(files.config_folder()) == "/home/me/.config/pegboard"
