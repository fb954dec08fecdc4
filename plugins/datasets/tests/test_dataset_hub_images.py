"""`hub` on pictures."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from pegboard import Classes, DataSpec, Image, PegboardError
from pegboard_datasets import Hub, Input, Target, hub_spec
from pegboard_datasets.images import read_pixels
from PIL import Image as Pillow


def picture(number: int, mode: str = "L", size: tuple[int, int] = (5, 4)) -> Pillow.Image:
    """A picture of one value, with its corner black."""
    grey = Pillow.new("L", size, number)
    grey.putpixel((0, 0), 0)
    return grey.convert(mode)


def folder(path: Path, count: int = 12, mode: str = "L") -> str:
    """Pictures in a folder for each class."""
    for i in range(count):
        place = path / "train" / ("dark", "light")[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        picture(20 * i, mode).save(place / f"{i:02d}.png")
    return str(path)


def parquet(path: Path, pictures: list[Pillow.Image], labels: list[int]) -> str:
    import datasets

    def encode(p: Pillow.Image) -> bytes:
        buffer = io.BytesIO()
        p.save(buffer, "PNG")
        return buffer.getvalue()

    features = datasets.Features(
        {"picture": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    data = {"picture": [{"bytes": encode(p), "path": None} for p in pictures], "label": labels}
    datasets.Dataset.from_dict(data, features=features).to_parquet(str(path))
    return str(path)


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_a_folder_of_pictures_has_its_folders_as_classes(hub, tmp_path, mode, channels):
    path = folder(tmp_path / "pictures", mode=mode)
    splits = hub(path=path, inputs=("image",), target="label", normalize="none")
    names = ("dark", "light")
    assert splits.spec == DataSpec((Image(channels, 4, 5),), Classes(2, names), ("image",))
    x, y = splits.train.inputs[0], splits.train.target
    assert x.shape == (len(splits.train), channels, 4, 5)
    assert torch.equal(x[:, :, 0, 0], torch.zeros(len(x), channels))
    number = (x[:, 0, 1, 1] * 255 / 20).round().long()
    assert torch.equal(number % 2, y)


@pytest.mark.catalogue("T108")
def test_pictures_of_28_by_28_in_ten_classes_need_no_network(hub, tmp_path):
    for i in range(40):
        place = tmp_path / "train" / str(i % 10)
        place.mkdir(parents=True, exist_ok=True)
        picture(5 * i + 20, size=(28, 28)).save(place / f"{i}.png")
    splits = hub(path=str(tmp_path), inputs=("image",), target="label", normalize="none")
    assert splits.spec == DataSpec((Image(1, 28, 28),), Classes(10, tuple("0123456789")), ("image",))
    x, y = splits.train.inputs[0], splits.train.target
    assert x.shape[1:] == (1, 28, 28)
    assert torch.equal(((255 * x[:, 0, 5, 5] - 20) / 5).round().long() % 10, y)


def test_names_of_classes_and_pictures_in_bytes(hub, rows_cache, tmp_path):
    path = parquet(tmp_path / "p.parquet", [picture(10 * i) for i in range(20)], [0, 1] * 10)
    fields = {
        "path": path,
        "inputs": {"picture": Input(kind="image", channels=1, size=(4, 5))},
        "target": Target(column="label", kind="classes"),
    }
    splits = hub(**fields)
    assert splits.spec == DataSpec((Image(1, 4, 5),), Classes(2, ("no", "yes")), ("picture",))
    assert hub_spec(Hub(**fields)) == DataSpec((Image(1, 4, 5),), Classes(), ("picture",))
    assert splits.train.inputs[0].dtype == torch.float32
    assert abs(splits.train.inputs[0].mean()) < 1e-5
    assert abs(splits.train.inputs[0].std(correction=0) - 1) < 1e-5


def test_paths_in_a_table_are_relative_to_it(hub, tmp_path):
    for i in range(10):
        picture(20 * i).save(tmp_path / f"{i}.png")
    lines = ["file,y", *[f"{i}.png,{i / 10}" for i in range(10)]]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    splits = hub(
        path=str(tmp_path / "t.csv"), inputs={"file": Input(kind="image")}, target="y", normalize="none"
    )
    torch.testing.assert_close(splits.train.inputs[0][:, 0, 1, 1] * 255 / 200, splits.train.target[:, 0])


def test_a_column_that_holds_no_pictures_is_shown_with_the_row_it_stands_in(hub, tmp_path):
    (tmp_path / "t.csv").write_text("\n".join(["file,y", *[f"{i}.png,{i % 2}" for i in range(10)]]))
    with pytest.raises(PegboardError, match=r"column 'file', split 'train', row (\d) .*/\1.png'"):
        hub(path=str(tmp_path / "t.csv"), inputs={"file": Input(kind="image")}, target="y")


def test_pictures_are_brought_to_a_size_only_when_asked(hub, rows_cache, tmp_path):
    mixed = [picture(10 * i, size=(5, 4) if i % 2 else (6, 6)) for i in range(20)]
    path = parquet(tmp_path / "p.parquet", mixed, [0, 1] * 10)
    with pytest.raises(PegboardError, match=r"expected: .x. as the first\n.*size"):
        hub(path=path, inputs=("picture",), target="label")
    splits = hub(path=path, inputs={"picture": Input(size=(3, 2))}, target="label")
    assert splits.spec.inputs == (Image(1, 3, 2),)


def test_a_limit_keeps_the_rest_from_being_decoded(hub, rows_cache, tmp_path, monkeypatch):
    path = parquet(tmp_path / "p.parquet", [picture(i) for i in range(100)], [0, 1] * 50)
    opened = []
    real = Pillow.open
    monkeypatch.setattr(Pillow, "open", lambda *a, **k: opened.append(1) or real(*a, **k))
    hub(path=path, inputs=("picture",), target="label", limit=10, eval_limit=5)
    assert len(opened) == 21  # the first twice: its size tells whether all of them fit in memory


def test_a_written_table_has_paths_or_flat_columns(hub, rows_cache, tmp_path):
    path = parquet(tmp_path / "p.parquet", [picture(10 * i) for i in range(20)], [0, 1] * 10)
    splits = hub(path=path, inputs=("picture",), target="label")
    assert splits.columns == ("picture",)
    picture(70).save(tmp_path / "new.png")
    picture(70, size=(10, 8)).save(tmp_path / "large.png")
    (a,) = splits.encode({"picture": [str(tmp_path / "new.png"), str(tmp_path / "large.png")]})
    (b,) = splits.encode({f"picture_{i}": [0 if i == 0 else 70] for i in range(20)})
    assert a.shape == (2, 1, 4, 5)
    assert torch.equal(a[:1], b)
    assert (a[1, :, 1:, 1:] - a[0, :, 1:, 1:]).abs().max() < 0.1
    with pytest.raises(PegboardError, match=r"there is no file '.*gone.png'"):
        splits.encode({"picture": [str(tmp_path / "gone.png")]})


def test_a_file_that_is_no_picture_is_an_error(hub, tmp_path):
    path = Path(folder(tmp_path / "pictures"))
    (path / "t.csv").write_text("file,y\nt.csv,1.0\n" * 1)
    with pytest.raises(PegboardError, match="a picture that Pillow reads"):
        hub(path=str(path / "t.csv"), inputs={"file": Input(kind="image")}, target="y", val=0, test=0)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_of_a_picture_is_read(mode, channels):
    if mode == "I;16":
        source = Pillow.new("I;16", (3, 2), 200 * 257)
    elif mode == "I":
        source = Pillow.new("I", (3, 2), 200 * 257)
    else:
        source = Pillow.new("L", (3, 2), 255 if mode == "1" else 200).convert(mode)
    pixels = read_pixels([source], "x", channels)
    assert pixels.shape == (1, channels, 2, 3)
    value = 255 if mode == "1" else 200
    assert (pixels.int() - value).abs().max() <= 2


def test_colours_stay_in_their_channels():
    source = Pillow.new("RGB", (2, 2), (10, 20, 30))
    source.putpixel((1, 0), (1, 2, 3))
    pixels = read_pixels([source], "x")[0]
    assert pixels[:, 0, 0].tolist() == [10, 20, 30]
    assert pixels[:, 0, 1].tolist() == [1, 2, 3]


@pytest.mark.parametrize("memory", ["always", "never"])
@pytest.mark.parametrize("target", [None, Target(kind="none")])
def test_pictures_may_have_no_target_and_are_scaled_back(hub, tmp_path, memory, target):
    path = folder(tmp_path / "pictures")
    given = {"path": path, "inputs": {"image": Input(kind="image")}, "target": target}
    splits = hub(**given, memory=memory)
    assert splits.spec == DataSpec((Image(1, 4, 5),), None, ("image",))
    rows = torch.arange(len(splits.train))
    if hasattr(splits.train, "begin"):
        splits.train.begin([rows], 0, 0)
    batch = splits.train.gather(rows)
    assert batch.target is None
    pixels = splits.invert(batch.inputs[0])
    assert torch.allclose(pixels * 255, (pixels * 255).round(), atol=1e-2)
    assert pixels[:, 0, 0, 0].abs().max() < 1e-5 < pixels.max() <= 1
    assert hub_spec(Hub(**given)) == DataSpec((Image(),), None, ("image",))
    for name, contents in splits.files.items():
        (tmp_path / name).write_bytes(contents)
    from pegboard_datasets.restoring import restore

    kept = restore(Hub(**given), tmp_path)
    assert torch.equal(kept.invert(batch.inputs[0]), pixels)
