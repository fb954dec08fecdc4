"""Train on a streamed table and print the memory that it takes: `python resident_set.py ROWS FOLDER`.

Counted is what the processes of a run have of their own: anonymous and shared memory, of pages that they
share each its part. Pages of mapped files are not: the system drops them when it needs room, and how many
are mapped at an instant depends on the machine; that their number is bounded has a test of its own.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import sys
from pathlib import Path

import datasets
import numpy
import pegboard
import pyarrow
import pyarrow.parquet
import torch
from pegboard import Batch, Stream

WIDTH = 32
EVERY = 20  # batches between two looks


def write(path: Path, rows: int) -> None:
    x = numpy.random.default_rng(0).normal(size=rows * WIDTH).astype("float32")
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x), WIDTH)
    columns = {"x": lists.cast(pyarrow.list_(pyarrow.float32())), "y": pyarrow.array(numpy.arange(rows) % 2)}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression=None)


def own_memory() -> int:
    """Bytes of this process and those that read for it."""
    total = 0
    for pid in (os.getpid(), *(child.pid for child in multiprocessing.active_children())):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += 1024 * int(line.split()[1])
    return total


def main(rows: int, folder: Path) -> None:
    datasets.disable_progress_bars()
    datasets.config.HF_DATASETS_CACHE = folder / "cache"
    write(folder / "rows.parquet", rows)
    gather, count, seen, processes = Stream.gather, itertools.count(1), list[int](), set[int]()

    def looked(self: Stream, index: torch.Tensor) -> Batch:
        if next(count) % EVERY == 0:
            seen.append(own_memory())
            processes.add(len(multiprocessing.active_children()))
        return gather(self, index)

    Stream.gather = looked  # type: ignore[method-assign]
    config = {
        "data": {
            "name": "hub", "path": str(folder / "rows.parquet"), "inputs": ["x"], "target": "y",
            "memory": "never", "workers": 2, "batch_size": 64, "eval_limit": 2000,
        },
        "model": {"name": "mlp", "hidden": [16]},
        "optimizer": {"name": "adam"},
        "trainer": {"steps": 200, "device": "cpu", "threads": 1},
    }  # fmt: skip
    pegboard.train(config, root=folder / "runs", quiet=True)
    print(json.dumps({"most": max(seen), "looks": len(seen), "processes": max(processes)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
