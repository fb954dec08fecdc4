"""Small files in the place and form of the known data sets, for tests without the real ones.

They give the same specs as the real data sets: sizes of pictures, numbers of classes, words and symbols,
longest text, nodes of the graph. Nothing in them can be learned.
"""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy
from pegboard_gnn.trials import write_molecules

PIXELS = 28
CLOTHES = "T - shirt / top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(",")
SYMBOLS = "\n !$&',-.3:;?" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "abcdefghijklmnopqrstuvwxyz"  # of Shakespeare
QUESTION = 37  # words of the longest question
LONGEST = {"de": 69, "en": 62}  # pieces of the longest caption, without its end
PAPERS, WORDS, FIELDS, TRAINED, TESTED = 2708, 1433, 7, 140, 1000  # of Cora
ATOMS, BONDS = 7, 4  # kinds of them in MUTAG


def write_small_data(folder: Path) -> None:
    """Write all of them, as they lie in a folder that PEGBOARD_DATA names."""
    draw = numpy.random.default_rng(0)
    hub = folder / "hub"
    _pictures(hub / "ylecun/mnist", draw, [str(n) for n in range(10)])
    _pictures(hub / "zalando-datasets/fashion_mnist", draw, CLOTHES)
    _questions(hub / "CogComp/trec")
    _play(hub / "karpathy/tiny_shakespeare", draw)
    _captions(hub / "bentrevett/multi30k", draw)
    _articles(hub / "Salesforce/wikitext")
    _papers(folder / "planetoid/Cora/raw", draw)
    write_molecules(folder / "tudataset/MUTAG/raw", atoms=ATOMS, bonds=BONDS)


def _table(folder: Path, split: str, rows: list[dict[str, Any]], **features: Any) -> None:
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow import parquet

    known = {name: {"dtype": "string", "_type": "Value"} for name in rows[0]} | features
    table = pyarrow.Table.from_pylist(rows)
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": known}})})
    (folder / "data").mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, folder / "data" / f"{split}-00000-of-00001.parquet")


def _pictures(folder: Path, draw: numpy.random.Generator, names: list[str]) -> None:
    from PIL import Image

    features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    for split, count in (("train", 400), ("test", 50)):
        rows = []
        for number in range(count):
            file = io.BytesIO()
            Image.fromarray(draw.integers(0, 256, (PIXELS, PIXELS)).astype("u1")).save(file, "PNG")
            rows.append(
                {"image": {"bytes": file.getvalue(), "path": f"{number}.png"}, "label": number % len(names)}
            )
        _table(folder, split, rows, **features)


def _sentence(start: int, count: int, kinds: int) -> str:
    return " ".join(f"word{(start + i) % kinds}" for i in range(count))


def _questions(folder: Path) -> None:
    """Each word comes in several questions, so that it is in every part that is cut for training."""
    label = {"dtype": "int64", "_type": "Value"}
    for split, count in (("train", 900), ("test", 60)):
        rows = [
            {"text": f"{_sentence(9 * i, QUESTION - 1, 6000)} ?", "coarse_label": i % 6} for i in range(count)
        ]
        _table(folder, split, rows, coarse_label=label)


def _play(folder: Path, draw: numpy.random.Generator) -> None:
    for split, count in (("train", 9000), ("validation", 1500), ("test", 1500)):
        letters = draw.integers(0, len(SYMBOLS), count)
        _table(folder, split, [{"text": SYMBOLS + "".join(SYMBOLS[n] for n in letters)}])


def _captions(folder: Path, draw: numpy.random.Generator) -> None:
    letters = numpy.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(row) for row in letters[draw.integers(0, 26, (3000, 7))]]
    for split, count in (("train", 600), ("validation", 40), ("test", 40)):
        rows = [
            {name: " ".join(words[n] for n in draw.integers(0, len(words), 12)) for name in ("en", "de")}
            for _ in range(count)
        ]
        if split == "train":
            rows[0] = {name: " ".join("1" * count) for name, count in LONGEST.items()}
        _table(folder, split, rows)


def _articles(folder: Path) -> None:
    for split, count in (("train", 300), ("validation", 60), ("test", 60)):
        rows = []
        for number in range(count):
            title = [{"text": f" = Title {number // 6} = \n"}] if number % 6 == 0 else []
            rows += [
                *title,
                {"text": f" {_sentence(7 * number, 40, 2000)} . {_sentence(number, 9, 50)} . \n"},
            ]
        _table(folder, split, rows)


def _papers(folder: Path, draw: numpy.random.Generator) -> None:
    folder.mkdir(parents=True)
    words = (draw.random((PAPERS, WORDS)) < 0.01).astype("u1")
    labels = numpy.eye(FIELDS, dtype="i4")[numpy.arange(PAPERS) % FIELDS]
    rest = PAPERS - TESTED
    tested = draw.permutation(numpy.arange(rest, PAPERS))
    held = {
        "x": words[:TRAINED], "y": labels[:TRAINED], "allx": words[:rest], "ally": labels[:rest],
        "tx": words[tested], "ty": labels[tested],
        "graph": {i: [(i + 2) % PAPERS, (i + 7) % PAPERS] for i in range(PAPERS)},
    }  # fmt: skip
    for name, value in held.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value, protocol=4))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, tested)) + "\n")
