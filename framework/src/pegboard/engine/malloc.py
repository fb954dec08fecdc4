"""Memory that the C library keeps between steps of a run on the CPU, in large pages.

Every step frees what it allocated. glibc hands the end of its heap back to the system when much of it is
free, and the next step fetches it again, page by page. While a run trains, the heap is kept. Blocks above
32 MiB are mapped and given back as ever: in a heap they would leave holes where batches differ in size.
A kept heap is worth pages of 2 MiB: the processor looks up where memory is far less often.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TRIM, MAPPED = -1, -3  # of mallopt
HUGE, COLLAPSE = 14, 25  # of madvise: large pages from now on, and what there is put together to such
PAGE = 2 * 2**20  # bytes of a large page
LARGEST = 32 * 2**20  # bytes of a block in the heap, as far as glibc goes
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@contextmanager
def kept_heap(device: str) -> Iterator[None]:
    """The heap does not shrink before the end.

    Nothing is done on other devices, with another C library, or where a variable of glibc says what to do.
    """
    libc = _library() if device.startswith("cpu") else None
    if libc is None:
        yield
        return
    libc.mallopt(MAPPED, LARGEST)
    libc.mallopt(TRIM, -1)
    try:
        yield
    finally:
        libc.mallopt(TRIM, 2 * LARGEST)  # what glibc itself comes to after blocks of that size
        libc.malloc_trim(0)


class Pages:
    """Asks for large pages as the heap grows; a system that has none, or gives them to all, ignores it."""

    def __init__(self, device: str) -> None:
        self._libc = _library() if device.startswith("cpu") else None
        self._end = 0  # of the heap, when large pages were last asked for
        if self._libc is not None:
            self._libc.sbrk.restype = ctypes.c_void_p

    def settle(self) -> None:
        """What the heap has by now shall lie in large pages; takes a microsecond where it has not grown."""
        if self._libc is None or (end := self._libc.sbrk(0)) < self._end + PAGE:
            return
        self._end = end
        for first, last in _heap():
            first, last = -(-first // PAGE) * PAGE, last // PAGE * PAGE
            for advice in (HUGE, COLLAPSE) if first < last else ():
                self._libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), advice)


def _heap() -> list[tuple[int, int]]:
    """Where the heap is: the address of its beginning and end, of each of its parts."""
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        own = [line.split()[0].split("-") for line in maps if line.endswith("[heap]\n")]
        return [(int(first, 16), int(last, 16)) for first, last in own]
    return []


def _library() -> ctypes.CDLL | None:
    """glibc, where it is the C library and nobody has told it what to keep."""
    if sys.platform != "linux" or any(name in os.environ for name in VARIABLES):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
