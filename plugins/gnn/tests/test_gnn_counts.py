"""The sizes that records declare are those of the splits that they build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pegboard import Context, Dataset
from pegboard_gnn.data_parts import datasets

PARTS = {part.name: part for part in datasets()}
READ = {"planetoid", "tudataset", "pixel_clouds"}  # the files tell
FIELDS: dict[str, list[dict[str, Any]]] = {
    "karate": [{"labelled": count} for count in (1, 4, 5, 11)],
    "block_model": [{}, {"labelled": 33, "nodes": 71, "val": 0.37}, {"fanouts": [3, 2]}],
    "cycles": [{"family": "cycles", "nodes": 8, "copies": 7}],
    "grids": [{"size": 3, "graphs": 31}],
    "meshes": [{"graphs": 11, "resolution": 3, "bodies": ["sphere", "cube"]}],
    "sets": [{"sets": 10}, {"sets": 43, "count": 3}],
    "clouds": [{"clouds": 15, "points": 4, "task": "part"}],
}


def built(part: Dataset[Any], config: Any, fold: tuple[int, int] | None) -> tuple[int, ...]:
    splits = part.build(config, Context(fold=fold))
    return tuple(0 if source is None else len(source) for source in (splits.train, splits.val, splits.test))


@pytest.mark.parametrize("name", sorted(PARTS.keys() - READ))
def test_declared_sizes_are_those_of_the_splits(name: str, tmp_path: Path) -> None:
    part = PARTS[name]
    trial = dict(part.trial(tmp_path)) if part.trial is not None else {}
    assert part.samples is not None
    for fields in (trial, *FIELDS[name]):
        config = part.config(**fields)
        for fold in (None, (0, 3), (2, 3)) if part.folds else (None,):
            assert part.samples(config, fold) == built(part, config, fold), (fields, fold)
    if part.folds:
        train, val, test = built(part, part.config(**trial), None)
        assert part.samples(part.config(**trial), (0, 1)) == (0, train + val, test)


def test_what_files_hold_is_counted_when_they_are_read() -> None:
    assert all(PARTS[name].samples is None for name in READ)
