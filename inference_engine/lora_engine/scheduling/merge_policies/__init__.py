"""Merge policies by name decide whether a step runs on the base weights or on a copy with one adapter merged."""

from . import auto, dlora, fixed
from .base import UNMERGED, Applied, Batch, MergePolicy, MergeReport, merge_policies

__all__ = ["UNMERGED", "Applied", "Batch", "MergePolicy", "MergeReport", "auto", "dlora", "fixed", "merge_policies"]
