"""Tables, pictures and data sets from a stranger are data: refused with the reason, never run."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
from hostile import CONFIG, EVIL, Payload, Said
from pegboard import PegboardError
from pegboard.config.check import check


# Tables for predict.
@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("deep.json", b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
        ("deep.jsonl", b'{"a":' * 100_000, "nested too deep"),
        ("wide.csv", b"a,b\n" + b"x" * (csv.field_size_limit() + 1) + b",1\n", "field larger"),
        ("bytes.csv", b"a,b\n\xff,1\n", "cannot read"),
        ("zero.csv", b"a,b\n\0,1\n", ""),
        ("ragged.csv", b"a,b\n1,2,3\n", "more cells"),
        ("packed.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), "cannot read"),
        ("text.json", b'"text"', "holds no rows"),
        ("odd.json", b'{"a": 5}', "lists of the same length"),
        ("odd2.json", b'{"a": [1, 2], "b": [1]}', "lists of the same length"),
        ("pickle.pkl", pickle.dumps(Payload()), "not a table"),
        ("pickle.csv", pickle.dumps(Payload()), "cannot read"),
        ("pickle.json", pickle.dumps(Payload()), "cannot read"),
        ("array.npy", b"\x93NUMPY", "not a table"),
    ],
)
def test_a_hostile_table_is_refused_by_predict(
    run: Path, said: Said, name: str, data: bytes, reason: str
) -> None:
    Path(name).write_bytes(data)
    assert reason in said("predict", run, "--input", name)


@pytest.mark.parametrize("cell", ["[" * 100_000, 10**400, "1" * 5000, {"a": 1}, [[1]] * 3, None, True, "nan"])
def test_a_hostile_cell_is_refused_by_predict(run: Path, said: Said, cell: Any) -> None:
    names = ["sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)"]
    Path("rows.json").write_text(json.dumps([dict.fromkeys(names, cell)]))
    if cell is not True:
        said("predict", run, "--input", "rows.json")


# Data sets.
def hub(path: str, **more: Any) -> dict[str, Any]:
    data = {"name": "hub", "path": path, "inputs": ["a"], "target": "b", **more}
    return CONFIG | {"data": data}


@pytest.fixture(autouse=True)
def cache(here: Path, monkeypatch: pytest.MonkeyPatch, no_bars: None) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", here / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def parquet() -> bytes:
    import pyarrow
    from pyarrow import parquet as files

    stream = io.BytesIO()
    table = pyarrow.table({"a": [pickle.dumps(Payload())] * 20, "b": [0, 1] * 10})
    files.write_table(table, stream)
    return stream.getvalue()


ROWS = b"a,b\n" + b"1,0\n2,1\n" * 20


def zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../rows.csv", data)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("rows.csv", lambda: gzip.compress(ROWS, mtime=0), "is a gzip file"),
        ("rows.csv", lambda: zipped(ROWS), "is a zip file"),
        ("rows.csv.gz", lambda: gzip.compress(ROWS, mtime=0), "no reader"),
        ("rows.zip", lambda: zipped(ROWS), "no reader"),
        ("rows.pkl", lambda: pickle.dumps(Payload()), "no reader"),
        ("rows.npy", lambda: b"\x93NUMPY", "no reader"),
        ("rows.py", lambda: EVIL.encode(), "no reader"),
        ("rows.csv", lambda: pickle.dumps(Payload()), "could not be loaded"),
        ("rows.parquet", lambda: pickle.dumps(Payload()), "could not be loaded"),
        ("rows.parquet", parquet, "binary"),
        ("rows.json", lambda: b"[" * 100_000, "nested deeper"),
        ("rows.jsonl", lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested deeper"),
    ],
)
def test_a_hostile_data_file_is_refused(name: str, make: Callable[[], bytes], reason: str) -> None:
    Path(name).write_bytes(make())
    with pytest.raises(PegboardError, match=reason):
        pegboard.train(hub(f"./{name}"), root="runs", quiet=True)


def test_brackets_in_texts_are_no_nesting(here: Path) -> None:
    rows = [{"a": "[{" * 300, "b": '\\"['}, {"a": "plain", "b": "y"}] * 10
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = hub("./rows.jsonl", inputs={"a": {"kind": "category"}})
    assert pegboard.train(given, root="runs", quiet=True).status == "finished"


@pytest.mark.parametrize("beside", [False, True])
def test_a_data_set_with_a_loading_script_is_refused(here: Path, beside: bool) -> None:
    folder = here / "cats"
    folder.mkdir()
    (folder / "cats.py").write_text(EVIL)
    if beside:
        (folder / "rows.csv").write_bytes(ROWS)
    with pytest.raises(PegboardError, match="scripts are no longer supported"):
        pegboard.train(hub("./cats"), root="runs", quiet=True)


@pytest.mark.parametrize(
    "pattern", ["../secret.csv", "/etc/secret.csv", "a/../../x.csv", "https://e.org/x.csv"]
)
def test_files_of_a_data_set_stay_below_its_folder(here: Path, pattern: str) -> None:
    (here / "cats").mkdir()
    (here / "secret.csv").write_bytes(ROWS)
    with pytest.raises(PegboardError, match="leads out of"):
        check(hub("./cats", files={"train": pattern}))


@pytest.mark.parametrize("path", ["a/..", "../..", "a/b/c", "a b", "https://example.org/x"])
def test_a_hub_id_is_no_path(path: str) -> None:
    with pytest.raises(PegboardError):
        pegboard.train(hub(path), root="runs", quiet=True)


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (png(60_000, 60_000), "pixels"),
        (png(100, 100)[:60], r"row \d+ .*truncated"),
        (png(100, 100), r"row \d+ .*truncated"),
        (pickle.dumps(Payload()), "cannot identify"),
    ],
    ids=["larger than it says", "cut off", "too few rows", "a pickle"],
)
def test_a_hostile_picture_is_refused(here: Path, data: bytes, reason: str) -> None:
    Path("bad.png").write_bytes(data)
    Path("rows.csv").write_text("a,b\n" + "bad.png,0\nbad.png,1\n" * 10)
    with pytest.raises(PegboardError, match=reason):
        pegboard.train(hub("./rows.csv", inputs={"a": {"kind": "image"}}), root="runs", quiet=True)
