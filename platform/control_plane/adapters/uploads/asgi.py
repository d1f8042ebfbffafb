"""Django's ASGI handler, which spools upload bodies to the artifact file system."""

from __future__ import annotations

from tempfile import SpooledTemporaryFile

from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler

from control_plane.adapters.uploads.spool import spool_folder
from control_plane.lifespan import Receive

MEMORY_BYTES = 64 << 10
"""Of an upload's body; the rest lies on the disk at once. Other bodies are no larger."""


class Handler(ASGIHandler):
    """Large bodies go to the artifact file system: the system's own temporary folder is memory on many machines."""

    async def read_body(self, receive: Receive) -> SpooledTemporaryFile[bytes]:
        """The whole body as a file at its start. Raises RequestAborted if the client goes away."""
        body = SpooledTemporaryFile(  # noqa: SIM115 (the request closes it)
            max_size=MEMORY_BYTES, dir=str(spool_folder())
        )
        try:
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAborted
                body.write(message.get("body", b""))
                more = message.get("more_body", False)
        except BaseException:
            body.close()
            raise
        body.seek(0)
        return body
