"""Files that are mapped into memory, and the pages of them that a process holds."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

ROWS = 64  # read at random before the pages they lie on, often hundreds of KiB for each, are given back

Ranges = list[tuple[int, int]]  # first and last address


class Mapped:
    """The files behind a data set. Pages that were read count as memory of the process until they are given
    back; the system keeps them where it has room, so reading them again costs next to nothing."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.files = sorted({str(file["filename"]) for file in data.cache_files})
        self._rows = 0
        self._ranges: Ranges | None = None
        self._process = 0

    def touched(self, rows: int) -> None:
        """So many rows are about to be read; those before them were."""
        if self._rows + rows > ROWS:
            self.release()
        self._rows += rows

    def release(self) -> None:
        """Give back the pages."""
        self._rows = 0
        if self._ranges is None or self._process != os.getpid():
            self._ranges, self._process = self._find(), os.getpid()
        advise = getattr(ctypes.CDLL(None), "madvise", None) if self._ranges else None
        if advise is not None:
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
