"""What an attacker, a careless client or a broken disk would try, one file per theme.

The fixtures are those of the platform's tests; a test that needs the real processes or a browser carries `e2e`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lorikeet_testing.platform_fixtures import *  # noqa: F403
from lorikeet_testing.three_hosts import ThreeHosts
from lorikeet_testing.web_fixtures import *  # noqa: F403


@pytest.fixture(scope="session")
def three_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeHosts]:
    hosts = ThreeHosts(tmp_path_factory.mktemp("hosts"))
    yield hosts
    hosts.close()
