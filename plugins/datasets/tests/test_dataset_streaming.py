"""`hub` with memory: never reads batches from disk that are those of memory: always, bit for bit."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard import Facts, PegboardError, Ragged, Resident, Stream
from pegboard_datasets import Hub, Input, Target, streaming
from pegboard_datasets.hub_checks import check_hub

Splits = Any


def write_table(path: Path, rows: int = 90) -> str:
    """Numbers, a constant, categories, texts, classes and values."""
    rng = random.Random(3)
    lines = ["a,b,colour,words,kind,value"]
    for _ in range(rows):
        words = " ".join(rng.choice(["red", "sea", "old", "stone"]) for _ in range(rng.randint(1, 5)))
        numbers = f"{rng.gauss(3, 2)},7,{rng.choice('xyz')}"
        lines.append(f"{numbers},{words},{rng.choice('uv')},{rng.gauss(100, 5)}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def same(held: Splits, streamed: Splits, workers: int = 0) -> None:
    assert held.spec == streamed.spec
    for split in ("train", "val", "test"):
        one, two = getattr(held, split), getattr(streamed, split)
        assert isinstance(one, Resident | Ragged) and isinstance(two, Stream)
        assert len(one) == len(two)
        if isinstance(one, Ragged):
            assert two.lengths.tolist() == one.lengths.tolist()
        else:
            assert two.lengths is None
        generator = torch.Generator().manual_seed(1)
        order = list(torch.split(torch.randperm(len(one), generator=generator), 7))
        two.begin(order, workers)
        for index in order:
            a, b = one.gather(index), two.gather(index)
            pairs = [*zip(a.inputs, b.inputs, strict=True), (a.target, b.target), (a.rows, b.rows)]
            assert all(x.dtype == y.dtype and torch.equal(x, y) for x, y in pairs)
        two.close()


TARGETS = [
    ({"target": "kind"}),
    ({"target": "value", "normalize_target": True}),
    ({"target": Target(column=("a", "value"), kind="values"), "normalize": "minmax"}),
]


@pytest.mark.parametrize("fields", TARGETS, ids=["classes", "values", "two values"])
def test_tables_stream_the_same_bits(hub: Any, tmp_path: Path, fields: dict[str, Any]) -> None:
    names = ("b", "colour", "words") if "normalize" in fields else ("a", "b", "colour", "words")
    inputs = {n: Input(kind="category") if n == "colour" else Input() for n in names}
    given = {"path": write_table(tmp_path / "t.csv"), "inputs": inputs, **fields}
    held, streamed = hub(memory="always", **given), hub(memory="never", **given)
    same(held, streamed)
    for note in ("sizes", "statistics", "source", "licence"):
        assert held.notes[note] == streamed.notes[note]
    assert held.notes.get("train_classes") == streamed.notes.get("train_classes")
    assert held.notes["memory"].startswith("held in memory")
    assert streamed.notes["memory"].startswith("read batch by batch")
    table = {n: ["1"] for n in names}
    for x, y in zip(held.encode(table), streamed.encode(table), strict=True):
        assert torch.equal(x, y)


def test_processes_that_read_ahead_give_the_same_bits(hub: Any, tmp_path: Path, quiet_rngs: None) -> None:
    given = {"path": write_table(tmp_path / "t.csv"), "inputs": ("a", "words"), "target": "kind"}
    same(hub(memory="always", **given), hub(memory="never", **given), workers=2)


def make_pictures(folder: Path, count: int = 24) -> str:
    from PIL import Image

    rng = random.Random(0)
    lines = ["file,label"]
    for i in range(count):
        Image.frombytes("RGB", (5, 6), rng.randbytes(90)).save(folder / f"{i}.png")
        lines.append(f"{i}.png,{i % 3}")
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "list.csv")


@pytest.mark.parametrize("size", [None, (4, 4)])
def test_pictures_stream_the_same_bits(hub: Any, tmp_path: Path, size: Any) -> None:
    inputs = {"file": Input(kind="image", size=size)}
    given = {"path": make_pictures(tmp_path), "inputs": inputs, "target": "label"}
    same(hub(memory="always", **given), hub(memory="never", **given))


def test_a_picture_that_is_gone_or_cut_short_is_named(hub: Any, tmp_path: Path) -> None:
    path = make_pictures(tmp_path)
    inputs = {"file": Input(kind="image")}
    train = hub(path=path, inputs=inputs, target="label", memory="never").train
    row = int(train.read.rows.index[4])
    order = list(torch.split(torch.arange(len(train)), 3))
    picture = tmp_path / f"{row}.png"
    whole = picture.read_bytes()
    picture.write_bytes(whole[:60])
    where = rf"sample 4 of the split .*: column 'file', split 'train', row {row} \(0 is the first\)"
    with pytest.raises(PegboardError, match=where):
        train.gather(order[1])
    picture.unlink()
    train.begin(order, 2)
    train.gather(order[0])
    with pytest.raises(PegboardError, match=where + f": there is no file '{picture}'"):
        train.gather(order[1])
    picture.write_bytes(whole)
    train.begin(order, 0)
    assert len(train.gather(order[1]).inputs[0]) == 3


def test_a_mapped_file_that_was_cut_short_is_named(hub: Any, tmp_path: Path) -> None:
    given = {"path": write_table(tmp_path / "cut.csv"), "inputs": ("a",), "target": "kind"}
    train = hub(memory="never", **given).train
    (file,) = train.read.rows.files
    size = os.stat(file).st_size
    train.read._files[file] = size + 1  # as if it had been longer: a real cut would hurt other tests
    with pytest.raises(PegboardError, match=f"{file} was cut short: {size} bytes"):
        train.gather(torch.arange(3))


def test_auto_holds_what_fits_and_says_so(hub: Any, tmp_path: Path, monkeypatch: Any) -> None:
    given = {"path": write_table(tmp_path / "t.csv"), "inputs": ("a", "b"), "target": "kind"}
    assert isinstance(hub(**given).train, Resident)
    monkeypatch.setattr(streaming, "ALWAYS_HELD", 100)
    monkeypatch.setattr(streaming, "free_memory", lambda: 4 * 90 * 16)
    held = hub(**given)
    assert isinstance(held.train, Resident)
    assert held.notes["memory"] == "held in memory, about 1 KiB"
    monkeypatch.setattr(streaming, "free_memory", lambda: 4 * 90 * 16 - 4)
    assert isinstance(hub(**given).train, Stream)
    monkeypatch.undo()
    assert streaming.free_memory() > 0
    assert streaming.shown_bytes(3 * 2**30) == "3.0 GiB"


def test_what_does_not_fit_says_so(hub: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(streaming, "ALWAYS_HELD", 100)
    monkeypatch.setattr(streaming, "free_memory", lambda: 2000)
    given = {"path": write_table(tmp_path / "t.csv"), "inputs": ("a", "b"), "target": "kind"}
    splits = hub(**given)
    assert isinstance(splits.train, Stream)
    assert (
        splits.notes["memory"]
        == "read batch by batch, about 1 KiB in all, more than the 500 bytes that are held"
    )
    assert hub(memory="never", **given).notes["memory"] == "read batch by batch, about 1 KiB in all"


def test_free_memory_is_that_of_the_machine_or_of_the_container(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert streaming.free_memory(tmp_path) == 0
    write("proc/meminfo", "MemTotal: 900 kB\nMemAvailable: 500 kB\n")
    assert streaming.free_memory(tmp_path) == 500 * 1024
    write("sys/fs/cgroup/memory.max", "max\n")
    write("sys/fs/cgroup/memory.current", "200000\n")
    write("sys/fs/cgroup/memory.stat", "anon 150000\ninactive_file 50000\n")
    assert streaming.free_memory(tmp_path) == 500 * 1024
    write("sys/fs/cgroup/memory.max", "300000\n")
    assert streaming.free_memory(tmp_path) == 150_000
    write("sys/fs/cgroup/memory.max", "100000\n")
    assert streaming.free_memory(tmp_path) == 0


@pytest.mark.parametrize("chunks", [1, 7])
def test_any_rows_in_any_order_are_those_of_the_table(chunks: int, monkeypatch: Any) -> None:
    import datasets
    from pegboard_datasets import rows as module

    monkeypatch.setattr(module, "BLOCK", 5)
    made = {"x": [[float(i), -float(i)] for i in range(40)], "t": [f"text {i}" * (i % 4) for i in range(40)]}
    pieces = [
        {k: v[at : at + 40 // chunks + 1] for k, v in made.items()} for at in range(0, 40, 40 // chunks + 1)
    ]
    data = datasets.concatenate_datasets([datasets.Dataset.from_dict(piece) for piece in pieces])
    table = module.Rows(data, "train")
    generator = torch.Generator().manual_seed(0)
    wanted = [torch.randint(0, 40, (size,), generator=generator) for size in (0, 1, 4, 5, 6, 30)]
    wanted += [
        torch.arange(40),
        torch.arange(39, -1, -1),
        torch.arange(3, 20),
        torch.randperm(40, generator=generator),
    ]
    for index in wanted:
        found = table.take(index).read(("x", "t"))
        assert found.values("x") == [made["x"][i] for i in index]
        assert found.values("t") == table.take(index).values("t") == [made["t"][i] for i in index]


def test_texts_are_never_all_in_memory(hub: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from pegboard_datasets import encoders

    given = {"path": write_table(tmp_path / "t.csv"), "target": "kind"}
    for tokens in ("words", "bpe", "wordpiece"):
        inputs = {"words": Input(tokens=tokens, vocab=300, lowercase=True)}
        held = hub(memory="always", inputs=inputs, **given)
        read, most = encoders.strings, []

        def counted(rows: Any, name: str, read: Any = read, most: Any = most) -> list[str]:
            most.append(len(rows))
            return read(rows, name)

        with monkeypatch.context() as patch:
            patch.setattr(encoders, "TEXTS", 16)
            patch.setattr(encoders, "strings", counted)
            patch.setattr(streaming, "SAMPLED", 16)
            streamed = hub(memory="never", inputs=inputs, **given)
        assert most and max(most) == 16
        same(held, streamed)


def test_statistics_of_pieces_are_those_of_the_whole() -> None:
    from pegboard_datasets import scaling

    x = torch.randn(1000, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 1e4
    x[:, 2] = 0.1
    for how in ("standard", "minmax", "none"):
        whole = scaling.fit(x, how)  # type: ignore[arg-type]
        parts = scaling.fit_parts(torch.split(x, 77), how)  # type: ignore[arg-type]
        torch.testing.assert_close(parts.shift, whole.shift, rtol=1e-13, atol=0)
        torch.testing.assert_close(parts.scale, whole.scale, rtol=1e-11, atol=0)
        one = scaling.fit_parts([x], how)  # type: ignore[arg-type]
        assert torch.equal(one.shift, whole.shift) and torch.equal(one.scale, whole.scale)


def test_many_pieces_stream_the_same_bits(hub: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from pegboard_datasets import categories, targets, vectors

    for module, name in ((vectors, "NUMBERS"), (categories, "PIECE"), (targets, "PIECE")):
        monkeypatch.setattr(module, name, 8)
    given = {
        "path": write_table(tmp_path / "t.csv"),
        "inputs": {"a": Input(), "colour": Input(kind="category")},
        "target": "value",
        "normalize_target": True,
    }
    same(hub(memory="always", **given), hub(memory="never", **given))


def resident_set() -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmRSS"].split()[0])


def write_wide(path: Path, rows: int, width: int) -> str:
    import pyarrow
    import pyarrow.parquet

    x = torch.randn(rows * width, generator=torch.Generator().manual_seed(0)).numpy()
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x), width).cast(
        pyarrow.list_(pyarrow.float32())
    )
    table = pyarrow.table({"x": lists, "y": pyarrow.array([i % 2 for i in range(rows)])})
    pyarrow.parquet.write_table(table, path, compression=None)
    return str(path)


@pytest.mark.sweep
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not tell what is resident"
)
def test_memory_does_not_grow_with_what_was_read(hub: Any, tmp_path: Path) -> None:
    rows, width = 36_000, 1024  # 144 MiB on disk
    path = write_wide(tmp_path / "wide.parquet", rows, width)
    train = hub(path=path, inputs=("x",), target="y", memory="never", val=0.01, test=0.01).train
    order = list(torch.split(torch.arange(len(train)), 64))
    for index in order[:20]:
        train.gather(index)
    train.read.rows._table.mapped.release()
    before, most = resident_set(), 0
    for index in order[20:]:
        train.gather(index)
        most = max(most, resident_set())
    assert most - before < 64 * 2**20  # what is kept until it is given back, and the pages of a batch


def test_another_process_gets_the_way_to_the_data_and_not_the_data(hub: Any, tmp_path: Path) -> None:
    path = write_wide(tmp_path / "wide.parquet", 400, 256)
    read = hub(path=path, inputs=("x",), target="y", memory="never").train.read
    sent = pickle.dumps(read)
    assert len(sent) < 50_000
    assert torch.equal(pickle.loads(sent)([3, 1]).inputs[0], read([3, 1]).inputs[0])


def test_a_language_model_is_held_in_memory() -> None:
    def check(memory: Any) -> list[str]:
        config = Hub(
            path="owner/name", inputs={"text": Input(length=8)}, target=Target(kind="next"), memory=memory
        )
        return [problem.field for problem in check_hub(config, Facts())]

    assert check("never") == ["memory"]
    assert check("auto") == []


@pytest.mark.data
def test_real_pictures_stream_the_same_bits(hub: Any, mirror: Path) -> None:
    given = {"path": "ylecun/mnist", "inputs": ("image",), "target": "label", "limit": 200, "eval_limit": 50}
    same(hub(memory="always", **given), hub(memory="never", **given))
