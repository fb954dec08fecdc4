"""What holds for the tests of every folder."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from catalogue import index, mistakes
from sweeps import mark_long_checks

ENTRIES = index()


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A marker with an id that the catalogue does not have is an error of its file."""
    made = yield
    items = made if isinstance(made, list) else [made]
    found = {
        f"{item.originalname}: {mistake}"
        for item in items
        if isinstance(item, pytest.Function)
        for marker in item.iter_markers("catalogue")
        for mistake in mistakes(marker.args, ENTRIES)
    }
    if found:
        raise collector.CollectError("\n".join(sorted(found)))
    return made


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Plugins are looked for once while tests are collected; what that made is no garbage afterwards."""
    from pegboard.testing.discovery import plugins_once

    with plugins_once():
        found = yield
    gc.collect()
    gc.freeze()
    return found


@pytest.hookimpl(tryfirst=True)  # before markers choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark long sweeps, and skip the tests on real data sets where PEGBOARD_DATA names no folder of them."""
    mark_long_checks(items)
    if os.environ.get("PEGBOARD_DATA"):
        return
    skip = pytest.mark.skip(reason="needs the real data sets: PEGBOARD_DATA=folder make test-data")
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Refuse addresses of other machines, so that a test that asks for one fails here too."""

    def local(address: object) -> bool:
        host = address[0] if isinstance(address, tuple) else ""  # else a path
        return host in ("", "localhost", "::1") or str(host).startswith("127.")

    def connect(door: socket.socket, address: Any) -> Any:
        return before[0](door, address) if local(address) else refuse(address)

    def look_up(host: Any, *rest: Any, **options: Any) -> Any:
        return before[1](host, *rest, **options) if host is None or local((host,)) else refuse(host)

    def refuse(address: object) -> None:
        raise OSError(errno.ENETUNREACH, f"tests have no network, not even to {address}")

    before = socket.socket.connect, socket.getaddrinfo
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        patch.setattr(socket, "getaddrinfo", look_up)
        yield


@pytest.fixture(scope="module", autouse=True)
def plugins_found_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """The conformance tests of a plugin look for plugins once, and not for every config."""
    if not request.path.name.endswith("_conformance.py"):
        yield
        return
    from pegboard.testing.runs import plugins_once

    with plugins_once():
        yield


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PEGBOARD_DATA with small files of the specs of the real data sets."""
    from small_data import write_small_data

    folder = tmp_path_factory.mktemp("data")
    write_small_data(folder)
    return folder


@pytest.fixture(scope="session")
def rows_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Rows that the `datasets` library converts go to a folder of the tests."""
    import datasets

    folder = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
        yield folder


@pytest.fixture
def no_bars() -> Iterator[None]:
    """The `datasets` library shows no progress bars in the test, and afterwards what it showed before."""
    import datasets

    before = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    yield
    if before:
        datasets.enable_progress_bars()


@pytest.fixture
def on_small_data(small_data: Path, rows_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Known data sets are read from small files of the same specs; converted rows stay with the tests."""
    monkeypatch.setenv("PEGBOARD_DATA", str(small_data))
    return small_data


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test starts from the same random state, whichever ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """A command leaves its handlers of signals until its process ends, and a test must not."""
    numbers = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
