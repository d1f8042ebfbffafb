"""One running platform for all end-to-end tests: real engine, real web process, real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from lorikeet_testing.launched import Access, Launched, shared
from playwright.sync_api import Browser, expect, sync_playwright

from scripts.launch.system import chromium

CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def launched(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    return shared(pytestconfig, tmp_path_factory)


@pytest.fixture(scope="session")
def access(launched: Launched) -> Access:
    return launched.access()


@pytest.fixture(scope="session")
def api(access: Access) -> Iterator[httpx.Client]:
    """The REST API with the demo tenant's key."""
    with httpx.Client(base_url=access.url, headers=access.bearer, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the session: Playwright keeps an event loop running, beside which no asynchronous test can run."""
    executable = chromium()
    assert executable, "Chromium is missing: apt install chromium, or set LORIKEET_CHROMIUM."
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session", autouse=True)
def no_proxy() -> None:
    """Everything here is on this machine; a proxy from the environment must not see it."""
    os.environ["NO_PROXY"] = ",".join(filter(None, [os.environ.get("NO_PROXY", ""), "127.0.0.1", "localhost"]))
