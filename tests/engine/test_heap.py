"""Memory that a run on the CPU keeps between its steps."""

import resource
import sys

import pegboard
import pytest
import torch
from pegboard.run import malloc

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
