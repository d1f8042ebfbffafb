"""Real clients against the product as `make run` starts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from lorikeet_testing.launched import Access, Launched
from lorikeet_testing.web import free_port


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Access]:
    """Started once; the tests must leave it serving."""
    platform = Launched(tmp_path_factory.mktemp("platform") / "var", free_port())
    try:
        yield platform.start()
    finally:
        platform.stop()


@pytest.fixture(scope="session", autouse=True)
def no_proxy() -> None:
    """Everything here is on this machine; a proxy from the environment must not see it."""
    os.environ["NO_PROXY"] = ",".join(filter(None, [os.environ.get("NO_PROXY", ""), "127.0.0.1", "localhost"]))
