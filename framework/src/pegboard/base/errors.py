"""The errors a user sees: one clear message, no traceback."""

from __future__ import annotations

import errno
import re


class PegboardError(Exception):
    """A mistake of the user's, or of the machine's, that the message explains in full.

    Raised while a part is built or used, it is reported with the place of the part in the config; `field`
    names the key of the part's config that it is about.
    """

    part: str = ""  # dotted path of the part that raised it, where that is known

    def __init__(self, *args: object, field: str = "") -> None:
        super().__init__(*args)
        self.field = field


def system_words(error: OSError) -> str:
    """What a system refused, in words that say what to do something about."""
    words = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the quota of the disk is used up",
        errno.EROFS: "the disk can only be read",
    }
    theirs = error.strerror or str(error)
    return f"{words[error.errno]}: {theirs}" if error.errno in words else theirs


def no_numbers(error: BaseException) -> bool:
    """Whether it says that something cannot run on torch's meta device, where tensors have no numbers."""
    told = re.search(r"\bmeta\b|register_meta|fake impl", str(error), re.IGNORECASE)
    return isinstance(error, RuntimeError | TypeError) and told is not None


def no_memory(error: BaseException) -> bool:
    """Whether it says that there is not enough memory, in Python's way or one of torch's."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, unimported
        return True
    told = (
        *("can't allocate memory", "not enough memory", "cannot allocate memory", "Storage size calculation"),
        *("out of memory", "OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY", "bad_alloc", "ALLOC_FAILED"),
    )
    return isinstance(error, RuntimeError) and any(text in str(error) for text in told)
