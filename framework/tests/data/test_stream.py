"""Streamed data: the same batches whoever reads them, and one clear message when nobody can."""

from __future__ import annotations

import faulthandler
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy
import pegboard
import pytest
import torch
from pegboard import Batch, PegboardError, Stream
from pegboard.data import Batches, Groups, Unreadable, workers
from pegboard.engine.evaluate import Halted, reading
from pegboard.engine.loop import Interrupted, Loop
from sweeps import first_of_each

Config = Callable[..., dict[str, Any]]
HERE = Path(__file__).parents[1]

X = torch.randn(100, 3, 2, generator=torch.Generator().manual_seed(0))
FLAGS = torch.arange(100) % 3 == 0


def read(rows: list[int]) -> Batch:
    index = torch.tensor(rows)
    return Batch((X[index], X[index].bfloat16(), FLAGS[index]), index * 2, weight=X[index, 0, 0])


strangers: list[BaseProcess] = []  # of tests that ran before in this process


def children() -> list[BaseProcess]:
    return [child for child in multiprocessing.active_children() if child not in strangers]


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    strangers[:] = multiprocessing.active_children()
    yield
    assert children() == []


def order(batch: int = 16, size: int = 100, seed: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.split(torch.randperm(size, generator=generator), batch))


def check(batch: Batch, index: torch.Tensor) -> None:
    wanted = read(index.tolist())
    assert batch.rows is index
    pairs = [*zip(batch.inputs, wanted.inputs, strict=True), (batch.target, wanted.target)]
    for found, right in [*pairs, (batch.weight, wanted.weight)]:
        assert found is not None and right is not None
        assert found.dtype == right.dtype and torch.equal(found, right)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_batches_are_the_same_whoever_reads_them(count: int) -> None:
    rngs = (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist())  # type: ignore[index]
    stream = Stream(read, 100).to("cpu")
    assert len(stream) == 100
    for epoch in range(3):
        batches = order(seed=epoch)
        stream.begin(batches, count, epoch)
        for index in batches:
            check(stream.gather(index), index)
    stream.close()
    assert torch.equal(rngs[0], torch.get_rng_state())
    assert rngs[1:] == (random.getstate(), numpy.random.get_state()[1].tolist())  # type: ignore[index]


def test_processes_stay_from_epoch_to_epoch_and_end_with_the_stream() -> None:
    stream = Stream(read, 100)
    pids = []
    for epoch in range(2):
        batches = order(seed=epoch)
        stream.begin(batches, 2, epoch)
        pids.append({child.pid for child in children()})
        for index in batches:
            stream.gather(index)
    assert pids[0] == pids[1] and len(pids[0]) == 2
    del stream  # the fixture sees that nobody is left


def test_what_was_not_announced_is_read_at_once_and_disturbs_nothing() -> None:
    stream, batches = Stream(read, 100), order()
    stream.begin(batches, 2)
    for index in batches[:3]:
        check(stream.gather(index), index)
    other = torch.tensor([5, 5, 1])
    check(stream.gather(other), other)
    check(stream.gather(batches[3]), batches[3])
    stream.begin(batches[2:], 2)  # as after a resume, with batches still under way
    for index in batches[2:]:
        check(stream.gather(index), index)
    stream.begin([], 2)


def test_batches_of_any_size_come_through() -> None:
    def grow(rows: list[int]) -> Batch:
        return Batch((torch.arange(len(rows) * rows[0] ** 2).double(),))

    stream = Stream(grow, 100)
    batches = [torch.tensor(rows) for rows in ([1], [90], [0], [7, 3], [60], [5])]
    for _ in range(3):  # in the second round there is room for the largest
        stream.begin(batches, 2)
        for index in batches:
            (found,) = stream.gather(index).inputs
            assert torch.equal(found, torch.arange(len(index) * int(index[0]) ** 2).double())
    assert stream._pool is not None and stream._pool.fits(2)
    stream.close()


def test_randomness_is_keyed_by_seed_and_epoch() -> None:
    def noisy(rows: list[int], key: int) -> Batch:
        return Batch((torch.tensor([hash((key, row)) for row in rows]),))

    def draw(seed: int, epoch: int, count: int, size: int) -> torch.Tensor:
        stream = Stream(noisy, 20, seed=seed).to("cpu")
        batches = list(torch.split(torch.arange(20), size))
        stream.begin(batches, count, epoch)
        found = torch.cat([stream.gather(index).inputs[0] for index in batches])
        stream.close()
        return found

    first = draw(1, 0, 0, 4)
    assert torch.equal(first, draw(1, 0, 2, 4)) and torch.equal(first, draw(1, 0, 2, 7))
    assert not torch.equal(first, draw(1, 1, 0, 4)) and not torch.equal(first, draw(2, 0, 0, 4))


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize(
    "error, message",
    [
        (FileNotFoundError(2, "No such file", "a.png"), "No such file: a.png"),
        (PegboardError("row 9 holds nothing"), "row 9 holds nothing"),
        (ValueError("not a picture"), "ValueError: not a picture"),
    ],
)
def test_an_error_names_the_sample_and_the_cause(count: int, error: Exception, message: str) -> None:
    def fail(rows: list[int]) -> Batch:
        if 37 in rows:
            raise error
        return read(rows)

    stream = Stream(fail, 100)
    batches = list(torch.split(torch.arange(100), 16))
    stream.begin(batches, count)
    for index in batches[:2]:
        check(stream.gather(index), index)
    with pytest.raises(Unreadable) as raised:
        stream.gather(batches[2])
    assert str(raised.value) == f"sample 37 of the split (0 is the first) cannot be read: {message}"


def test_an_error_of_a_whole_batch_names_its_samples() -> None:
    def fail(rows: list[int]) -> Batch:
        if len(rows) > 1:
            raise ValueError("sizes differ")
        return read(rows)

    with pytest.raises(Unreadable, match=r"samples 0, 1, 2, 3, 4 and 3 more .*: ValueError: sizes differ"):
        Stream(fail, 100).gather(torch.arange(8))


def test_memory_that_runs_out_in_a_process_is_told_as_such() -> None:
    def fail(rows: list[int]) -> Batch:
        if 50 in rows:
            raise MemoryError("no more")
        return read(rows)

    stream, batches = Stream(fail, 100), list(torch.split(torch.arange(100), 50))
    stream.begin(batches, 1)
    stream.gather(batches[0])
    with pytest.raises(MemoryError, match="no more"):
        stream.gather(batches[1])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGBUS])
def test_a_killed_process_is_told_at_once(number: signal.Signals) -> None:
    def quiet(rows: list[int]) -> Batch:
        faulthandler.disable()  # pytest's would print where the process was
        return read(rows)

    stream, batches = Stream(quiet, 100), order(4)
    stream.begin(batches, 2)
    for index in batches[:3]:
        stream.gather(index)
    victim = children()[0]
    assert victim.pid is not None
    os.kill(victim.pid, number)
    with pytest.raises(
        Unreadable, match=f"process {victim.pid}, .* was killed by {number.name} while it read"
    ):
        for index in batches[3:]:
            stream.gather(index)
    stream.begin(batches, 2)  # and it can begin anew
    check(stream.gather(batches[0]), batches[0])
    stream.close()


def test_a_process_killed_between_two_epochs_is_told_too() -> None:
    stream, batches = Stream(read, 100), order()
    stream.begin(batches, 1)
    for index in batches:
        stream.gather(index)
    (victim,) = children()
    victim.kill()
    victim.join()
    with pytest.raises(Unreadable, match="SIGKILL"):
        stream.begin(batches, 1)
        stream.gather(batches[0])


def test_processes_leave_signals_to_the_run() -> None:
    stream, batches = Stream(read, 100), order()
    stream.begin(batches, 2)
    stream.gather(batches[0])
    for child in children():
        assert child.pid is not None
        for number in ("SIGTERM", "SIGINT", "SIGHUP"):  # a terminal tells all its processes that it goes
            os.kill(child.pid, getattr(signal, number, 0))
    for index in batches[1:]:
        check(stream.gather(index), index)
    stream.close()


def test_a_process_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(rows: list[int]) -> Batch:
        if rows[0] > 0:
            time.sleep(60)
        return read(rows)

    monkeypatch.setattr(workers, "GRACE", 0.1)
    stream = Stream(sleep, 100)
    stream.begin(list(torch.split(torch.arange(100), 10)), 2)
    stream.close()


def told(rows: list[int]) -> Batch:
    """The process that read them."""
    return Batch((torch.full((len(rows),), os.getpid()),))


def test_an_evaluation_is_read_ahead_and_leaves_no_process() -> None:
    source, order = Stream(told, 100), torch.arange(100)
    with reading(source, Batches(order, 16), 2) as batches:
        readers = [batch.inputs[0].tolist() for batch in batches]
        assert len(children()) == 2
    assert [len(rows) for rows in readers] == [16] * 6 + [4]
    assert set(readers[0]) == {os.getpid()}  # shows how much room a batch takes
    assert len({pid for rows in readers[1:] for pid in rows} - {os.getpid()}) == 2
    assert children() == []
    with reading(source, Batches(order, 100), 2) as batches:  # one batch is not worth a process
        assert set(next(batches).inputs[0].tolist()) == {os.getpid()}
        assert children() == []


def test_an_evaluation_that_is_given_up_leaves_no_process() -> None:
    with pytest.raises(Halted), reading(Stream(read, 100), Batches(torch.arange(100), 8), 2) as batches:
        next(batches)
        raise Halted
    assert children() == []


class Lent(Sequence[torch.Tensor]):
    """Batches that are made when they are asked for, and counted while somebody holds them."""

    def __init__(self, count: int) -> None:
        self.count, self.alive = count, weakref.WeakSet[torch.Tensor]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: Any) -> Any:
        index = torch.arange(4) + range(self.count)[at] % 20
        self.alive.add(index)
        return index


def test_nothing_is_kept_for_the_batches_of_an_epoch() -> None:
    stream, order = Stream(read, 100), Lent(5000)
    stream.begin(order, 2)
    assert len(order.alive) <= 1
    stream.close()


def test_batches_are_cut_from_an_order_as_a_list_of_them_is() -> None:
    numbers = torch.randperm(50)
    for size, together, until in ((7, 1, 50), (7, 3, 50), (10, 2, 50), (60, 2, 50), (8, 3, 48)):
        parts = torch.split(numbers[:until], size)
        wanted = [parts[i : i + together] for i in range(0, len(parts), together)]
        groups = Groups(Batches(numbers[:until], size), together)
        assert len(groups) == len(wanted)
        for piece in (slice(None), slice(1, None), slice(0, 2), slice(5, 1), slice(-1, None)):
            found = [[index.tolist() for index in group] for group in groups[piece]]
            assert found == [[index.tolist() for index in group] for group in wanted[piece]]
            flat = [index.tolist() for index in groups[piece].batches]
            assert flat == [index.tolist() for group in wanted[piece] for index in group]
        assert [i.tolist() for i in groups[-1]] == [i.tolist() for i in wanted[-1]]
        with pytest.raises(IndexError):
            groups[len(groups)]


def test_batches_cut_anew_are_known_as_those_that_were_announced() -> None:
    stream, batches = Stream(told, 100), Batches(torch.randperm(100), 16)
    stream.begin(batches, 2)
    readers = {stream.gather(index).inputs[0][0].item() for index in batches}
    assert len(readers) == 3  # the first is read by this process
    stream.close()


def test_batches_for_a_gpu_come_in_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch hands out a pinned block again once the copies from it are done, if it made the block itself."""
    asked: list[tuple[int, bool]] = []

    def empty(size: int, dtype: torch.dtype, pin_memory: bool) -> torch.Tensor:
        asked.append((size, pin_memory))
        return torch.zeros(size, dtype=dtype)

    monkeypatch.setattr(workers.torch, "empty", empty)
    pool, batches = workers.Pool(read, 1, 16, 10, pinned=True), order()
    pool.begin(batches, None)  # with room for the smallest tensor only: the others come beside the slot
    found = pool.next()
    pool.close()
    check(found._replace(rows=batches[0]), batches[0])
    wanted = [
        t.numel() * t.element_size() for t in (found.target, found.weight, *found.inputs) if t is not None
    ]
    assert asked == [(size, True) for size in wanted]


def test_what_goes_to_a_device_is_copied_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[bool] = []
    to = torch.Tensor.to

    def watched(self: torch.Tensor, *args: Any, non_blocking: bool = False, **kwargs: Any) -> torch.Tensor:
        waits.append(not non_blocking)
        return to(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", watched)
    batch = Stream(read, 100).to("meta").gather(torch.arange(4))
    assert {t.device.type for t in (*batch.inputs, batch.target, batch.weight, batch.rows)} == {"meta"}
    assert waits == [False] * 6


SCRIPT = """
import multiprocessing, sys, time, torch
from pegboard import Batch, Stream
stream = Stream(lambda rows: Batch((torch.tensor(rows),)), 100)
batches = list(torch.split(torch.arange(100), 10))
stream.begin(batches, 2)
stream.gather(batches[0])
print(*[child.pid for child in multiprocessing.active_children()], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", first_of_each(["at its end", "killed"]))
def test_no_process_outlives_the_one_that_reads(end: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        if end == "killed":
            process.kill()
        process.stdin.close()
        process.wait(600)
    deadline = time.monotonic() + 600
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # nobody waits for an orphan in some containers


@pytest.fixture
def filed(config: Config, tmp_path: Path) -> Config:
    """A config whose data is 64 rows of a file; keyword arguments are fields of the data node."""
    generator = torch.Generator().manual_seed(5)
    target = torch.arange(64) % 2
    table = torch.cat([torch.randn(64, 2, generator=generator) + target[:, None], target[:, None]], 1)
    path = tmp_path / "points.bin"
    path.write_bytes(table.numpy().tobytes())

    def make(**fields: Any) -> dict[str, Any]:
        return config(
            data={"name": "filed", "path": str(path), "batch_size": 8, **fields},
            plugins={"local": [str(HERE / "toy.py"), str(HERE / "streamed.py")]},
            regularizers={"drop": {"p": 0.3}},
            trainer={"epochs": 3, "device": "cpu", "accumulate": 2, "log_every": 3},
        )

    return make


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[Any], None]) -> None:
    """Do something when the loop asks for a certain batch; what was read before it began is not counted."""
    gather, run, count = Stream.gather, Loop.run, itertools.count(1)
    running = False

    def counted(self: Stream, index: torch.Tensor) -> Batch:
        if running and next(count) == number:
            act(self)
        return gather(self, index)

    def begun(self: Loop) -> str | None:
        nonlocal running
        running = True
        return run(self)

    monkeypatch.setattr(Stream, "gather", counted)
    monkeypatch.setattr(Loop, "run", begun)


Outcome = tuple[bytes, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def memo() -> dict[str, Outcome]:
    return {}


@pytest.fixture
def whole(filed: Config, root: Path, memo: dict[str, Outcome]) -> Outcome:
    """What a run of data held in memory ends with, trained once for all tests."""
    if "held" not in memo:
        memo["held"] = outcome(pegboard.train(filed(held=True), root=root / "whole", quiet=True))
    return memo["held"]


def outcome(run: pegboard.Run) -> Outcome:
    return (run.folder / "checkpoints" / "last" / "model.safetensors").read_bytes(), run.history


def folder_of(root: Path) -> Path:
    (folder,) = (root / "run").glob("2*")
    return folder


@pytest.mark.parametrize("count", first_of_each([0, 2]))
def test_a_run_ends_with_the_same_bytes_in_memory_and_streamed(
    filed: Config, root: Path, whole: Outcome, count: int
) -> None:
    assert outcome(pegboard.train(filed(workers=count), root=root, quiet=True)) == whole


@pytest.mark.parametrize("batch", first_of_each([1, 10, 13, 20]))  # of 8 in an epoch and 2 in an evaluation
def test_a_run_stopped_in_an_epoch_or_an_evaluation_resumes_exactly(
    filed: Config, root: Path, whole: Outcome, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    at_step(monkeypatch, batch, lambda stream: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted):
        pegboard.train(filed(workers=2), root=root / "cut", quiet=True)
    assert children() == []
    monkeypatch.undo()
    run = pegboard.resume(folder_of(root / "cut"), quiet=True)
    assert outcome(run) == whole


@pytest.mark.parametrize("batch", first_of_each([10, 14]))
def test_a_run_killed_in_an_epoch_or_an_evaluation_resumes_exactly(
    filed: Config, root: Path, whole: Outcome, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    at_step(monkeypatch, batch, lambda stream: os.kill(os.getpid(), signal.SIGKILL))
    pid = os.fork()
    if not pid:
        try:
            pegboard.train(filed(workers=2), root=root / "cut", quiet=True)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    monkeypatch.undo()
    run = pegboard.resume(folder_of(root / "cut"), quiet=True)
    assert outcome(run) == whole


def kill_reader(stream: Stream) -> None:
    children()[0].kill()


@pytest.mark.sweep
def test_a_run_whose_reader_is_killed_says_so_and_resumes_exactly(
    filed: Config, root: Path, whole: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_step(monkeypatch, 12, kill_reader)
    with pytest.raises(PegboardError, match=r"(?s)stopped after step \d: .* SIGKILL.* pegboard resume"):
        pegboard.train(filed(workers=2), root=root / "cut", quiet=True)
    assert children() == []
    monkeypatch.undo()
    assert pegboard.Run(folder_of(root / "cut")).status == "failed"
    run = pegboard.resume(folder_of(root / "cut"), quiet=True)
    assert outcome(run) == whole


@pytest.mark.parametrize("count", first_of_each([0, 2]))
@pytest.mark.parametrize("damage", first_of_each(["missing", "cut short"]))
def test_a_run_whose_file_is_damaged_says_so_and_resumes_exactly(
    filed: Config,
    root: Path,
    tmp_path: Path,
    whole: Outcome,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    damage: str,
) -> None:
    path = tmp_path / "points.bin"
    content = path.read_bytes()

    def harm(stream: Stream) -> None:
        if damage == "missing":
            path.unlink()
        else:
            os.truncate(path, 30)

    at_step(monkeypatch, 2, harm)
    said = f"No such file or directory: {path}" if damage == "missing" else f"{path} ends too early"
    with pytest.raises(PegboardError, match=rf"(?s)sample \d+ of the split .*{said}.*pegboard resume"):
        pegboard.train(filed(workers=count), root=root / "cut", quiet=True)
    monkeypatch.undo()
    path.write_bytes(content)
    run = pegboard.resume(folder_of(root / "cut"), quiet=True)
    assert outcome(run) == whole
