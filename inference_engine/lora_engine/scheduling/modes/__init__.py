"""Mode policies by name: whether a step runs on the base's weights or on a copy with one adapter merged in."""

from . import credits, fixed, thresholds
from .base import PRISTINE, Applied, Batch, MergeReport, Mode, modes

__all__ = ["PRISTINE", "Applied", "Batch", "MergeReport", "Mode", "credits", "fixed", "modes", "thresholds"]
