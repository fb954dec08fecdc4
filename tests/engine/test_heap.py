"""Memory that a run on the CPU keeps between its steps."""

import ctypes
import resource
import sys
from pathlib import Path

import pegboard
import pytest
import torch
from pegboard.engine import malloc

BLOCKS, LARGE = 6, 4 * 2**20  # tensors of 16 MiB: together more than the C library keeps by itself
PAGES = BLOCKS * LARGE * 4 // resource.getpagesize()
CONFIG = {
    "data": {"name": "moons", "samples": 64},
    "model": {"name": "mlp", "hidden": [4]},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "trainer": {"steps": 2, "device": "cpu"},
}
KEPT = [("mallopt", malloc.MAPPED, malloc.LARGEST), ("mallopt", malloc.TRIM, -1)]
PUT_BACK = [("mallopt", malloc.TRIM, 2 * malloc.LARGEST), ("malloc_trim", 0)]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of the C library of Linux")


class Library:
    """A C library that notes what it is told; `gnu` tells glibc from others."""

    def __init__(self, gnu: bool = True) -> None:
        self.told: list[tuple] = []
        if gnu:
            self.gnu_get_libc_version = None

    def mallopt(self, *values: int) -> None:
        self.told.append(("mallopt", *values))

    def malloc_trim(self, kept: int) -> None:
        self.told.append(("malloc_trim", kept))

    def madvise(self, first: ctypes.c_void_p, size: ctypes.c_size_t, advice: int) -> None:
        self.told.append(("madvise", first.value, size.value, advice))

    class sbrk:  # noqa: N801
        """Says where the heap ends."""

        end = 0

        def __new__(cls, more: int) -> int:
            return cls.end


@pytest.fixture
def library(monkeypatch):
    for name in malloc.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    library = Library()
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: library)
    return library


def test_tensors_that_come_and_go_fetch_their_pages_once(monkeypatch):
    for name in malloc.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with malloc.kept_heap("cpu"):
        for at in range(8):
            if at == 4:  # until then the heap grows
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            [torch.ones(LARGE) for _ in range(BLOCKS)]
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < PAGES / 2


def test_a_run_keeps_the_heap_until_its_end(library, tmp_path):
    pegboard.train(CONFIG, root=tmp_path, quiet=True)
    assert library.told == KEPT + PUT_BACK


def flags() -> list[str]:
    """What the system was told of each part of this process's heap."""
    told = Path("/proc/self/smaps").read_text("utf-8").split("[heap]")[1:]
    return [part.split("VmFlags:")[1].splitlines()[0] for part in told]


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no large pages here")
def test_a_heap_that_grew_lies_in_large_pages(monkeypatch):
    for name in malloc.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with malloc.kept_heap("cpu"):
        kept = [torch.ones(LARGE) for _ in range(BLOCKS)]
        before = [t.sum() for t in kept]
        pages = malloc.Pages("cpu")
        pages.settle()
        assert any("hg" in part.split() for part in flags())
        assert [t.sum() for t in kept] == before


def test_large_pages_are_asked_for_only_where_the_heap_grew(library, monkeypatch):
    page, start = malloc.PAGE, 10 * malloc.PAGE
    monkeypatch.setattr(malloc, "_heap", lambda: [(start - 5, library.sbrk.end)])
    monkeypatch.setattr(library.sbrk, "end", start + 3 * page + 7)
    pages = malloc.Pages("cpu")
    pages.settle()
    asked = [("madvise", start, 3 * page, advice) for advice in (malloc.HUGE, malloc.COLLAPSE)]
    assert library.told == asked
    library.sbrk.end += page - 1
    pages.settle()
    assert library.told == asked
    library.sbrk.end += 1
    pages.settle()
    assert library.told == asked + [("madvise", start, 4 * page, a) for a in (malloc.HUGE, malloc.COLLAPSE)]


def test_a_run_asks_for_large_pages_between_its_steps(library, monkeypatch, tmp_path):
    monkeypatch.setattr(malloc, "_heap", lambda: [(0, 4 * malloc.PAGE)])
    monkeypatch.setattr(library.sbrk, "end", 4 * malloc.PAGE)
    pegboard.train(CONFIG, root=tmp_path, quiet=True)
    asked = [("madvise", None, 4 * malloc.PAGE, advice) for advice in (malloc.HUGE, malloc.COLLAPSE)]
    assert library.told == KEPT + asked + PUT_BACK


def test_a_run_that_fails_gives_it_back_too(library):
    with pytest.raises(ValueError, match="in the middle"), malloc.kept_heap("cpu"):
        assert library.told == KEPT
        raise ValueError("in the middle")
    assert library.told == KEPT + PUT_BACK


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps", "meta"])
def test_other_devices_leave_it_alone(library, device):
    with malloc.kept_heap(device):
        pass
    assert library.told == []


@pytest.mark.parametrize("name", malloc.VARIABLES)
def test_who_sets_a_variable_of_the_c_library_decides(library, monkeypatch, name):
    monkeypatch.setenv(name, "65536")
    with malloc.kept_heap("cpu"):
        pass
    assert library.told == []


def test_another_c_library_is_left_alone(library, monkeypatch):
    other = Library(gnu=False)
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: other)
    with malloc.kept_heap("cpu"):
        pass
    assert other.told == []
