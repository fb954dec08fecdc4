"""Sources of samples, and the order in which an epoch visits them."""

from .batches import Batches, Groups
from .device_placement import place, say_where, shown_bytes
from .draw_weights import in_batches, reading, unweighted
from .folds import cut_fold, cut_splits, say_fold
from .missing_classes import about, data_warnings, known_target
from .padding import by_length, least_samples, padding_share, widths_of
from .ragged import Ragged, Sequences, padded_splits
from .resident import Resident
from .sampling import Sampler, epoch_order, similar_order
from .stream import Stream
from .workers import Unreadable
from .wrapping import Wrapped, adapted, adapted_splits

__all__ = [
    "Batches",
    "Groups",
    "Ragged",
    "Resident",
    "Sampler",
    "Sequences",
    "Stream",
    "Unreadable",
    "Wrapped",
    "about",
    "adapted",
    "adapted_splits",
    "by_length",
    "cut_fold",
    "cut_splits",
    "data_warnings",
    "epoch_order",
    "in_batches",
    "known_target",
    "least_samples",
    "padded_splits",
    "padding_share",
    "place",
    "reading",
    "say_fold",
    "say_where",
    "shown_bytes",
    "similar_order",
    "unweighted",
    "widths_of",
]
