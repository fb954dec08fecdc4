"""Sources of samples, and the order in which an epoch visits them."""

from .resident import Resident
from .sampling import epoch_order

__all__ = ["Resident", "epoch_order"]
