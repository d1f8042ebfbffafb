"""The web process: Django over HTTP, Channels over websockets, and the services that start and stop with them."""

import asyncio
import gc
import os
from typing import Any, cast

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")

import django

django.setup(set_prefix=False)  # before the imports below, which need loaded apps

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.urls import re_path  # noqa: E402

import control_plane.gateway.websocket.websocket_urls  # noqa: E402
from control_plane import embedded  # noqa: E402
from control_plane.adapters.registry.upload_bounds import largest_upload_bytes  # noqa: E402
from control_plane.adapters.uploads.asgi import Handler  # noqa: E402
from control_plane.adapters.uploads.authorization import authorize_upload  # noqa: E402
from control_plane.adapters.uploads.spool import require_room  # noqa: E402
from control_plane.adapters.uploads.tus import ResumableUploads  # noqa: E402
from control_plane.core import db, drain  # noqa: E402
from control_plane.core.events.publisher import bind_loop  # noqa: E402
from control_plane.core.http.body_guard import BodyGuard  # noqa: E402
from control_plane.core.http.caller_limits import CallerLimits  # noqa: E402
from control_plane.core.http.edge import Edge  # noqa: E402
from control_plane.core.jobs import clock_watch  # noqa: E402
from control_plane.core.lifespan import AsgiApp, Lifespan  # noqa: E402
from control_plane.core.secrets import checks as secret_checks  # noqa: E402
from control_plane.fleet.hosts import background  # noqa: E402
from control_plane.gateway.dispatch import batch_runner  # noqa: E402
from control_plane.gateway.dispatch import runtime as gateway  # noqa: E402
from control_plane.gateway.dispatch.errors import from_platform  # noqa: E402
from control_plane.gateway.openai.asgi import PREFIX, GatewayHandler, PathRouter  # noqa: E402
from control_plane.gateway.websocket import resume_relay  # noqa: E402
from control_plane.identity.keys.last_used import last_used  # noqa: E402
from control_plane.identity.sockets.handshake import no_socket  # noqa: E402


async def _serve_events_here() -> None:
    bind_loop(asyncio.get_running_loop())


async def _stop_events() -> None:
    bind_loop(None)


async def settle_memory() -> None:
    """Exclude the objects loaded so far from garbage collection, which would scan them while streams wait.

    Collections are frequent and short, as streams wait for each: one over 20,000 new objects takes 30 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 20, 100)


async def _check_secrets() -> None:
    await db.run_db(secret_checks.report)  # /readyz reports them too


async def _flush_last_used() -> None:
    await asyncio.to_thread(last_used.flush)


# The tests iterate over these.
sockets = control_plane.gateway.websocket.websocket_urls.websocket_urlpatterns

# /v1 bypasses the site's middleware: its synchronous parts would lose the message that a client has disconnected.
_site = CallerLimits(BodyGuard(cast(AsgiApp, Handler()), authorize_upload, require_room, largest_upload_bytes))
_http = PathRouter(gateway=GatewayHandler(), site=ResumableUploads(_site))

_no_socket = re_path("", cast(Any, no_socket))
_routed = ProtocolTypeRouter({"http": _http, "websocket": URLRouter([*sockets, _no_socket])})

application = Lifespan(
    Edge(cast(AsgiApp, _routed), bodies={PREFIX: lambda error: from_platform(error).openai_body()}),
    startup=[
        db.start,
        _check_secrets,
        _serve_events_here,
        embedded.start,
        background.start,
        clock_watch.start,
        gateway.start,
        resume_relay.start,
        batch_runner.start,
        drain.start,
        settle_memory,
    ],
    shutdown=[
        db.stop,
        _stop_events,
        _flush_last_used,
        embedded.stop,
        background.stop,
        clock_watch.stop,
        batch_runner.stop,
        resume_relay.stop,
        gateway.stop,
    ],
)
