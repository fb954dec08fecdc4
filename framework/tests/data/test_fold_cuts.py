"""Who is in which fold: cuts of every kind of source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import Batch, Classes, DataSpec, Ragged, Resident, Sequences, Splits, Stream, Tokens, Vector
from pegboard.config.check import check
from pegboard.data import cut_fold, cut_splits
from pegboard.planning.plan import read_data

Config = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(("size", "count"), [(2, 2), (10, 3), (30, 10), (31, 10), (7, 7), (1000, 13)])
def test_folds_share_out_every_sample_once_in_sizes_that_differ_by_at_most_one(size: int, count: int) -> None:
    order = torch.randperm(size, generator=torch.Generator().manual_seed(size))
    cuts = [cut_fold(order, (number, count)) for number in range(count)]
    assert sorted(i for _, val in cuts for i in val.tolist()) == list(range(size))
    sizes = [len(val) for _, val in cuts]
    assert max(sizes) - min(sizes) <= 1
    for train, val in cuts:
        assert sorted([*train.tolist(), *val.tolist()]) == list(range(size))


def test_more_folds_than_samples_are_a_mistake_told_before_there_is_a_folder(
    config: Config, root: Path
) -> None:
    given = config(trainer={"folds": 90, "device": "cpu"})
    with pytest.raises(pegboard.PegboardError, match="folds is 90, but there are 80 samples"):
        pegboard.train(given, root=root, quiet=True)
    assert not list(root.glob("run/*"))


def rows(source: Any) -> list[Any]:
    """What a source holds, sample by sample."""
    batches = [source.gather(torch.tensor([i])) for i in range(len(source))]
    return [([x[0].tolist() for x in b.inputs], b.target[0].tolist(), b.weight) for b in batches]


def resident(first: int, count: int, weight: bool = False) -> Resident:
    x = torch.arange(first, first + count, dtype=torch.float32)[:, None]
    return Resident(
        [x], torch.arange(first, first + count) % 2, torch.full((count,), 0.5) if weight else None
    )


class Reads:
    """Reads samples as those of `resident`; with a key, which it adds to them."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __call__(self, wanted: list[int], *key: int) -> Batch:
        numbers = torch.tensor(wanted) + self.first
        return Batch((numbers.float()[:, None] + (sum(key) % 7) / 10,), numbers % 2)


SPEC = DataSpec((Vector(1),), Classes(2))


@pytest.mark.parametrize(
    ("train", "val"),
    [
        (resident(0, 20), resident(20, 6)),
        (resident(0, 20, weight=True), resident(20, 6)),
        (resident(0, 20), None),
        (Stream(Reads(0), 20), Stream(Reads(20), 6)),
        (Stream(Reads(0), 20), resident(20, 6)),
        (Stream(Reads(0), 20), None),
    ],
    ids=["memory", "weighted", "no val", "streams", "mixed", "stream without val"],
)
def test_the_core_cuts_the_samples_of_other_data_sets(train: Any, val: Any) -> None:
    test = resident(90, 3)
    whole = Splits(spec=SPEC, train=train, val=val, test=test, notes={"fingerprint": "x", "source": "y"})
    everyone = sorted(i for source in (train, val) if source for ([[i]], *_) in rows(source))
    held_out = []
    for number in range(4):
        cut = cut_splits(whole, (number, 4))
        assert cut.test is test and cut.val is not None and cut.notes == {"source": "y"}
        numbers = [[int(x[0][0]) for x, *_ in rows(source)] for source in (cut.train, cut.val)]
        assert sorted(numbers[0] + numbers[1]) == everyone
        held_out += numbers[1]
        for source in (cut.train, cut.val):
            many = source.gather(torch.arange(len(source)))
            assert torch.equal(many.target, many.inputs[0][:, 0].long() % 2)  # they stay together
            if many.weight is not None:
                assert torch.equal(many.weight, torch.where(many.inputs[0][:, 0] < 20, 0.5, 1.0))
    assert sorted(held_out) == everyone


def test_sequences_of_different_lengths_are_cut_too() -> None:
    texts = [[i] * (i % 4 + 1) for i in range(12)]
    tokens = DataSpec((Tokens(12, 4, 0),), Classes(2))

    def ragged(part: list[list[int]]) -> Ragged:
        return Ragged([Sequences.join(part, 0)], torch.tensor([t[0] % 2 for t in part]))

    whole = Splits(spec=tokens, train=ragged(texts[:9]), val=ragged(texts[9:]))
    held_out = [rows(cut_splits(whole, (number, 3)).val) for number in range(3)]
    assert sorted(x for fold in held_out for ([x], *_) in fold) == sorted(texts)

    class Texts:
        def __init__(self, part: list[list[int]]) -> None:
            self.part = part

        def __call__(self, wanted: list[int]) -> Batch:
            chosen = [self.part[i] for i in wanted]
            width = max(map(len, chosen))
            x = torch.tensor([t + [0] * (width - len(t)) for t in chosen])
            return Batch((x,), torch.tensor([t[0] % 2 for t in chosen]))

    def stream(part: list[list[int]]) -> Stream:
        return Stream(Texts(part), len(part), lengths=torch.tensor(list(map(len, part))))

    read = cut_splits(Splits(spec=tokens, train=stream(texts[:9]), val=stream(texts[9:])), (0, 3)).train
    kept = cut_splits(whole, (0, 3)).train
    assert isinstance(read, Stream) and isinstance(kept, Ragged)
    assert torch.equal(read.lengths, kept.lengths)  # type: ignore[arg-type]
    everyone = torch.arange(len(kept))
    assert torch.equal(read.gather(everyone).inputs[0], kept.gather(everyone).inputs[0])


def test_a_stream_that_draws_by_epoch_still_does_in_a_fold() -> None:
    whole = Splits(spec=SPEC, train=Stream(Reads(0), 20, seed=3), val=Stream(Reads(20), 6))
    cut = cut_splits(whole, (0, 2)).train
    assert isinstance(cut, Stream) and cut.seed == 3
    seen = []
    for epoch in range(3):
        cut.begin([], 0, epoch)
        seen.append(cut.gather(torch.arange(len(cut))).inputs[0][:, 0])
    drawn = seen[0] != seen[0].floor()
    assert torch.equal(seen[0].long()[~drawn] >= 20, torch.ones(int((~drawn).sum()), dtype=torch.bool))
    assert any(not torch.equal(seen[0], other) for other in seen[1:])


def test_the_core_cuts_alike_for_every_seed_of_the_run(config: Config) -> None:
    # `points` draws by the seed; the numbers of the samples are what must not depend on it.
    cuts = [cut_splits(Splits(spec=SPEC, train=resident(0, 20)), (1, 4)) for _ in range(2)]
    assert rows(cuts[0].val) == rows(cuts[1].val)
    splits = read_data(check(config(trainer={"folds": 4, "fold": 1})))
    assert (len(splits.train), len(splits.val), len(splits.test)) == (60, 20, 16)  # type: ignore[arg-type]
