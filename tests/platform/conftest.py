"""The fixtures of the platform's tests: platform_fixtures.py and web_fixtures.py in tests/support/lorikeet_testing."""

from lorikeet_testing.platform_fixtures import *  # noqa: F403
from lorikeet_testing.web_fixtures import *  # noqa: F403
