"""Sources of samples, and the order in which an epoch visits them."""

from .placing import place, say_where, shown_bytes
from .ragged import Ragged, Sequences, padded_splits
from .resident import Resident
from .sampling import Batches, Groups, epoch_order, padding_share, similar_order
from .stream import Stream
from .workers import Unreadable

__all__ = [
    "Batches",
    "Groups",
    "Ragged",
    "Resident",
    "Sequences",
    "Stream",
    "Unreadable",
    "epoch_order",
    "padded_splits",
    "padding_share",
    "place",
    "say_where",
    "shown_bytes",
    "similar_order",
]
