"""Memory that the C library keeps between steps of a run on the CPU.

Every step frees what it allocated. glibc hands the end of its heap back to the system when much of it is
free, and the next step fetches it again, page by page. While a run trains, the heap is kept. Blocks above
32 MiB are mapped and given back as ever: in a heap they would leave holes where batches differ in size.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TRIM, MAPPED = -1, -3  # of mallopt
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


def _library() -> ctypes.CDLL | None:
    """glibc, where it is the C library and nobody has told it what to keep."""
    if sys.platform != "linux" or any(name in os.environ for name in VARIABLES):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
