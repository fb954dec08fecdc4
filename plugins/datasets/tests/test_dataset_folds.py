"""Folds of a cross-validation: who validates, and by whose statistics samples are scaled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from pegboard import Context, Dataset, PegboardError, Splits
from pegboard_datasets import Hub, Input, pegboard_datasets
from pegboard_datasets.language import cut_texts
from pegboard_datasets.loading import pooled
from pegboard_datasets.rows import Rows

COUNT = 4
NAMES = sorted(part.name for part in pegboard_datasets())


def build(
    part: Dataset[Any], fold: tuple[int, int] | None, folder: Path, seed: int = 0, **more: Any
) -> Splits:
    fields = dict(part.trial(folder) if part.trial else {}) | more
    return part.build(part.config(**fields), Context(seed=seed, key="data", fold=fold))


def samples(source: Any) -> Counter[Any]:
    """Inputs and targets of a split, to be counted."""
    batch = source.gather(torch.arange(len(source)))
    inputs = [x.reshape(len(source), -1).tolist() for x in batch.inputs]
    targets = batch.target.reshape(len(source), -1).tolist()
    return Counter(map(repr, zip(*inputs, targets, strict=True)))


def unscaled(part: Dataset[Any]) -> dict[str, Any]:
    """Fields with which samples are the same in every fold."""
    names = set(part.config.__dataclass_fields__)
    return {k: v for k, v in {"normalize": "none", "normalize_target": False}.items() if k in names}


@pytest.mark.catalogue("S3-035", "S4-032")
@pytest.mark.parametrize("name", [name for name in NAMES if name != "seasons"])  # those follow time
def test_the_folds_of_a_data_set_share_out_all_but_its_test(
    parts: dict[str, Dataset[Any]], name: str, tmp_path: Path, rows_cache: Path
) -> None:
    part = parts[name]
    assert part.folds
    more = unscaled(part)
    plain = build(part, None, tmp_path, **more)
    everyone = samples(plain.train) + (samples(plain.val) if plain.val else Counter())
    held_out: Counter[Any] = Counter()
    sizes = []
    for number in range(COUNT):
        cut = build(part, (number, COUNT), tmp_path, **more)
        assert cut.val is not None
        assert samples(cut.train) + samples(cut.val) == everyone
        assert (cut.test is None) == (plain.test is None)
        assert cut.test is None or samples(cut.test) == samples(plain.test)
        held_out += samples(cut.val)
        sizes.append(len(cut.val))
    assert held_out == everyone
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", ["iris", "breast_cancer"])
def test_folds_have_the_classes_in_equal_shares(
    parts: dict[str, Dataset[Any]], name: str, tmp_path: Path
) -> None:
    cuts = [build(parts[name], (number, 5), tmp_path) for number in range(5)]
    counts = torch.stack([torch.bincount(cut.val.target) for cut in cuts])  # type: ignore[union-attr]
    assert int((counts.amax(0) - counts.amin(0)).max()) <= 2
    loose = [build(parts[name], (number, 5), tmp_path, stratify=False) for number in range(5)]
    free = torch.stack([torch.bincount(cut.val.target) for cut in loose])  # type: ignore[union-attr]
    assert not torch.equal(free, counts)


def test_a_fold_is_scaled_by_those_that_train_in_it(parts: dict[str, Dataset[Any]], tmp_path: Path) -> None:
    means = []
    for number in range(3):
        cut = build(parts["wine"], (number, 3), tmp_path)
        x = cut.train.inputs[0]  # type: ignore[attr-defined]
        assert torch.allclose(x.mean(0), torch.zeros(13), atol=1e-5)
        assert torch.allclose(x.std(0, correction=0), torch.ones(13), atol=1e-5)
        means.append(cut.notes["statistics"]["features"]["mean"])
    assert means[0] != means[1] != means[2]


def test_who_is_in_a_fold_is_the_split_seeds_alone(parts: dict[str, Dataset[Any]], tmp_path: Path) -> None:
    one, other = (build(parts["iris"], (1, 3), tmp_path, seed=seed) for seed in (0, 7))
    assert torch.equal(one.val.inputs[0], other.val.inputs[0])  # type: ignore[union-attr]
    moved = build(parts["iris"], (1, 3), tmp_path, split_seed=1)
    assert samples(moved.val) != samples(one.val)


def test_a_limit_holds_for_those_that_train(parts: dict[str, Dataset[Any]], tmp_path: Path) -> None:
    cut = build(parts["iris"], (0, 4), tmp_path, limit=20)
    assert (len(cut.train), len(cut.val or ()), len(cut.test or ())) == (20, 30, 30)


@pytest.mark.parametrize("count", [121, 1000])
def test_more_folds_than_samples_are_a_mistake(
    parts: dict[str, Dataset[Any]], tmp_path: Path, count: int
) -> None:
    with pytest.raises(PegboardError, match=f"trainer.folds is {count}, but there are 120 samples besides"):
        build(parts["iris"], (0, count), tmp_path)
    assert len(build(parts["iris"], (0, 120), tmp_path).val or ()) == 1


@pytest.fixture
def own_splits(tmp_path: Path) -> Path:
    """A folder with a table for training, one for validation and one for the test."""
    for split, start, stop in (("train", 0, 20), ("validation", 20, 28), ("test", 90, 95)):
        rows = [f"{i},{'odd' if i % 2 else 'even'}" for i in range(start, stop)]
        (tmp_path / f"{split}.csv").write_text("\n".join(("x,y", *rows)) + "\n")
    return tmp_path


@pytest.mark.parametrize("memory", ["always", "never"])
def test_a_validation_split_of_its_own_takes_part_in_the_folds(
    parts: dict[str, Dataset[Any]], own_splits: Path, rows_cache: Path, memory: str
) -> None:
    fields = {"path": str(own_splits), "inputs": ["x"], "target": "y", "normalize": "none", "memory": memory}
    hub = parts["hub"]
    held_out: list[float] = []
    for number in range(4):
        cut = hub.build(hub.config(**fields), Context(key="data", fold=(number, 4)))
        batches = [source.gather(torch.arange(len(source))) for source in (cut.train, cut.val, cut.test)]
        train, val, test = ([float(v) for v in b.inputs[0][:, 0]] for b in batches)
        assert sorted(train + val) == list(range(28)) and test == list(range(90, 95))
        assert batches[1].target.bincount().tolist() in ([3, 4], [4, 3])
        held_out += val
    assert sorted(held_out) == list(range(28))


def test_splits_that_do_not_fit_together_are_told() -> None:
    one, other = datasets.Dataset.from_dict({"x": [1]}), datasets.Dataset.from_dict({"x": ["blue"]})
    with pytest.raises(PegboardError, match="'train' and 'dev' do not fit together.*\n.*\n.*val: cut"):
        pooled(Rows(one, "train"), Rows(other, "dev"))


def test_text_is_cut_into_stretches() -> None:
    lines = [chr(97 + i) * 9 for i in range(20)]
    config = Hub(path="-", inputs={"text": Input()}, target="text", test=0.2)
    for number in range(4):
        cut = cut_texts(lines, None, None, config, (number, 4))
        assert cut["val"] == lines[4 * number : 4 * number + 4] and cut["test"] == lines[16:]
        assert cut["train"] == lines[: 4 * number] + lines[4 * number + 4 : 16]
    one = cut_texts(["abcdefghij"], None, None, config, (1, 4))
    assert one == {"train": ["ab", "efgh"], "val": ["cd"], "test": ["ij"]}
    assert cut_texts(lines, None, ["z"], config, (0, 2))["val"] == lines[:10]
