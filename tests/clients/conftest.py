"""Real clients against the product as `make run` starts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lorikeet_testing.launched import Access, shared


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def access(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Access:
    return shared(pytestconfig, tmp_path_factory).access()


@pytest.fixture(scope="session", autouse=True)
def no_proxy() -> None:
    """Everything here is on this machine; a proxy from the environment must not see it."""
    os.environ["NO_PROXY"] = ",".join(filter(None, [os.environ.get("NO_PROXY", ""), "127.0.0.1", "localhost"]))
