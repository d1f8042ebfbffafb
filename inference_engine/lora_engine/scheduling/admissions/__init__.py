"""Admission policies: whether a request may wait at all."""

from . import early_abort, slo
from .base import Admission, Verdict, admissions

__all__ = ["Admission", "Verdict", "admissions", "early_abort", "slo"]
