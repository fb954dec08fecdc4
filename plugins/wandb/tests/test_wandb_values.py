"""Plain values and valid names."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from pegboard_wandb.values import plain, slug


def test_numbers_of_numpy_and_torch_become_python_numbers() -> None:
    row = {
        "a": np.float32(0.5),
        "b": np.int64(3),
        "c": torch.tensor(0.25, dtype=torch.bfloat16),
        "d": np.bool_(True),
        "e": np.array([1, 2]),
        "f": torch.ones(2, requires_grad=True),
        "g": (1, {"h": Path("x")}),
    }
    found = plain(row)
    assert found == {
        "a": 0.5,
        "b": 3,
        "c": 0.25,
        "d": True,
        "e": [1, 2],
        "f": [1.0, 1.0],
        "g": [1, {"h": "x"}],
    }
    assert [type(found[k]) for k in "abcd"] == [float, int, float, bool]
    assert json.loads(json.dumps(found)) == found


def test_values_that_are_not_finite_stay() -> None:
    found = plain({"a": torch.tensor(math.nan), "b": np.float64(math.inf), "c": -math.inf, "d": None})
    assert (
        math.isnan(found["a"]) and found["b"] == math.inf and found["c"] == -math.inf and found["d"] is None
    )


@pytest.mark.parametrize("text", ["20260101-120000-ab12", "a", "x_y.z-1"])
def test_valid_name_is_kept(text: str) -> None:
    assert slug(text) == text


def test_other_names_become_valid_and_stay_different() -> None:
    texts = ["a/b", "a:b", "a b", "a\\b", "", "ä", "#", "x" * 64 + "y", "x" * 65 + "y", "-a", "a-"]
    names = [slug(text) for text in texts]
    assert len(set(names)) == len(texts)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in names)
