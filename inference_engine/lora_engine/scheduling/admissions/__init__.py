"""Admission policies decide whether a request may wait."""

from . import early_abort, slo
from .base import AdmissionPolicy, Verdict, admissions

__all__ = ["AdmissionPolicy", "Verdict", "admissions", "early_abort", "slo"]
