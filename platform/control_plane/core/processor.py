"""Linux scheduling: background processes against other processes of their machine."""

from __future__ import annotations

import os


def wait_for_others() -> None:
    """Run this process after others that wake up, where the system has such a policy."""
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
