"""Batches that would be padding to a large part are computed in pieces, and learn what they did."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import worded
from pegboard import Ragged, Sequences, Splits, Stream
from pegboard.config.check import check
from pegboard.contract.options import DataOptions
from pegboard.data import Sampler, least_samples, padding_share, similar_order
from pegboard.data.device_placement import Held
from pegboard.data.padding import in_pieces
from pegboard.engine.evaluate import reading_batches
from pegboard.planning.plan import assemble, make_plan
from pegboard.testing.runs import cut_and_resumed, differences, points, whole
from sweeps import first_of_each
from torch import Tensor, nn
from torch.nn import functional

Config = Callable[..., dict[str, Any]]
LOCAL = [str(Path(__file__).parents[1].joinpath("toy.py")), worded.__file__]


def drawn(name: str, count: int) -> Tensor:
    """Lengths of which a few are far longer than the rest."""
    g = torch.Generator().manual_seed(7)
    normal, even = torch.randn(count, generator=g), torch.rand(count, generator=g)
    lengths = {
        "log-normal": torch.exp(3 + 0.8 * normal),
        "wide": torch.exp(3 + 1.2 * normal).clamp(max=512),
        "geometric": -40 * torch.log(even),
        "power law": (5 * even ** (-1 / 1.2)).clamp(max=512),
        "two kinds": torch.where(even < 0.95, 5, 400),
        "one giant": torch.where(torch.arange(count) == 3, 5000, 20),
        "with none": (normal * 9).clamp(min=0),
    }[name]
    return lengths.long()


NAMES = ["log-normal", "wide", "geometric", "power law", "two kinds", "one giant", "with none"]


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("size", [16, 64, "all"])
@pytest.mark.parametrize("count", [130, 500, 2000])
@pytest.mark.parametrize("name", NAMES)
def test_less_than_a_tenth_is_padding_whatever_the_lengths(
    name: str, count: int, size: Any, least: int
) -> None:
    lengths = drawn(name, count)
    size = count if size == "all" else size
    order = similar_order(lengths, size, 0, 1, True)
    found = in_pieces(lengths, order, size, least)
    batches = torch.split(order, size)
    if found is None:
        assert padding_share(lengths.clamp(min=1), batches) < 0.1
        return
    assert padding_share(lengths.clamp(min=1), batches) >= 0.1
    assert len(found) == len(batches)
    for pieces, batch in zip(found, batches, strict=True):
        assert sorted(torch.cat(pieces).tolist()) == sorted(batch.tolist())
        assert len(pieces) == 1 or min(map(len, pieces)) >= least
    flat = list(chain(*found))
    # Beside a batch norm a giant cannot be alone, and has one beside it that is as long.
    alone = least == 1 or name != "one giant"
    assert padding_share(lengths.clamp(min=1), flat) < (0.1 if alone else 0.75)
    assert len(flat) - len(batches) <= max(len(batches), 25)  # a cut costs a pass


def two(name: str, count: int) -> Tensor:
    """Lengths of two texts of each sample."""
    g = torch.Generator().manual_seed(5)
    even = torch.rand(count, 2, generator=g)
    lengths = {
        "of their own": -20 * torch.log(even),
        "one or the other": torch.where((even[:, :1] < 0.5) == torch.tensor([True, False]), 3, 90),
        "a question and a text": torch.stack([-9 * torch.log(even[:, 0]), 90 + 60 * even[:, 1]], 1),
    }[name]
    return lengths.ceil().clamp(min=1).long()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", ["of their own", "one or the other", "a question and a text"])
def test_less_than_a_tenth_is_padding_where_samples_have_two_texts(name: str, streamed: bool) -> None:
    widths = two(name, 700)
    texts = [Sequences.join([[1] * n for n in lengths], 0) for lengths in widths.T.tolist()]
    held = Ragged(texts, texts[0])  # of a target nothing is computed
    source = Stream(Held(held), 700, lengths=held.widths) if streamed else held
    assert source.lengths is not None and torch.equal(source.lengths, widths.amax(1))
    sampler = Sampler(Splits(spec=None, train=source), DataOptions(batch_size=32), 1, 0)  # type: ignore[arg-type]
    order = sampler.order(0)
    trained = list(chain(*(sampler.pieces(0, order) or [(b,) for b in torch.split(order, 32)])))
    for batches in (trained, reading_batches(source.to("cpu"), "cpu", 128)):
        tokens = [x for index in batches for x in source.gather(index).inputs]
        padding, places = sum(int((x == 0).sum()) for x in tokens), sum(x.numel() for x in tokens)
        assert padding / places < 0.1
        assert padding / places == pytest.approx(padding_share(held.widths, batches))
        assert sorted(torch.cat(list(batches)).tolist()) == list(range(700))


def test_what_needs_no_cut_is_not_cut() -> None:
    for lengths in (torch.full((100,), 7), torch.arange(100) + 100, torch.zeros(100).long()):
        assert in_pieces(lengths, torch.arange(100), 10) is None
    ((batch,),) = in_pieces(torch.tensor([1, 90, 2]), torch.arange(3), 3, 2) or []  # too few for two pieces
    assert batch.tolist() == [0, 1, 2]
    ((short, giant),) = in_pieces(torch.tensor([2, 90, 2]), torch.arange(3), 3) or []
    assert (short.tolist(), giant.tolist()) == ([0, 2], [1])
    assert in_pieces(torch.zeros(0).long(), torch.arange(0), 3) is None


@pytest.mark.parametrize("least", [1, 2])
def test_a_giant_does_not_shatter_the_batches_of_others(least: int) -> None:
    """What no cut saves is no reason for more of them."""
    lengths = drawn("geometric", 2000).clamp(min=1)
    lengths[7] = 100_000
    order = similar_order(lengths, 32, 0, 0, True)
    flat = list(chain(*(in_pieces(lengths, order, 32, least) or [])))
    assert len(flat) < 70  # of 63 batches
    others = [piece for piece in flat if 7 not in piece]
    assert padding_share(lengths, others) < 0.4 and padding_share(lengths, flat) < (
        0.1 if least == 1 else 0.5
    )


@pytest.mark.parametrize("norm", [False, True])
def test_of_a_batch_norm_no_piece_is_one_sample(norm: bool) -> None:
    model = nn.Sequential(nn.Embedding(3, 4), nn.BatchNorm1d(4) if norm else nn.LayerNorm(4))
    assert least_samples(model) == (2 if norm else 1)


def test_batches_that_stay_whole_keep_their_order() -> None:
    lengths = torch.tensor([5] * 30 + [5, 5, 5, 90, 90, 5, 5, 5, 90, 90])
    order = torch.arange(40).view(4, 10).flip(1).flatten()
    *same, (short, long) = in_pieces(lengths, order, 10) or []
    assert [p.tolist() for (p,) in same] == order.view(4, 10)[:3].tolist()
    assert set(short.tolist()) == {30, 31, 32, 35, 36, 37} and set(long.tolist()) == {33, 34, 38, 39}


def test_in_the_order_of_the_data_batches_stay_as_they_are() -> None:
    source = Ragged([Sequences.join([[1] * n for n in (1, 9, 1, 9, 1, 9, 1, 9)], 0)])
    for shuffle in (True, False):
        options = DataOptions(batch_size=8, shuffle=shuffle)
        sampler = Sampler(Splits(spec=None, train=source), options, 1, 0)  # type: ignore[arg-type]
        assert (sampler.pieces(0, torch.arange(8)) is not None) == shuffle


@pytest.fixture
def given(config: Config) -> Config:
    """Few batches of texts, of which some are in pieces."""

    def make(**nodes: Any) -> dict[str, Any]:
        base = {
            "data": {"name": "worded", "count": 120, "batch_size": 32},
            "model": {"name": "bag"},
            "optimizer": {"name": "plain", "lr": 0.5, "momentum": 0.9},
            "trainer": {"epochs": 3, "device": "cpu", "log_every": 3},
            "plugins": {"local": LOCAL},
        }
        return config(**(base | nodes))

    return make


def weights(run: pegboard.Run) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in pegboard.load(run, which="last").state_dict().items()}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_batch_in_pieces_makes_the_update_of_the_whole(given: Config, root: Path, accumulate: int) -> None:
    config = given(trainer={"epochs": 3, "device": "cpu", "accumulate": accumulate})
    plan = make_plan(check(config), read=True)
    model, sampler = assemble(plan, "cpu").model, plan.sampler
    assert sampler is not None
    optimizer = torch.optim.SGD(model.parameters(), 0.5, 0.9, foreach=False)
    rows, classes = worded.texts(120, 1)
    x = torch.tensor([row + [0] * (worded.LONGEST - len(row)) for row in rows])
    y, updates = torch.tensor(classes), 0
    for epoch in range(3):
        order = sampler.order(epoch)
        assert sampler.pieces(epoch, order) is not None
        for index in torch.split(order, 32 * accumulate):
            optimizer.zero_grad()
            functional.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
            updates += 1
    run = pegboard.train(config, root=root, quiet=True)
    assert run.history[-1]["step"] == updates
    for name, found in weights(run).items():
        torch.testing.assert_close(found, model.state_dict()[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("workers", first_of_each([0, 2]))
def test_streamed_it_trains_to_the_same_bits_and_resumes(given: Config, root: Path, workers: int) -> None:
    held = pegboard.train(given(), root=root / "held", quiet=True)
    data = given()["data"] | {"streamed": True, "workers": workers}
    streamed = given(data=data)
    uncut, events = whole(streamed, root)
    found = weights(pegboard.Run(uncut))
    assert all(torch.equal(tensor, found[name]) for name, tensor in weights(held).items())
    for cut in points(events, 2, turn=3):
        assert differences(uncut, cut_and_resumed(streamed, root, cut)) == []


@pytest.mark.parametrize("first", [0, -1])
def test_a_giant_alone_takes_no_room_for_a_batch_of_giants(first: int) -> None:
    """What processes write batches into has room for the largest there is."""
    lengths = [20] * 600
    lengths[7] = 50_000
    held = Ragged([Sequences.join([[1] * n for n in lengths], 0)], torch.arange(600))
    source = Stream(Held(held), 600, lengths=held.lengths)
    batches = list(reading_batches(source, "cpu", 256))
    batches = [batches[first], *(b for b in batches if b is not batches[first])]
    source.begin(batches, 1)
    assert source._pool is not None
    given = source._pool.room
    for index in batches:
        assert torch.equal(source.gather(index).target, index)  # type: ignore[arg-type]
    assert source._pool.largest == given < 1_000_000  # none was too large for it
    source.close()


def test_explain_says_how_many_are_cut(given: Config) -> None:
    text = pegboard.plan(given()).explain()
    line = next(line for line in text.splitlines() if line.startswith("padding"))
    assert float(line.split()[1].rstrip("%")) < 10
    assert line.endswith(" of 4 computed in pieces of like length")
