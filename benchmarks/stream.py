"""Rows per second of streamed data beside a torch DataLoader over the same Arrow files.

    python benchmarks/stream.py [--workers 0 1 2] [--repeats 7] [--rows 8192] [--json out.json]

Small pictures, texts and wide rows of numbers, shuffled, in batches of 64. All read the same `datasets`
table mapped into memory, and give the same tensors: decoded and scaled pictures, numbers of words, scaled
numbers. The DataLoader stands in two forms: as the documentation of `datasets` shows it, where the table
gives a list of samples that are collated, and as a good engineer writes it, where the table gives a whole
batch. Its processes persist and prefetch as many batches as they do unasked. Nothing is trained: what is
timed is a pass over all rows. Repeats are interleaved and medians count. Besides the wall clock, CPU time
is measured, which others on the machine cannot lengthen: that of all processes for a row, and that of the
busiest one, which says how many rows a second come where every process has a core of its own.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy
import torch
from machine import machine
from pegboard import Stream
from pegboard_datasets import Hub, hub
from pegboard_datasets.hub_options import Input
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

BATCH = 64
WIDTH = 256  # numbers in a row
LENGTH = 48  # words of a text that are kept
RESULTS = Path(__file__).parent / "results" / "stream.json"

Columns = dict[str, Any]
Encode = Callable[[Columns], tuple[Tensor, Tensor]]


def pictures(rows: int, folder: Path) -> tuple[Stream, Any, Encode]:
    """28x28 grey pictures, packed as PNG."""
    rng = random.Random(0)

    def packed() -> bytes:
        file = io.BytesIO()
        Image.frombytes("L", (28, 28), rng.randbytes(784)).save(file, "png")
        return file.getvalue()

    table = {
        "x": [{"bytes": packed(), "path": None} for _ in range(rows)],
        "y": [i % 10 for i in range(rows)],
    }
    features = datasets.Features({"x": datasets.Image(), "y": datasets.Value("int64")})
    stream, data = load(table, features, folder, {"x": Input(kind="image")})
    scaler = stream.read.encoders[0]._scaler
    shift, scale = scaler.shift.float(), scaler.scale.float()

    def encode(batch: Columns) -> tuple[Tensor, Tensor]:
        pixels = torch.from_numpy(numpy.stack([numpy.asarray(picture) for picture in batch["x"]]))
        return pixels[:, None].float().div_(255).sub_(shift).div_(scale), torch.tensor(batch["y"])

    return stream, data, encode


def texts(rows: int, folder: Path) -> tuple[Stream, Any, Encode]:
    """Texts of 10 to 60 words out of 2000."""
    rng = random.Random(0)
    words = [f"w{i}" for i in range(2000)]
    table = {
        "x": [" ".join(rng.choices(words, k=rng.randint(10, 60))) for _ in range(rows)],
        "y": [i % 10 for i in range(rows)],
    }
    features = datasets.Features({"x": datasets.Value("string"), "y": datasets.Value("int64")})
    stream, data = load(table, features, folder, {"x": Input(kind="text", length=LENGTH)})
    encoder = stream.read.encoders[0]
    number = {symbol: i for i, symbol in enumerate(encoder.vocabulary.symbols)}
    unknown, split = number["<unk>"], re.compile(r"\w+|[^\w\s]").findall

    def encode(batch: Columns) -> tuple[Tensor, Tensor]:
        x = numpy.zeros((len(batch["x"]), LENGTH), dtype=numpy.int64)
        for row, text in enumerate(batch["x"]):
            found = [number.get(word, unknown) for word in split(text)[:LENGTH]]
            x[row, : len(found)] = found
        return torch.from_numpy(x), torch.tensor(batch["y"])

    return stream, data, encode


def numbers(rows: int, folder: Path) -> tuple[Stream, Any, Encode]:
    """Lists of float32 numbers."""
    x = numpy.random.default_rng(0).normal(size=(rows, WIDTH)).astype("float32")
    features = datasets.Features(
        {"x": datasets.List(datasets.Value("float32"), WIDTH), "y": datasets.Value("int64")}
    )
    stream, data = load({"x": x, "y": [i % 10 for i in range(rows)]}, features, folder, {"x": Input()})
    scaler = stream.read.encoders[0]._scalers["x"]
    shift, scale = scaler.shift.float(), scaler.scale.float()

    def encode(batch: Columns) -> tuple[Tensor, Tensor]:
        return (torch.as_tensor(batch["x"]) - shift) / scale, torch.as_tensor(batch["y"])

    return stream, data.with_format("torch"), encode


WORKLOADS = {"pictures": pictures, "texts": texts, "numbers": numbers}


def load(table: Columns, features: Any, folder: Path, inputs: dict[str, Input]) -> tuple[Any, Any]:
    """Our stream over a parquet file, and the table that it maps."""
    path = folder / "rows.parquet"
    datasets.Dataset.from_dict(table, features).to_parquet(path)
    config = Hub(path=str(path), inputs=inputs, target="y", memory="never", val=0, test=0, split_seed=0)
    stream = hub.build(config).train
    return stream, stream.read.rows.data


def ours(stream: Stream, workers: int) -> Callable[[int], int]:
    """One pass over all rows, as the loop makes it."""
    own = stream.to("cpu")

    def run(epoch: int) -> int:
        order = torch.randperm(len(own), generator=torch.Generator().manual_seed(epoch))
        batches = torch.split(order, BATCH)
        own.begin(batches, workers, epoch)
        return sum(len(own.gather(index).inputs[0]) for index in batches)

    return run


class Whole(torch.utils.data.Dataset[Any]):
    """A table that gives whole batches."""

    def __init__(self, data: Any, encode: Encode) -> None:
        self.data, self.encode = data, encode

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        return self.encode(self.data[rows])


def theirs(data: Any, workers: int, **options: Any) -> Callable[[int], int]:
    loader: Any = DataLoader(
        data, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0, **options
    )
    first = 0 if options else "x"
    return lambda epoch: sum(len(batch[first]) for batch in loader)


def collated(data: Any, encode: Encode) -> Any:
    """The table as the documentation of `datasets` gives it to a DataLoader."""

    def transform(batch: Columns) -> Columns:
        return dict(zip("xy", encode(batch), strict=True))

    form = data.format["type"]
    return data if form == "torch" else data.with_transform(transform)


def cpu_seconds() -> dict[int, float]:
    """Of this process and those that read for it."""
    spent = {os.getpid(): time.process_time()}
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        spent[child.pid or 0] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def measure(runs: dict[str, Callable[[int], int]], repeats: int) -> dict[str, dict[str, float]]:
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in runs}
    for run in runs.values():
        run(0)
    rows = 0
    for epoch in range(1, repeats + 1):
        for name, run in runs.items():
            started, before = time.perf_counter(), cpu_seconds()
            rows = run(epoch)
            seconds = time.perf_counter() - started
            spent = [now - before[pid] for pid, now in cpu_seconds().items()]
            taken[name].append((seconds, max(spent), sum(spent)))
    found = {}
    for name, times in taken.items():
        wall, busiest, total = (statistics.median(column) for column in zip(*times, strict=True))
        found[name] = {
            "rows_per_second": round(rows / wall),
            "rows_per_second_of_busiest": round(rows / busiest),
            "cpu_us_per_row": round(total / rows * 1e6, 1),
        }
    return found


def side_by_side(name: str, rows: int, workers: int, repeats: int, folder: Path) -> dict[str, Any]:
    stream, data, encode = WORKLOADS[name](rows, folder)
    loaders = {
        "pegboard": ours(stream, workers),
        "DataLoader, samples": theirs(collated(data, encode), workers),
        "DataLoader, batches": theirs(Whole(data, encode), workers, collate_fn=lambda batch: batch),
    }
    found = measure(loaders, repeats)
    own, *others = found.values()
    ratios = {key: round(own[key] / max(row[key] for row in others), 2) for key in list(own)[:2]}
    ratios["cpu_us_per_row"] = round(own["cpu_us_per_row"] / min(row["cpu_us_per_row"] for row in others), 2)
    return {"workload": name, "workers": workers, "loaders": found, "to_best_loader": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--json", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    results = []
    print(HEAD)
    for name in args.workloads:
        for workers in args.workers:
            with tempfile.TemporaryDirectory() as folder:
                datasets.config.HF_DATASETS_CACHE = Path(folder)
                results.append(side_by_side(name, args.rows, workers, args.repeats, Path(folder)))
            print(line(results[-1]), flush=True)
    args.json.parent.mkdir(exist_ok=True)
    facts = {"machine": machine(), "batch": BATCH, "rows": args.rows, "repeats": args.repeats}
    args.json.write_text(json.dumps(facts | {"results": results}, indent=1) + "\n")


HEAD = (
    f"{'':18}{'':>8}{'rows/s':>40}{'pegboard to the better DataLoader':>38}\n"
    f"{'':18}{'workers':>8}{'':>4}{'pegboard':>12}{'samples':>12}{'batches':>12}"
    f"{'rows/s':>14}{'of a core':>12}{'CPU':>12}"
)


def line(row: dict[str, Any]) -> str:
    rates = "".join(f"{loader['rows_per_second']:>12,}" for loader in row["loaders"].values())
    rate, core, cpu = row["to_best_loader"].values()
    return f"{row['workload']:18}{row['workers']:>8}{'':>4}{rates}{rate:>14.2f}{core:>12.2f}{cpu:>12.2f}"


if __name__ == "__main__":
    main()
