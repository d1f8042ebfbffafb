"""Drills of operations: restarts, failovers, lost data and full disks under load, each with its failed requests.

`docs/operations/drills.md` has a table of them.
"""

from __future__ import annotations

from lorikeet_testing.platform_fixtures import *  # noqa: F403
from lorikeet_testing.web_fixtures import *  # noqa: F403
