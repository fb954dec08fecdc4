"""Processes that read batches ahead, each in its turn, into memory that they share with this one.

Every process has a pipe of its own and slots for its next batches, so the death of one is seen at once and
leaves no other waiting, and no signal handler, semaphore or random number of this process is used.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..base.errors import PegboardError
from ..contract.results import Batch

Read = Callable[..., Batch]  # read(rows: list[int]) or, with a seed, read(rows, key: int)

# As torch does: a forked process needs no import, nor a guard in the script that trains.
START = "fork" if sys.platform == "linux" else "spawn"
AHEAD = 4  # batches that each process has read or is reading
ALIGNED = 64  # bytes
ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
GRACE = 0.5  # seconds that processes have to end by themselves
SHOWN = 5  # row numbers that an error lists


class Unreadable(PegboardError):
    """Samples could not be read: a file is missing or damaged, or the process that read them died."""


class Packed(NamedTuple):
    """Where a tensor lies: at a place in the slot, or beside it where the slot is too small."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    at: int | bytes


class Failed(NamedTuple):
    """What a process says instead of a batch."""

    text: str
    memory: bool = False


def read_rows(read: Read, rows: list[int], key: int | None = None) -> Batch:
    """One batch; an error names the sample that caused it, where that can be found."""
    more = () if key is None else (key,)
    try:
        return read(rows, *more)
    except MemoryError:
        raise
    except Exception as error:
        first, cause = rows, error
        for row in rows:
            try:
                read([row], *more)
            except MemoryError:
                raise
            except Exception as single:
                first, cause = [row], single
                break
        raise Unreadable(f"{name_rows(first)} cannot be read: {_reason(cause)}") from cause


def name_rows(rows: Sequence[int]) -> str:
    """Samples by their numbers in the split, for people."""
    if len(rows) == 1:
        return f"sample {rows[0]} of the split (0 is the first)"
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"samples {', '.join(map(str, rows[:SHOWN]))}{more} of the split (0 is the first)"


def _reason(error: Exception) -> str:
    if isinstance(error, PegboardError):
        return str(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror or type(error).__name__}: {error.filename}"
    return f"{type(error).__name__}: {error}"


def size_of(batch: Batch) -> int:
    """Bytes that a batch takes in a slot."""
    return sum(_padded(t.numel() * t.element_size()) for t in _tensors(batch) if t is not None)


def _tensors(batch: Batch) -> list[Tensor | None]:
    return [batch.target, batch.weight, *batch.inputs]


def _padded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def _pack(batch: Batch, slot: Tensor) -> list[Packed | None]:
    """Write a batch into a slot."""
    packed: list[Packed | None] = []
    end = 0
    for tensor in _tensors(batch):
        if tensor is None:
            packed.append(None)
            continue
        flat = _flat(tensor)
        at: int | bytes = end
        if end + len(flat) > len(slot):
            at = flat.numpy().tobytes()
        else:
            slot[end : end + len(flat)].copy_(flat)
            end = _padded(end + len(flat))
        packed.append(Packed(tensor.dtype, tuple(tensor.shape), at))
    return packed


def _unpack(packed: Sequence[Packed | None], slot: Tensor, pinned: bool) -> Batch:
    """A batch of tensors of their own out of a slot, which is then free."""

    def one(place: Packed | None) -> Tensor | None:
        if place is None:
            return None
        size = place.dtype.itemsize
        for length in place.shape:
            size *= length
        own = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        if isinstance(place.at, int):
            own.copy_(slot[place.at : place.at + size])
        elif size:
            own.copy_(torch.frombuffer(bytearray(place.at), dtype=torch.uint8))
        return own.view(place.dtype).reshape(place.shape)

    target, weight, *inputs = [one(place) for place in packed]
    return Batch(tuple(t for t in inputs if t is not None), target, weight)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    slots: Tensor  # (AHEAD, bytes): row numbers, then what was read
    tasks: deque[list[int]]  # what it was told to read and has not answered
    told: int = 0
    answered: int = 0


def _slots(memory: Any) -> Tensor:
    return torch.frombuffer(memory, dtype=torch.uint8).view(AHEAD, -1)


@contextmanager
def _no_signals() -> Iterator[None]:
    """Signals that ask the run to end wait, so that a process just born cannot be hit by one."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(read: Read, pipe: Connection, inherited: Sequence[Connection], memory: Any, start: int) -> None:
    """The life of a process: rows in, batches out, until it is told to end or nobody is left to tell it."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)  # these are meant for the run, which finishes its step first
    for other in inherited:
        other.close()  # else the end of the run would not be seen
    torch.set_num_threads(1)
    slots, turn = _slots(memory), 0
    try:
        while (task := pipe.recv()) is not None:
            count, key = task
            slot = slots[turn % AHEAD]
            turn += 1
            answer: list[Packed | None] | Failed
            try:
                rows = slot[: 8 * count].view(torch.int64).tolist()
                answer = _pack(read_rows(read, rows, key), slot[start:])
            except MemoryError as error:
                answer = Failed(str(error), memory=True)
            except Exception as error:
                answer = Failed(str(error))
            pipe.send(answer)
    except (EOFError, OSError):
        pass


def _end(workers: list[_Worker]) -> None:
    """Ask processes to end, and end those that do not."""
    for worker in workers:
        with suppress(OSError):
            worker.pipe.send(None)
        worker.pipe.close()
    deadline = time.monotonic() + GRACE
    for worker in workers:
        worker.process.join(max(deadline - time.monotonic(), 0))
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        worker.process.close()
    workers.clear()


class Pool:
    """Processes that read batches of at most `rows` samples; batches above `room` bytes take a slower way."""

    def __init__(self, read: Read, workers: int, rows: int, room: int, pinned: bool = False) -> None:
        self.workers, self.rows, self.room, self._pinned = workers, rows, room, pinned
        self.largest = room  # batch that was seen, in bytes
        self._start = _padded(8 * rows)
        self._order: Sequence[Tensor] = ()
        self._next = 0  # of the order, to be told
        self._key: int | None = None
        self._sent = self._received = 0
        context: Any = multiprocessing.get_context(START)
        self._members: list[_Worker] = []
        # Before the interpreter waits for its children at exit, and when nobody holds the pool any more.
        self.close = Finalize(self, _end, (self._members,), exitpriority=10)
        for _ in range(workers):
            memory = context.RawArray(ctypes.c_ubyte, AHEAD * (self._start + _padded(room)))
            ours, theirs = context.Pipe()
            inherited = [*(m.pipe for m in self._members), ours] if START == "fork" else []
            args = (read, theirs, inherited, memory, self._start)
            process = context.Process(target=_work, args=args, daemon=True)
            with warnings.catch_warnings(), _no_signals():
                warnings.simplefilter("ignore", DeprecationWarning)  # on threads: the child uses none of them
                process.start()
            theirs.close()  # so that the death of the process ends the pipe
            self._members.append(_Worker(process, ours, _slots(memory), deque()))

    def fits(self, rows: int) -> bool:
        """Whether batches of so many samples go through the slots, as far as is known."""
        return rows <= self.rows and self.largest <= self.room

    def begin(self, order: Sequence[Tensor], key: int | None, first: int = 0) -> None:
        """Start to read these batches, in this order; what was asked for before is forgotten."""
        for worker in self._members:
            while worker.tasks:
                self._answer(worker)
        self._order, self._next, self._key = order, first, key
        self._sent = self._received = 0
        for _ in range(AHEAD * self.workers):
            self._tell()

    def next(self) -> Batch:
        """The next batch."""
        worker = self._members[self._received % self.workers]
        self._received += 1
        slot = worker.slots[worker.answered % AHEAD, self._start :]
        answer = self._answer(worker)
        if isinstance(answer, Failed):
            raise MemoryError(answer.text) if answer.memory else Unreadable(answer.text)
        batch = _unpack(answer, slot, self._pinned)
        if any(isinstance(place.at, bytes) for place in answer if place is not None):
            self.largest = max(self.largest, size_of(batch))
        self._tell()
        return batch

    def _tell(self) -> None:
        """Give the next batch to the process whose turn it is."""
        if self._next == len(self._order):
            return
        rows = self._order[self._next].cpu()
        self._next += 1
        worker = self._members[self._sent % self.workers]
        self._sent += 1
        worker.slots[worker.told % AHEAD, : 8 * len(rows)].view(torch.int64).copy_(rows)
        worker.told += 1
        worker.tasks.append(rows.tolist())
        with suppress(OSError):  # it died, which is told when its answer is due
            worker.pipe.send((len(rows), self._key))

    def _answer(self, worker: _Worker) -> Any:
        rows = worker.tasks.popleft()
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            raise self._died(worker, rows) from None
        worker.answered += 1
        return answer

    def _died(self, worker: _Worker, rows: list[int]) -> Unreadable:
        worker.process.join(GRACE)
        pid, code = worker.process.pid, worker.process.exitcode
        self.close()
        how, hint, name = f"ended with code {code}", "", ""
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            how = f"was killed by {name}"
        if name == "SIGKILL":
            hint = "\nsystems do that where memory runs out: fewer data.workers or smaller batches need less"
        elif name == "SIGBUS":
            hint = "\na file that was cut short while it was being read does that"
        return Unreadable(f"process {pid}, which reads ahead, {how} while it read {name_rows(rows)}{hint}")
