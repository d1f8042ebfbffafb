"""The web process: Django over HTTP, Channels over websockets, and what starts and stops with them."""

import asyncio
import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")

from django.core.asgi import get_asgi_application

django_app = get_asgi_application()  # before the imports below, which need loaded apps

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

import control_plane.gateway.routing  # noqa: E402
import control_plane.live.routing  # noqa: E402
from control_plane.lifespan import Lifespan  # noqa: E402
from control_plane.live.events import bind_loop  # noqa: E402


async def _serve_events_here() -> None:
    bind_loop(asyncio.get_running_loop())


async def _stop_events() -> None:
    bind_loop(None)


_sockets = [*control_plane.gateway.routing.websocket_urlpatterns, *control_plane.live.routing.websocket_urlpatterns]

application = Lifespan(
    ProtocolTypeRouter({"http": django_app, "websocket": AuthMiddlewareStack(URLRouter(_sockets))}),
    startup=[_serve_events_here],
    shutdown=[_stop_events],
)
