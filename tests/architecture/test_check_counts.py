"""What `check` finds from the number of samples alone: no data is read, nothing is imported for it."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pegboard.config.check import ConfigError, check
from pegboard.registry.discovery import Registry

# 100 samples, of which 20 test and 10 validate: 70 train.
BASE: dict[str, Any] = {
    "data": {"name": "moons", "samples": 100, "batch_size": 16},
    "model": {"name": "mlp", "hidden": [4]},
    "optimizer": {"name": "adamw", "lr": 1e-3},
    "trainer": {"epochs": 3},
}
NORM = {"regularizers": {"batchnorm": {}}}


@cache
def registry() -> Registry:
    return Registry.discover()


def config(**sections: Any) -> dict[str, Any]:
    """The base with these changes; a key that is None is taken out."""
    made = {**BASE, **{k: {**BASE.get(k, {}), **v} for k, v in sections.items()}}
    return {section: {k: v for k, v in of.items() if v is not None} for section, of in made.items()}


def mistakes(folder: Path, text: dict[str, Any], *words: str) -> list[tuple[str, str]]:
    """Path and message of what is wrong with the config as a file; every mistake has its line there."""
    file = folder / "cfg.yaml"
    file.write_text(yaml.safe_dump(text, default_flow_style=None, sort_keys=False))
    try:
        check(file, words, registry())
    except ConfigError as error:
        assert all(m.origin is not None and (m.origin.line or m.origin.word) for m in error.mistakes)
        return [(m.path, m.message) for m in error.mistakes]
    return []


@pytest.mark.parametrize(
    ("sections", "path", "said"),
    [
        ({"trainer": {"folds": 81}}, "trainer.folds", "80 samples besides the test"),
        ({"trainer": {"folds": 81, "fold": 80}}, "trainer.folds", "80 samples besides the test"),
        (
            {"data": {"name": "iris", "samples": None}, "trainer": {"folds": 121}},
            "trainer.folds",
            "120 samples besides",
        ),
        ({"data": {"val": 0.0, "test": 0.0}, "trainer": {"folds": 101}}, "trainer.folds", "100 samples"),
        ({"trainer": {"folds": 5, "fold": 5}}, "trainer.fold", "found 5"),
        ({"data": {"batch_size": 1}, **NORM}, "regularizers.batchnorm", "one sample"),
        ({"data": {"batch_size": 23}, **NORM}, "regularizers.batchnorm", "one sample"),  # 3 x 23 + 1
        ({"data": {"limit": 33}, **NORM}, "regularizers.batchnorm", "one sample"),  # 2 x 16 + 1
        ({"data": {"limit": 1, "batch_size": "all"}, **NORM}, "regularizers.batchnorm", "one sample"),
        ({"data": {"batch_size": 35, "val": 0.09}, **NORM}, "regularizers.batchnorm", "one sample"),
        (
            {"data": {"batch_size": 13, "samples": 101}, "trainer": {"folds": 5}, **NORM},  # 4 folds of 64
            "",
            "",
        ),
        (
            {"data": {"batch_size": 16}, "trainer": {"folds": 5, "fold": 0}, **NORM},  # 64 train
            "",
            "",
        ),
        (
            {"data": {"batch_size": 16, "samples": 102}, "trainer": {"folds": 5}, **NORM},  # 65 in some folds
            "regularizers.batchnorm",
            "one sample",
        ),
        ({"data": {"batch_size": 23, "drop_last": True}, **NORM}, "", ""),
        ({"data": {"batch_size": 64}, **NORM}, "", ""),
        ({"data": {"batch_size": 71, "drop_last": True}}, "data.drop_last", "leaves no batch"),
        ({"data": {"batch_size": 71}}, "", ""),  # one batch of all 70
        (
            {"data": {"drop_last": True, "batch_schedule": {1: 128}}},
            "data.drop_last",
            "batch_schedule has 128 from epoch 1 on",
        ),
        ({"data": {"batch_schedule": {3: 32}}}, "data.batch_schedule.3", "the last is epoch 2"),
        ({"data": {"batch_schedule": {2: 32}}}, "", ""),
        ({"data": {"samples": 2, "val": 0.49, "test": 0.5}}, "data", "no training samples"),
        ({"data": {"val": 0.5, "test": 0.5}}, "data.val", "leave nothing"),
    ],
)
def test_a_config_that_does_not_go_with_the_number_of_samples(
    tmp_path: Path, sections: dict[str, Any], path: str, said: str
) -> None:
    found = mistakes(tmp_path, config(**sections))
    assert [p for p, _ in found] == ([path] if path else []) and all(said in message for _, message in found)


def test_a_warm_up_longer_than_the_epochs_is_found(tmp_path: Path) -> None:
    """70 samples in batches of 16 are 5 updates an epoch, 15 in all."""

    def warmed(steps: int, **more: Any) -> list[tuple[str, str]]:
        schedule = {"name": "cosine", "warmup": steps}
        return mistakes(tmp_path, config(optimizer={"schedule": schedule}, **more))

    assert warmed(14) == []
    ((path, said),) = warmed(15)
    assert path == "optimizer.schedule.warmup" and "15" in said
    assert warmed(15, data={"drop_last": True})  # 12 updates
    assert warmed(15, trainer={"epochs": 4}) == []
    assert warmed(8, trainer={"accumulate": 2}) == []  # 9 updates
    assert warmed(9, trainer={"accumulate": 2})


def test_all_of_them_at_once(tmp_path: Path) -> None:
    text = config(data={"batch_size": 23, "batch_schedule": {7: 32}}, trainer={"folds": 3, "fold": 4}, **NORM)
    paths = {path for path, _ in mistakes(tmp_path, text)}
    assert paths == {"data.batch_schedule.7", "trainer.fold"}  # of a fold that is not there no size is known
    text = config(data={"batch_size": 23, "batch_schedule": {7: 32}}, **NORM)
    assert {path for path, _ in mistakes(tmp_path, text)} == {
        "data.batch_schedule.7",
        "regularizers.batchnorm",
    }


def test_it_is_found_without_torch(tmp_path: Path) -> None:
    file = tmp_path / "cfg.yaml"
    file.write_text(yaml.safe_dump(config(data={"batch_size": 23}, trainer={"folds": 99}, **NORM)))
    code = (
        "import sys\nfrom pegboard.config.check import ConfigError, check\n"
        f"try:\n    check({str(file)!r})\nexcept ConfigError as e:\n    print([m.path for m in e.mistakes])\n"
        "assert not {'torch', 'numpy', 'sklearn'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['trainer.folds']"
