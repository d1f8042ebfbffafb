"""``manage.py watch_fleet``: follow the engine hosts. Run it anywhere, any number of times; one leads."""

import asyncio
import signal
from typing import Any

from django.core.management.base import BaseCommand

from control_plane.core.http.logs import log_uncaught
from control_plane.core.metrics.endpoint import serve_metrics
from control_plane.core.secrets.checks import require_at_start
from control_plane.fleet.hosts.background import make_watcher


class Command(BaseCommand):
    help = "Follow the engine hosts and record their state. Several may run; one at a time leads."

    def handle(self, *args: Any, **options: Any) -> None:
        log_uncaught()
        serve_metrics()
        require_at_start()
        asyncio.run(watch_until_signalled())


async def watch_until_signalled() -> None:
    task = asyncio.create_task(make_watcher().run())
    for stop in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(stop, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return
