"""The loss of a step is one number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest

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
