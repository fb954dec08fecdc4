"""The errors a user sees: one clear message, no traceback."""

from __future__ import annotations


class PegboardError(Exception):
    """A mistake of the user's, or of the machine's, that the message explains in full."""
