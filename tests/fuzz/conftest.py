"""Fuzzers: `lorikeet_testing/fuzzing.py` runs them, a few seconds each here and 100,000 cases each by `make fuzz`."""

from lorikeet_testing.platform_fixtures import *  # noqa: F403
