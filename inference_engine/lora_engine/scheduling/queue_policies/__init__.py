"""Queue policies decide in which order waiting sequences are tried, and which running one is pre-empted first."""

from lora_engine.scheduling.sequence import Outcome

from . import clustered, early_abort, fair, fcfs, lorax
from .background import ClassedQueue
from .base import LOOK_AHEAD, Attempt, Backlog, PolicyContext, QueuePolicy, queue_policies

__all__ = [
    "LOOK_AHEAD",
    "Attempt",
    "Backlog",
    "ClassedQueue",
    "Outcome",
    "PolicyContext",
    "QueuePolicy",
    "clustered",
    "early_abort",
    "fair",
    "fcfs",
    "lorax",
    "queue_policies",
]  # fmt: skip
