"""Sources of samples, and the order in which an epoch visits them."""

from .resident import Resident
from .sampling import epoch_order
from .stream import Stream
from .workers import Unreadable

__all__ = ["Resident", "Stream", "Unreadable", "epoch_order"]
