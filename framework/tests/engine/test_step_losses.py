"""The loss of a step is one number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch

PLUGIN = '''
from dataclasses import dataclass
from pegboard import Regularizer, Trick, hookimpl

@dataclass(frozen=True)
class Each:
    """Adds something for each sample."""

class EachTrick(Trick):
    def edit_loss(self, loss, output, batch):
        return loss + output.flatten(1).sum(1)

@hookimpl
def pegboard_regularizers():
    return [Regularizer("each", Each, lambda config, context: EachTrick(), stages={"edit_loss": "term"})]
'''


def test_a_loss_for_each_sample_is_told_before_there_is_a_run(
    config: Callable[..., dict[str, Any]], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "each.py").write_text(PLUGIN)
    given = config(regularizers={"each": {}})
    given["plugins"] = {"local": [*given["plugins"]["local"], str(tmp_path / "each.py")]}
    with pytest.raises(pegboard.PegboardError, match=r"a loss has the shape \(\d+,\), expected one number"):
        pegboard.train(given, root=root, quiet=True)
    assert not list(root.glob("*/2*"))


@pytest.mark.parametrize("batch_size", [12, 5])
def test_batches_of_an_update_count_by_what_counts_in_them(
    config: Callable[..., dict[str, Any]], root: Path, batch_size: int
) -> None:
    """Four batches with weights that differ learn what one of them all does."""
    local = [str(Path(__file__).parents[1].joinpath(name)) for name in ("toy.py", "drawn.py")]
    data = {"name": "drawn", "weights": [9.0, 1.0, 0.1, 0.0, 0.5, 4.0, 0.2], "shuffle": False}
    ends = []
    for size, together in ((4 * batch_size, 1), (batch_size, 4)):
        given = config(
            data=data | {"batch_size": size},
            objective={"name": "weighed"},
            trainer={"epochs": 4, "device": "cpu", "accumulate": together},
            plugins={"local": local},
        )
        ends.append(pegboard.load(pegboard.train(given, root=root, quiet=True), which="last").state_dict())
    for name, tensor in ends[0].items():
        torch.testing.assert_close(tensor, ends[1][name], rtol=1e-4, atol=1e-6)
