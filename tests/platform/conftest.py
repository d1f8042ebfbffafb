"""The fixtures of the platform's tests: tests/support/lorikeet_testing/platform_fixtures.py."""

from lorikeet_testing.platform_fixtures import *  # noqa: F403
