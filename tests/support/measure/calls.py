"""Counting Python calls, which do not depend on the machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType


def count_calls(run: Callable[[], object], inside: str = "") -> int:
    """Python calls made while running; only of code in the folder `inside`, where one is given."""
    total = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal total
        total += event == "call" and frame.f_code.co_filename.startswith(inside)

    gc.disable()  # what objects of earlier tests call when they end does not count
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return total
