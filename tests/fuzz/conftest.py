"""Fuzzers: `lorikeet_testing/fuzzing.py` runs them, a few seconds each here, a minute or more in `make test-long`, and
100,000 cases each by `make fuzz`."""

from pathlib import Path

import pytest
from lorikeet_testing.fuzzing import LONG
from lorikeet_testing.platform_fixtures import *  # noqa: F403
from lorikeet_testing.web_fixtures import *  # noqa: F403


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if LONG and item.path.is_relative_to(here):
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(1800))
