"""Order policies: in which order waiting sequences are considered, and who is pre-empted first."""

from lora_engine.scheduling.sequence import Outcome

from . import arrival, clustered, early_abort, fair, lorax
from .base import LOOK_AHEAD, Attempt, Backlog, Order, PolicyContext, orders

__all__ = [
    "LOOK_AHEAD", "Attempt", "Backlog", "Order", "Outcome", "PolicyContext",
    "arrival", "clustered", "early_abort", "fair", "lorax", "orders",
]  # fmt: skip
