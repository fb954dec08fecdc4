"""Supervised, semi-supervised and unsupervised forms of a data set."""

from __future__ import annotations

from dataclasses import replace

import pegboard
import pytest
import torch
from pegboard import Classes, Context, Facts, PegboardError, Values
from pegboard_datasets import Input, Target


def mask(splits):
    """Which training labels are known."""
    source = splits.train
    if source.target is None:
        return torch.zeros(len(source), dtype=torch.bool)
    return torch.ones(len(source), dtype=torch.bool) if source.weight is None else source.weight > 0


@pytest.mark.catalogue("T025")
@pytest.mark.parametrize("name", ["iris", "digits", "blobs", "objects"])
def test_a_share_of_the_labels_is_known(build, name):
    whole = build(name)
    size = len(whole.train)
    assert mask(whole).all()
    assert not mask(build(name, labelled=0.0)).any()
    for share in (0.05, 0.5):
        splits = build(name, labelled=share)
        known = mask(splits)
        assert 0 < int(known.sum()) < size
        assert int(known.sum()) == splits.notes["labelled"] == pytest.approx(share * size, abs=10)
        assert torch.equal(splits.train.target[known], whole.train.target[known])
        assert set(splits.train.target[known].tolist()) == set(whole.train.target.tolist())
        # The truth cannot be read off, inputs and other splits are as before.
        assert set(splits.train.target[~known].tolist()) == {-100}
        assert torch.equal(splits.train.inputs[0], whole.train.inputs[0])
        assert torch.equal(splits.test.target, whole.test.target)
        assert splits.test.weight is None
        assert sum(splits.notes["train_classes"].values()) == int(known.sum())


def test_every_class_keeps_a_label_and_a_larger_share_keeps_those_of_a_smaller(build):
    few, more = (mask(build("digits", labelled=share)) for share in (0.001, 0.1))
    target = build("digits").train.target
    assert sorted(target[few].tolist()) == list(range(10))
    assert bool(more[few].all())
    assert torch.bincount(target[more]).min() >= 10
    assert torch.equal(few, mask(build("digits", labelled=0.001)))
    assert build("digits", labelled=0.1).notes["fingerprint"] != build("digits").notes["fingerprint"]


def test_without_labels_there_is_no_target_anywhere(parts, build):
    splits = build("iris", labelled=0.0)
    assert splits.spec.target is None
    assert splits.train.target is splits.val.target is splits.test.target is None
    assert splits.train.weight is None
    assert "train_classes" not in splits.notes
    part = parts["iris"]
    assert part.spec(part.config(labelled=0.0)) == splits.spec
    assert isinstance(part.spec(part.config(labelled=0.5)).target, Classes)


@pytest.mark.catalogue("T025")
def test_training_uses_the_known_labels_alone(build, tmp_path):
    config = {
        "data": {"name": "iris", "labelled": 0.2, "batch_size": "all", "shuffle": False},
        "model": {"name": "linear", "init": "zeros"},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "trainer": {"epochs": 3, "eval_every": 3, "device": "cpu"},
    }
    found = pegboard.load(pegboard.train(config, root=tmp_path, quiet=True), which="last")
    # The same three steps by hand, with the known samples and nothing else.
    splits = build("iris", labelled=0.2)
    known = mask(splits)
    x, y = splits.train.inputs[0][known], build("iris").train.target[known]
    line = torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(line.weight), torch.nn.init.zeros_(line.bias)
    optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(line(x), y).backward()
        optimizer.step()
    torch.testing.assert_close(found.head.weight, line.weight, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.head.bias, line.bias, rtol=1e-4, atol=1e-6)


@pytest.mark.catalogue("T025")
def test_without_labels_groups_are_found_as_they_are_with_labels_that_nobody_reads(tmp_path):
    config = {
        "data": {"name": "blobs", "samples": 200, "seed": 3, "batch_size": "all"},
        "model": {"name": "prototypes", "centres": 3},
        "objective": {"name": "clustering"},
        "optimizer": {"name": "adam", "lr": 0.3},
        "trainer": {"epochs": 5, "eval_every": 5, "device": "cpu", "diagnose": False},
    }
    known, hidden = (
        pegboard.train(config, f"data.labelled={share}", root=tmp_path, quiet=True) for share in (1, 0)
    )
    assert hidden.figures["test/loss"] == known.figures["test/loss"]
    assert "test/ari" in known.figures  # which compares with labels
    assert "test/ari" not in hidden.figures


def test_a_loss_of_labels_is_refused_before_anything_is_built_where_there_are_none():
    config = {
        "data": {"name": "iris", "labelled": 0},
        "model": {"name": "linear"},
        "objective": {"name": "cross_entropy"},
        "optimizer": {"name": "adam"},
    }
    with pytest.raises(PegboardError, match="nothing"):
        pegboard.plan(config)


def test_labels_of_files_are_hidden_too(hub, parts, tmp_path):
    rows = [f"{i},{('low', 'high')[i % 2]},{i / 2}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(("x,kind,half", *rows)) + "\n")
    fields = {"path": str(tmp_path / "t.csv"), "inputs": {"x": Input()}}
    splits = hub(**fields, target="kind", labelled=0.25)
    assert int(mask(splits).sum()) == 7
    with pytest.raises(PegboardError, match="memory: always"):
        hub(**fields, target="kind", labelled=0.25, memory="never")
    with pytest.raises(PegboardError, match="the target is Values"):
        hub(**fields, target="half", labelled=0.25)
    part = parts["hub"]
    config = part.config(**fields, target=Target(column="half", kind="values"), labelled=0.25)
    assert [p.field for p in part.check(config, Facts())] == ["labelled"]
    known = replace(config, inputs={"x": Input(kind="numbers")})
    found = [part.spec(replace(known, labelled=share)).target for share in (0.0, 1.0)]
    assert found[0] == found[1] and isinstance(found[0], Values)


def test_folds_hide_labels_too(parts):
    part = parts["iris"]
    config = part.config(labelled=0.2)
    sizes = [int(mask(part.build(config, Context(fold=(k, 3)))).sum()) for k in range(3)]
    assert sizes == [16, 16, 16]
