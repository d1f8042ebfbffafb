"""Django's ASGI handler, adapted to the console and its API.

Upload bodies are spooled to the artifact file system. All work of Django for a request is one call on a pooled thread.
Django's handler starts two threads for each request, and while a thread starts the event loop stands still: on a busy
machine for as long as the scheduler takes to run it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from tempfile import SpooledTemporaryFile

from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponseBadRequest
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from control_plane.adapters.uploads.spool import batches, on_disk, spool_folder
from control_plane.core.cancellation import to_completion
from control_plane.core.http.caller_limits import charge
from control_plane.core.http.disconnects import until_disconnected
from control_plane.core.lifespan import Receive, Scope, Send

# Bytes of an upload's body in memory; the rest goes to the disk at once. Other bodies are no larger.
MEMORY_BYTES = 64 << 10
# Requests in progress at once, including those that wait for an unavailable server.
THREADS = 256
_threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="lorikeet-site")


class Handler(ASGIHandler):
    """The handler, which writes large bodies to the artifact file system: on many machines /tmp is memory."""

    def __init__(self) -> None:
        super().__init__()
        self._on_thread: Callable[[ASGIRequest], Awaitable[HttpResponseBase]] = sync_to_async(
            self._respond, thread_sensitive=False, executor=_threads
        )

    def load_middleware(self, is_async: bool = False) -> None:
        """Load all middleware as synchronous, whatever `is_async` is: it runs on the request's thread, as views do."""
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.handle(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        is_file = body.seek(0, os.SEEK_END) > MEMORY_BYTES
        body.seek(0)
        try:
            set_script_prefix(get_script_prefix(scope))
            request, refusal = self.create_request(scope, body)
            if request is None:
                await self.send_response(refusal or HttpResponseBadRequest(), send)
            else:
                # A stream ends with its client. A view on its thread runs to its end, which is awaited: it reads the
                # body, and occupies a slot of its caller.
                await until_disconnected(self._answer(request, send), receive)
        finally:
            if is_file:
                await on_disk(body.close)  # deletes the file

    async def _answer(self, request: ASGIRequest, send: Send) -> None:
        response = await self.run_get_response(request)
        try:
            await self.send_response(response, send)
        finally:
            await _close(response)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        assert isinstance(request, ASGIRequest)
        return await to_completion(self._on_thread(request), undo=_close)

    def _respond(self, request: ASGIRequest) -> HttpResponseBase:
        """Answer a request on a thread, and close the ORM's old connections before and after."""
        began = time.thread_time()
        signals.request_started.send(sender=self.__class__, scope=request.scope)
        try:
            response = self.get_response(request)
            if not response.streaming:
                response._handler_class = self.__class__  # type: ignore[attr-defined]
                response.close()  # the content remains readable
            return response
        finally:
            close_old_connections()
            charge(request.scope, time.thread_time() - began)

    async def read_body(self, receive: Receive) -> SpooledTemporaryFile[bytes]:
        """Return the whole body as a file. Raises RequestAborted if the client disconnects."""
        body = SpooledTemporaryFile(  # noqa: SIM115 (`handle` closes it)
            max_size=MEMORY_BYTES, dir=str(spool_folder())
        )
        try:
            async for parts in batches(receive):
                if body.tell() + sum(map(len, parts)) <= MEMORY_BYTES:
                    body.writelines(parts)
                else:
                    await on_disk(body.writelines, parts)
        except BaseException:
            body.close()
            raise
        return body


async def _close(response: HttpResponseBase) -> None:
    """Close the source of a stream. Other responses are closed already."""
    if response.streaming:
        await on_disk(response.close)
