"""Data on a device, and what happens where it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import DataSpec, Resident, Splits, Stream
from pegboard.data import Ragged, Sequences, device_placement, place, say_where
from pegboard_gnn import GraphSet

Config = Callable[..., dict[str, Any]]
X = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))  # 3200 bytes
Y = torch.arange(100)  # 800


def splits(**notes: str) -> Splits:
    return Splits(spec=DataSpec(), train=Resident([X], Y), test=Resident([X[:10]], Y[:10]), notes=notes)


@pytest.mark.parametrize(
    "size, free, fits",
    [(4400, 8800, True), (4401, 8800, False), (10**12, None, True), (0, 0, True), (1, 0, False)],
)
def test_half_of_the_free_memory_of_a_device_may_hold_samples(
    size: int, free: int | None, fits: bool
) -> None:
    assert device_placement.fits_on(size, free) is fits


def test_devices_without_a_memory_of_their_own_always_have_room() -> None:
    assert device_placement.free_on("cpu") is None and device_placement.free_on("mps") is None


def test_what_fits_is_moved_and_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_placement, "free_on", lambda device: 8800)
    given = splits()
    assert place(given, "meta") == ""
    assert isinstance(given.train, Resident) and given.train.inputs[0].device.type == "meta"
    assert isinstance(given.test, Resident) and given.val is None


def test_what_does_not_fit_stays_in_memory_and_batches_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_placement, "free_on", lambda device: 8799)  # all splits are 4400 bytes
    given = splits()
    said = say_where(given, "meta")
    assert place(given, "meta") == said
    assert said == (
        "4.3 KiB of samples stay in the memory of the machine, and batches are copied: "
        "meta has 8.59 KiB free, of which 1/2 may hold samples"
    )
    for source in (given.train, given.test):
        assert isinstance(source, Stream) and len(source) in (100, 10)
        batch = source.gather(torch.tensor([3, 1]))
        assert batch.target is not None and batch.rows is not None
        assert {t.device.type for t in (*batch.inputs, batch.target, batch.rows)} == {"meta"}


def test_graphs_that_do_not_fit_stay_in_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = GraphSet(X, torch.tensor([[0, 1], [1, 0]]), torch.tensor([[40, 2], [60, 0]]), Y[:2])
    assert graphs.nbytes == 3200 + 32 + 16 + 2 * 32
    monkeypatch.setattr(device_placement, "free_on", lambda device: 2 * graphs.nbytes - 1)
    given = Splits(spec=DataSpec(), train=graphs)
    assert place(given, "meta").startswith("3.23 KiB of samples stay in the memory of the machine")
    assert isinstance(given.train, Stream) and given.train.varied
    batch, expected = given.train.gather(torch.tensor([1])), graphs.gather(torch.tensor([1]))
    assert [x.shape for x in batch.inputs] == [x.shape for x in expected.inputs]
    assert {x.device.type for x in batch.inputs} == {"meta"}
    monkeypatch.setattr(device_placement, "free_on", lambda device: 2 * graphs.nbytes)
    given = Splits(spec=DataSpec(), train=graphs)
    assert place(given, "meta") == "" and isinstance(given.train, GraphSet)


def test_batches_that_are_copied_are_those_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_placement, "free_on", lambda device: 0)
    symbols = Sequences.join([[1] * (i % 5 + 1) for i in range(100)], 0)
    for source in (Resident([X], Y), Ragged([symbols, X], Y)):
        given = Splits(spec=DataSpec(), train=source)
        place(given, "cpu")
        copied: Any = given.train
        assert isinstance(copied, Stream)
        lengths = getattr(source, "lengths", None)
        assert lengths is None or torch.equal(copied.lengths, lengths)
        order = list(torch.split(torch.randperm(100), 16))
        for workers in (0, 2):
            copied.begin(order, workers)
            for index in order:
                one, two = source.gather(index), copied.gather(index)
                pairs = [
                    *zip(one.inputs, two.inputs, strict=True),
                    (one.target, two.target),
                    (one.rows, two.rows),
                ]
                assert all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs)
        copied.close()


def test_streamed_data_says_what_the_data_set_notes() -> None:
    stream = Stream(lambda rows: pegboard.Batch((X[rows],)), 100)
    assert say_where(Splits(spec=DataSpec(), train=stream), "cpu") == "read batch by batch"
    noted = Splits(spec=DataSpec(), train=stream, notes={"memory": "read batch by batch, 3 GiB"})
    assert say_where(noted, "cpu") == "read batch by batch, 3 GiB"
    assert say_where(splits(memory="held in memory"), "cpu") == ""


def test_a_run_without_room_on_its_device_says_so_and_ends_alike(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = pegboard.train(config(), root=tmp_path / "usual")
    assert "\ndata: " not in capsys.readouterr().out + (usual.folder / "plan.txt").read_text()
    monkeypatch.setattr(device_placement, "free_on", lambda device: 100)
    run = pegboard.train(config(), root=tmp_path / "short")
    line = "of samples stay in the memory of the machine, and batches are copied: cpu has 100 B free"
    assert line in capsys.readouterr().out and line in (run.folder / "plan.txt").read_text()
    weights = [r.folder / "checkpoints" / "last" / "model.safetensors" for r in (usual, run)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert run.history == usual.history


def test_a_batch_has_the_rows_that_indexing_gives_in_the_layout_of_the_data() -> None:
    pictures, rows = torch.rand(6, 3, 4, 5), torch.tensor([4, 0, 4])
    source = Resident([pictures, torch.rand(5, 6).T], torch.arange(6), torch.rand(6))
    for given in (source, source.channels_last()):
        batch = given.gather(rows)
        for found, whole in zip((*batch.inputs, batch.target, batch.weight), given.tensors, strict=True):
            assert found is not None and whole is not None
            assert torch.equal(found, whole[rows]) and found.stride() == whole[rows].stride()
