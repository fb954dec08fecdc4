"""What a piece of code imports, seen in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection

HEAVY = ("torch", "numpy")


def loaded(code: str, modules: Collection[str] = HEAVY) -> set[str]:
    """Which of these modules are loaded after the code, which must run without a word of complaint."""
    words = [sys.executable, "-c", f"{code}\nimport sys; print(*set({list(modules)}) & set(sys.modules))"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return set(done.stdout.split())
