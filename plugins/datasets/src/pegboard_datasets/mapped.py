"""Files that are mapped into memory, and the pages of them that a process holds."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from pathlib import Path
from typing import Any

PLACES = 64  # read between two looks at the pages they lie on, often hundreds of KiB for each
MOST = 16 * 2**20  # bytes of such pages that a process keeps

Ranges = list[tuple[int, int]]  # first and last address


class Mapped:
    """The files behind a data set. Pages that were read count as memory of the process until they are given
    back; the system keeps them where it has room, so reading them again costs next to nothing."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.files = sorted({str(file["filename"]) for file in data.cache_files})
        self._places = 0
        self._ranges: Ranges | None = None
        self._process = 0
        self._kept = 0  # bytes that are mapped of whatever file after pages were given back

    def touched(self, places: int) -> None:
        """So many places were read."""
        self._places += places
        if self._places < PLACES:
            return
        self._places = 0
        # Giving back and mapping again costs a tenth of reading a small picture.
        if self._process != os.getpid() or _mapped_bytes() - self._kept > MOST:
            self.release()
            self._kept = _mapped_bytes()

    def release(self) -> None:
        """Give back the pages."""
        if self._ranges is None or self._process != os.getpid():
            self._ranges, self._process = self._find(), os.getpid()
        if self._ranges and (advise := _system("madvise")) is not None:
            for start, end in self._ranges:
                advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)

    def _find(self) -> Ranges:
        """Where the files are mapped, as far as the data set itself holds the mapping."""
        try:
            lines = Path("/proc/self/maps").read_text().splitlines()
        except OSError:
            return []
        held = [
            buffer.address
            for column in self.data.data.columns
            for chunk in column.chunks
            for buffer in chunk.buffers()
            if buffer is not None
        ]
        ranges = []
        for line in lines:
            area, rights, *_, path = line.split(maxsplit=5) if line.count(" ") >= 5 else ("", "", "")
            # Only pages of the file itself: what a process has written would be lost.
            if path.strip() in self.files and "w" not in rights:
                start, end = (int(number, 16) for number in area.split("-"))
                if any(start <= address < end for address in held):
                    ranges.append((start, end))
        return ranges


def _mapped_bytes() -> int:
    """Bytes of all mapped files that this process holds; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


def trim() -> None:
    """Give memory back that was freed and that the process keeps for later."""
    if (function := _system("malloc_trim")) is not None:
        function(0)


@functools.cache
def _system(name: str) -> Any:
    """A function of the C library, None where there is none; looking it up takes longer than a call."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
