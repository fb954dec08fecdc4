"""Who is in which split."""

from __future__ import annotations

import pytest
import torch
from pegboard import PegboardError
from pegboard_datasets.splitting import cut, sample_order


def test_the_order_holds_everyone_once_and_follows_the_seed():
    order = sample_order(1000, 0)
    assert sorted(order.tolist()) == list(range(1000))
    assert torch.equal(order, sample_order(1000, 0))
    assert not torch.equal(order, sample_order(1000, 1))


@pytest.mark.parametrize("stretch", [(0, 200), (200, 300), (300, 1000), (300, 350)])
def test_every_stretch_of_a_stratified_order_has_the_shares_of_the_whole(stretch):
    classes = torch.tensor([0] * 700 + [1] * 200 + [2] * 90 + [3] * 10)
    order = sample_order(1000, 5, classes)
    assert sorted(order.tolist()) == list(range(1000))
    start, stop = stretch
    counts = torch.bincount(classes[order[start:stop]], minlength=4)
    expected = (stop - start) * torch.tensor([0.7, 0.2, 0.09, 0.01])
    assert (counts - expected).abs().max() <= 1.5


def test_within_a_class_the_order_is_random():
    classes = torch.arange(1000) % 2
    order = sample_order(1000, 0, classes)
    evens = order[classes[order] == 0]
    assert not torch.equal(evens, evens.sort().values)
    assert not torch.equal(order, sample_order(1000, 1, classes))


def test_a_class_with_one_sample_trains():
    classes = torch.tensor([0] * 50 + [1])
    for seed in range(20):
        assert 50 in cut(sample_order(51, seed, classes), 0.1, 0.2).train.tolist()


def test_shares_are_of_all_samples():
    parts = cut(sample_order(1797, 0), 0.15, 0.2)
    assert (len(parts.train), len(parts.val), len(parts.test)) == (1168, 270, 359)


def test_a_share_of_zero_is_no_split():
    parts = cut(sample_order(10, 0), 0, 0)
    assert parts.val is None
    assert parts.test is None
    assert len(parts.train) == 10


def test_the_test_stays_when_val_or_limit_changes():
    order = sample_order(100, 0)
    a, b, c = cut(order, 0.1, 0.2), cut(order, 0.3, 0.2), cut(order, 0.1, 0.2, limit=5)
    assert torch.equal(a.test, b.test)
    assert torch.equal(a.test, c.test)
    assert torch.equal(a.val, c.val)
    assert torch.equal(a.train[:5], c.train)


def test_the_runs_seed_does_not_move_samples_between_splits(build):
    a, b = build("iris", run_seed=0), build("iris", run_seed=1)
    assert a.notes["fingerprint"] == b.notes["fingerprint"]


def test_a_limited_training_split_is_the_beginning_of_the_whole_one(build):
    whole, few = build("digits", normalize="none"), build("digits", normalize="none", limit=100)
    assert torch.equal(whole.train.inputs[0][:100], few.train.inputs[0])
    assert torch.equal(whole.test.inputs[0], few.test.inputs[0])
    assert torch.bincount(few.train.target).min() >= 8


@pytest.mark.parametrize("name", ["digits", "iris", "wine", "breast_cancer", "blobs"])
def test_classes_have_the_same_shares_in_every_split(build, name):
    splits = build(name)
    count = splits.spec.target.count
    everyone = torch.cat([splits.train.target, splits.val.target, splits.test.target])
    share = torch.bincount(everyone, minlength=count) / len(everyone)
    for source in (splits.train, splits.val, splits.test):
        counts = torch.bincount(source.target, minlength=count)
        assert (counts - share * len(source)).abs().max() <= 1.5


def test_without_stratify_shares_differ(build):
    targets = build("breast_cancer", stratify=False).val.target
    assert not torch.equal(targets, build("breast_cancer").val.target)


def test_too_few_samples_to_train_are_an_error(build):
    with pytest.raises(PegboardError, match="leave none to train on"):
        build("moons", samples=2, val=0.49, test=0.5)
