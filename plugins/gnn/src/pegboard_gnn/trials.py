"""Small files in the forms of the known data sets, to try the data sets with."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy


def write_citations(folder: Path, papers: int = 640) -> None:
    """Papers of two classes, the first of which know other words than the second, in a ring with chords."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = numpy.random.default_rng(0)
    classes = numpy.arange(papers) % 2
    words = (draw.random((papers, 6)) < 0.2 + 0.6 * (numpy.arange(6) // 3 == classes[:, None])).astype("f4")
    labels = numpy.eye(2, dtype="i4")[classes]
    trained, tested = 20, 40
    rest = papers - tested
    order = draw.permutation(numpy.arange(rest, papers))
    held = {
        "x": words[:trained], "y": labels[:trained], "allx": words[:rest], "ally": labels[:rest],
        "tx": words[order], "ty": labels[order],
        "graph": {i: [(i + 2) % papers, (i + 7) % papers] for i in range(papers)},
    }  # fmt: skip
    for name, value in held.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value, protocol=4))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, order)) + "\n")


def write_molecules(folder: Path, graphs: int = 60, atoms: int = 3, bonds: int = 2) -> None:
    """Rings of some kinds of atoms, which are of one class where the first kind prevails."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = numpy.random.default_rng(0)
    edges: list[str] = []
    owner: list[int] = []
    nodes: list[int] = []
    links: list[int] = []
    classes: list[int] = []
    first = 1
    for graph in range(graphs):
        size = 4 + graph % 4
        kinds = [int(k) for k in draw.integers(0, atoms, size)]
        classes.append(1 if kinds.count(0) > size // 3 else -1)
        for at in range(size):
            a, b = first + at, first + (at + 1) % size
            edges += [f"{a}, {b}", f"{b}, {a}"]
            links += [at % bonds] * 2
        owner += [graph + 1] * size
        nodes += kinds
        first += size
    lines: dict[str, list[str] | list[int]] = {
        "A": edges, "graph_indicator": owner, "graph_labels": classes, "node_labels": nodes,
        "edge_labels": links,
    }  # fmt: skip
    for name, rows in lines.items():
        (folder / f"MUTAG_{name}.txt").write_text("\n".join(str(row) for row in rows) + "\n")


def write_pictures(folder: Path, count: int = 60) -> None:
    """Pictures of a bright bar, upright or level, as a table with its pictures inside."""
    import io

    import pyarrow  # type: ignore[import-untyped]
    from PIL import Image
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    draw = numpy.random.default_rng(0)
    rows = []
    for number in range(count):
        pixels = draw.integers(0, 40, (8, 8)).astype("u1")
        at = int(draw.integers(1, 7))
        pixels[at if number % 2 else slice(None), slice(None) if number % 2 else at] = 255
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        rows.append({"image": {"bytes": file.getvalue(), "path": None}, "label": number % 2})
    known = {
        "info": {"features": {"image": {"_type": "Image"}, "label": {"dtype": "int64", "_type": "Value"}}}
    }
    for split, part in (("train", rows[: 2 * count // 3]), ("test", rows[2 * count // 3 :])):
        table = pyarrow.Table.from_pylist(part)
        table = table.replace_schema_metadata({"huggingface": json.dumps(known)})
        parquet.write_table(table, folder / f"{split}.parquet")
