"""W6 in short: four engine processes answer the same requests with the same texts however these are spread, and two
tenants' shares, summed over the four, keep to the bound."""

from __future__ import annotations

import subprocess
import sys

import pytest
from lorikeet_testing.web import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_four_engines_under_skewed_bursts() -> None:
    """The benchmark's own assertions."""
    short = ("--seconds", "4", "--rounds", "1", "--skews", "0.1", "--tenants-seconds", "4", "--dry")
    command = [sys.executable, "benchmarks/scheduling/w6_engines.py", *short]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("skew 0.1") == done.stdout.count("two tenants") == 4
