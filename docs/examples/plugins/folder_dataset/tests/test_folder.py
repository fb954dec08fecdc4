"""Pictures come from the folder as its names say, in memory or not, and what is wrong is named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard import Classes, Context, Image, PegboardError, Resident, Splits, Stream, plan, train
from pegboard.testing import partner_config
from PIL import Image as Picture

from pegboard_example_folder import PictureFolder, build, spec, trial
from pegboard_example_folder.listing import split_of

PLACES = ["test", "val", "val", "val", "train", "test"]  # of cat/0.png and those after it


@pytest.fixture
def node(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "pictures"
    folder.mkdir()
    return {"name": "picture_folder", "batch_size": 4, **trial(folder)}


def splits(node: dict[str, Any], **fields: Any) -> Splits:
    given = {k: v for k, v in (node | fields).items() if k not in ("name", "batch_size")}
    return build(PictureFolder(**given | {"size": tuple(given["size"])}), Context())


def refused(**node: Any) -> str:
    with pytest.raises(PegboardError) as told:
        plan(partner_config(data={"name": "picture_folder", **node}))
    return str(told.value)


def test_spec_is_known_without_opening_a_picture(tmp_path: Path) -> None:
    for name in ("cat", "dog", "empty", ".hidden"):
        (tmp_path / name).mkdir()
    for name in ("dog/1.png", "cat/1.JPG", "empty/notes.txt", ".hidden/1.png"):
        (tmp_path / name).write_text("no picture at all")
    found = spec(PictureFolder(str(tmp_path), size=(4, 6)))
    assert found is not None
    assert found.inputs == (Image(3, 4, 6),)
    assert found.target == Classes(2, ("cat", "dog"))


def test_a_picture_becomes_its_pixels(tmp_path: Path) -> None:
    for name, colour in (("red", (255, 0, 0)), ("teal", (0, 51, 255))):
        (tmp_path / name).mkdir()
        Picture.new("RGB", (9, 7), colour).save(tmp_path / name / "1.png")
    made = build(PictureFolder(str(tmp_path), size=(2, 3), val=0, test=0), Context())
    batch = made.train.gather(torch.tensor([0, 1]))
    assert batch.inputs[0].shape == (2, 3, 2, 3)
    expected = torch.tensor([[1.0, -1, -1], [-1, 51 / 127.5 - 1, 1]])
    torch.testing.assert_close(batch.inputs[0], expected[..., None, None].expand(2, 3, 2, 3))
    assert batch.target is not None
    assert batch.target.tolist() == [0, 1]
    assert made.val is None
    assert made.test is None


def test_shares_are_about_right_and_no_name_moves_another() -> None:
    names = [f"cat/{number}.png" for number in range(4000)]
    placed = {name: split_of(name, 0.1, 0.2) for name in names}
    counts = Counter(placed.values())
    assert abs(counts["val"] / 4000 - 0.1) < 0.02
    assert abs(counts["test"] / 4000 - 0.2) < 0.02
    larger = {name: split_of(name, 0.3, 0.2) for name in names}
    assert all(larger[name] == place for name, place in placed.items() if place != "train")
    # Written down once: no machine and no release of Python may place them elsewhere.
    assert [split_of(name, 0.3, 0.3) for name in names[:6]] == PLACES


def test_new_pictures_leave_the_others_where_they_were(node: dict[str, Any]) -> None:
    before = splits(node, memory="never")
    for number in range(20, 40):
        Picture.new("L", (8, 8), number).save(Path(node["folder"]) / "below" / f"{number}.png")
    after = splits(node, memory="never")
    for name in ("train", "val", "test"):
        assert set(getattr(before, name).read.pictures) <= set(getattr(after, name).read.pictures)
    assert before.notes["fingerprint"] != after.notes["fingerprint"]


def test_memory_and_workers_change_no_bit_of_a_run(node: dict[str, Any], tmp_path: Path) -> None:
    assert isinstance(splits(node).train, Resident)
    assert isinstance(splits(node, memory="never").train, Stream)
    runs = []
    for more in ({}, {"memory": "never"}, {"memory": "never", "workers": 2}):
        config = partner_config(data=node | more, trainer={"steps": 6, "device": "cpu"})
        run = train(config, root=tmp_path / str(len(runs)), quiet=True)
        runs.append([{k: v for k, v in row.items() if "/" in k} for row in run.history])
    assert {"train/loss", "val/loss", "test/loss"} <= {name for row in runs[0] for name in row}
    assert runs[0] == runs[1] == runs[2]


def test_new_pictures_are_encoded_as_those_of_the_folder(node: dict[str, Any]) -> None:
    made = splits(node, val=0.0, test=0.0)
    assert made.encode is not None
    file = Path(node["folder"]) / "above" / "0.png"
    (x,) = made.encode({"file": [str(file)]})
    assert torch.equal(x, made.train.gather(torch.tensor([0])).inputs[0])
    assert made.columns == ("file",)


@pytest.mark.parametrize("memory", ["always", "never"])
def test_unreadable_files_are_named(node: dict[str, Any], memory: str, tmp_path: Path) -> None:
    whole = (Path(node["folder"]) / "above" / "3.png").read_bytes()
    (Path(node["folder"]) / "above" / "3.png").write_bytes(whole[:30])
    (Path(node["folder"]) / "below" / "5.png").write_text("no picture")
    data = node | {"memory": memory, "val": 0.0, "test": 0.0}
    with pytest.raises(PegboardError) as told:
        train(partner_config(data=data), root=tmp_path / "runs", quiet=True)
    named = [file for file in ("above/3.png", "below/5.png") if file in str(told.value)]
    assert named == (["above/3.png", "below/5.png"] if memory == "always" else named[:1])
    assert named


def test_folders_that_cannot_serve_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    assert "No such file or directory" in refused(folder=str(tmp_path / "nowhere"))
    (tmp_path / "1.png").write_text("")
    assert "Not a directory" in refused(folder=str(tmp_path / "1.png"))
    told = refused(folder=str(tmp_path))
    assert "no folder in" in told
    assert "side by side" in told
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_text("")
    assert "are of one class, 'cat'" in refused(folder=str(tmp_path))
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "1.png").write_text("")
    assert "leave nothing to train on" in refused(folder=str(tmp_path), val=0.5, test=0.5)
    with pytest.raises(PegboardError, match="falls to training: 0 train"):
        build(PictureFolder(str(tmp_path), val=0.0, test=0.999999), Context())
