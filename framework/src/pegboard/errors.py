"""The errors a user sees: one clear message, no traceback."""

from __future__ import annotations


class PegboardError(Exception):
    """A mistake of the user's, or of the machine's, that the message explains in full."""


def no_memory(error: BaseException) -> bool:
    """Whether it says that there is not enough memory, in Python's way or one of torch's."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, unimported
        return True
    told = ("can't allocate memory", "Storage size calculation overflowed")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in told)
