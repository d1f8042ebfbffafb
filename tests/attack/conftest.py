"""What an attacker, a careless client or a broken disk would try, one file per theme.

The fixtures are those of the platform's tests; a test that needs the real processes or a browser carries `e2e`.
"""

from lorikeet_testing.platform_fixtures import *  # noqa: F403
