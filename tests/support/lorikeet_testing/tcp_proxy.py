"""A TCP proxy that takes a server away: cut, frozen, slow, or another one in its place."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")


class TcpProxy:
    """A proxy on a port of 127.0.0.1 that passes everything on to `port`. Its methods may be called from any thread."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._delay_s = 0.0
        self._frozen = False
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)
        self._thread.start()
        self._run(self._listen)

    def url(self, of: str) -> str:
        """Return `of` with the proxy in place of the server."""
        return _with_port(of, self.port)

    def behind(self, url: str) -> str:
        """Return `url`, which leads through the proxy, past it."""
        return _with_port(url, self._target)

    def cut(self) -> None:
        """Refuse connections and break those that are open, as a server that was stopped."""
        self._run(self._cut)

    def freeze(self) -> None:
        """Accept connections and bytes, and answer nothing: a server that hangs, or a path that lost its way back."""
        self._frozen = True

    def delay(self, seconds: float) -> None:
        """Delay each piece of bytes by so much, in both directions."""
        self._delay_s = seconds

    def point_to(self, port: int) -> None:
        """Direct new connections to another server. Open connections stay where they are."""
        self._target = port

    def restore(self) -> None:
        """Forward without delay again. Data sent into a frozen proxy is lost with its connection."""
        self._delay_s = 0.0
        self._run(self._thaw)

    def close(self) -> None:
        self._run(self._cut)
        self._run(self._end_all)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(step(), self._loop).result(10)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _end_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            for writer in list(self._writers):
                writer.transport.abort()
        await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            while self._frozen:
                await asyncio.sleep(0.02)
            back, onward = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(onward)
            await asyncio.gather(self._pass_on(reader, onward), self._pass_on(back, writer))
        except OSError:
            pass
        finally:
            for end in (writer, onward):
                if end is not None:
                    self._writers.discard(end)
                    end.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                while self._frozen:
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


def _with_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    account = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return urlunsplit(parts._replace(netloc=f"{account}127.0.0.1:{port}"))


@contextmanager
def proxied(url: str) -> Iterator[tuple[TcpProxy, str]]:
    """A proxy in front of the server of `url`, and the URL that leads through it."""
    port = urlsplit(url).port
    assert port is not None
    proxy = TcpProxy(port)
    try:
        yield proxy, proxy.url(url)
    finally:
        proxy.close()
