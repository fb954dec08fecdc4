"""What a stranger may hand over, and the small run that it is handed to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

CONFIG = {
    "name": "hostile",
    "data": {"name": "iris", "batch_size": 50},
    "model": {"name": "mlp", "hidden": [4]},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "trainer": {"epochs": 2, "device": "cpu"},
}
Said = Callable[..., str]
EVIL = "import os\nos.system('touch EXECUTED')\n"


class Payload:
    """What pickle runs when it is read."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch EXECUTED",)
