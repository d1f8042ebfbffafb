"""Sessions that are resumed in another process than the one where they began.

A generation stays in the process where it began, the home of its session. The process that has the client's new socket
sends home a message through Redis; home writes the frames into a list in Redis, which the other process reads. Frames
of other sockets are never written to Redis. Unlike the channel layer, a list loses nothing, and the writer waits for
the reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Awaitable, Mapping
from typing import Any, cast
from uuid import UUID
from weakref import WeakKeyDictionary

import redis.asyncio
from redis.exceptions import RedisError

from control_plane.core import config
from control_plane.core.cancellation import to_completion
from control_plane.core.redis_client import async_client
from control_plane.gateway.dispatch.runtime import within
from control_plane.gateway.websocket.generation import Send
from control_plane.gateway.websocket.session import (
    Owner,
    Session,
    Sessions,
    error_frame,
    hand_over,
    process_of,
    resume_lost,
    resume_unavailable,
    resumed_frame,
)

logger = logging.getLogger(__name__)

# Seconds within which home must begin to answer.
ANSWER_S = 5.0
# Seconds without a frame after which the reader checks that home is alive.
IDLE_S = 5.0
# Seconds before a broken subscription is renewed.
RETRY_S = 1.0
# Seconds after its last write at which Redis deletes a list.
LIST_EXPIRES_S = 60
# Unread elements at which the writer waits, seconds of waiting after which the reader counts as gone, and seconds
# between checks.
MAX_WAITING = 256
STALL_S = 10.0
POLL_S = 0.05
# Bytes of frames in memory at which a generation waits for the writer.
MAX_BUFFERED_BYTES = 256 << 10
# Maximum number of connections to Redis: each resumed session blocks one while it waits for a frame.
MAX_CONNECTIONS = 512
# Seconds that the relay may take to stop.
STOP_S = 1.0
# Elements of a list beside frames: all frames were sent; home no longer writes to this list.
END = "end"
BROKEN = "broken"
# Messages of a reader that leaves: its client may return, or will not.
LEAVES = ("leave", "end")


def channel_of(process: str) -> str:
    return f"lorikeet:home:{process}"


class Relay:
    """The home side: the holder of a session whose client is connected to another process."""

    def __init__(self, connection: redis.asyncio.Redis, address: str) -> None:
        self._redis, self.address = connection, address
        self.session: Session | None = None
        self._frames: list[str] = []
        self._bytes = 0
        self._filled, self._room = asyncio.Event(), asyncio.Event()
        self._gone = self._left = self._complete = False

    async def run(self, sessions: Sessions, name: str, owner: Owner, after: Mapping[str, int]) -> None:
        """Send the frames until all were sent or the reader left; then release the session for a later holder."""
        self.session = sessions.take(name, owner, self)
        writing = asyncio.create_task(self._write())
        try:
            await hand_over(self.session, name, after, self.send_frame)
            if self.session is not None:
                self.session.at_end = self._check_end
            self._check_end()
            await writing
        except OSError:
            logger.info("A client that resumed in another process is gone.")
        finally:
            self._leave()
            if self._left:
                await writing
                await _clear(self._redis, self.address)
            writing.cancel()

    async def send_frame(self, text: str) -> None:
        while self._bytes > MAX_BUFFERED_BYTES and not self._gone:
            self._room.clear()
            await self._room.wait()
        if self._gone:
            raise ConnectionAbortedError
        self._frames.append(text)
        self._bytes += len(text)
        self._filled.set()

    def lose(self, session: Session) -> None:
        self.session = None
        self._taken()
        self._check_end()

    def do(self, message: Mapping[str, Any]) -> None:
        """Carry out a message of the reader."""
        session = self.session
        if message["do"] in LEAVES:
            self._left = True
            self._leave()
            self._stop()
            if message["do"] == "end" and session is not None:
                session.end()
        elif message["do"] == "cancel" and session and (generation := session.generations.get(message["id"])):
            generation.cancel()

    def _leave(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.at_end = lambda: None
            session.release()

    def _stop(self) -> None:
        self._gone = True
        self._filled.set()
        self._room.set()

    def _check_end(self) -> None:
        if self.session is None or not any(self.session.running):
            self._complete = True
            self._filled.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._filled.wait()
                if self._gone:
                    return
                self._filled.clear()
                complete = self._complete
                if self._frames:
                    await self._push("\n".join(self._taken()))
                if complete and not self._frames:
                    await self._push(END)
                    return
        except (RedisError, OSError) as error:
            logger.warning("Frames for a client that resumed in another process could not be sent: %s", error)
        finally:
            self._stop()

    def _taken(self) -> list[str]:
        frames, self._frames, self._bytes = self._frames, [], 0
        self._room.set()
        return frames

    async def _push(self, element: str) -> None:
        async with self._redis.pipeline(transaction=False) as both:
            both.rpush(self.address, element)
            both.expire(self.address, LIST_EXPIRES_S)
            waiting: int = (await both.execute())[0]
        stalled_s = 0.0
        while waiting > MAX_WAITING and not self._gone:
            if stalled_s > STALL_S:
                raise ConnectionAbortedError("The frames are not read.")
            await asyncio.sleep(POLL_S)
            stalled_s += POLL_S
            waiting = await self._redis.llen(self.address)


class Remote:
    """The socket's side: the part of a session that runs in another process."""

    def __init__(self, connection: redis.asyncio.Redis, session: str, after: Mapping[str, int], send: Send) -> None:
        self._redis, self._session, self._send = connection, session, send
        self._after = after
        # Ids of the generations that have not ended.
        self.ids = set(after)
        self._answered = False
        self._address = f"lorikeet:handover:{uuid.uuid4().hex}"
        self._task: asyncio.Task[None] | None = None

    def start(self, owner: Owner) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self._run(owner), name="ws-remote")
        return self._task

    async def cancel(self, message_id: str) -> None:
        await self._tell("cancel", id=message_id)

    async def close(self, *, end: bool) -> None:
        """Stop reading, as the socket is closed. With ``end``, its client will not return."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self._tell("end" if end else "leave")
            await self._redis.delete(self._address)
        except (RedisError, OSError):
            logger.warning("The home of a resumed session could not be notified that its client left.")

    async def _run(self, owner: Owner) -> None:
        try:
            if not await to_completion(self._request_resume(owner)):  # home must receive this before a "leave"
                await self._fail(lost=True)
            elif (first := await self._next(ANSWER_S)) is None:
                await self._fail(lost=False)
            else:
                await self._forward(first)
        except (RedisError, OSError) as error:
            logger.warning("A session could not be resumed from its home: %s", error)
            await self._fail(lost=False)

    async def _request_resume(self, owner: Owner) -> bool:
        caller, tenant = owner
        return await self._tell("resume", session=self._session, owner=caller, tenant=str(tenant), after=self._after)

    async def _forward(self, element: str | None) -> None:
        while element != END:
            if element == BROKEN or (element is None and not await self._tell("ping")):
                await self._fail(lost=element is None)
                return
            for frame in element.split("\n") if element else ():
                self._note(frame)
                await self._send(frame)
                self._answered = True  # the first frame is `resumed`
            element = await self._next(IDLE_S)

    def _note(self, frame: str) -> None:
        if not frame.startswith('{"type":"delta"'):
            message = json.loads(frame)
            if message["type"] in ("done", "error"):
                self.ids.discard(message.get("id"))
            elif message["type"] == "resumed":
                self.ids.difference_update(message["lost"])

    async def _next(self, within_s: float) -> str | None:
        element = await cast(Awaitable[Any], self._redis.blpop([self._address], timeout=within_s))
        return None if element is None else str(element[1])

    async def _tell(self, what: str, **more: object) -> bool:
        """Send a message to home. Returns whether home received it."""
        message = json.dumps({"do": what, "address": self._address, **more})
        return bool(await self._redis.publish(channel_of(process_of(self._session)), message))

    async def _fail(self, *, lost: bool) -> None:
        ids, self.ids = self.ids, set()
        error = resume_lost() if lost else resume_unavailable()
        if self._answered:
            frames = [error_frame(error, message_id) for message_id in sorted(ids)]
        else:
            frames = [resumed_frame(self._session, (), ids, error)]
        with contextlib.suppress(OSError):
            for frame in frames:
                await self._send(frame)


async def _report_broken(connection: redis.asyncio.Redis, address: str) -> None:
    with contextlib.suppress(RedisError, OSError):
        async with connection.pipeline(transaction=False) as both:
            both.rpush(address, BROKEN)
            both.expire(address, LIST_EXPIRES_S)
            await both.execute()


async def _clear(connection: redis.asyncio.Redis, address: str) -> None:
    """Delete the frames that were written after the reader left and deleted the list."""
    with contextlib.suppress(RedisError, OSError):
        await connection.delete(address)


class ResumeRelay:
    """Both sides of the relay in one process. Without Redis there is only one process, and nothing to relay."""

    def __init__(self, sessions: Sessions, url: str) -> None:
        self.sessions = sessions
        self._relays: dict[str, Relay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._redis: redis.asyncio.Redis | None = (
            # No timeout: waiting for the next frame is not a failure.
            async_client(url, timeout_s=None, decode_responses=True, max_connections=MAX_CONNECTIONS) if url else None
        )

    def start(self) -> None:
        if self._redis is not None:
            self._keep(asyncio.create_task(self._listen(self._redis), name="handover"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._redis is not None:
            await self._redis.aclose()

    def remote(self, session: str, after: Mapping[str, int], send: Send) -> Remote | None:
        """Return a reader for a session that began in another process; None without Redis."""
        return None if self._redis is None else Remote(self._redis, session, after, send)

    async def _listen(self, connection: redis.asyncio.Redis) -> None:
        while True:
            try:
                async with connection.pubsub() as inbox:
                    await inbox.subscribe(channel_of(self.sessions.process))
                    async for message in inbox.listen():
                        if message["type"] == "message":
                            self._do(connection, json.loads(message["data"]))
            except (RedisError, OSError) as error:
                logger.warning("Sessions of this process cannot be resumed in other processes for now: %s", error)
                await asyncio.sleep(RETRY_S)

    def _do(self, connection: redis.asyncio.Redis, message: dict[str, Any]) -> None:
        address = message["address"]
        if message["do"] == "resume":
            relay = self._relays[address] = Relay(connection, address)
            owner = (message["owner"], UUID(message["tenant"]))
            self._keep(asyncio.create_task(self._relay(relay, message["session"], owner, message["after"])))
            return
        known = self._relays.get(address)
        if known is not None:
            known.do(message)
        elif message["do"] == "ping":
            self._keep(asyncio.create_task(_report_broken(connection, address)))
        elif message["do"] in LEAVES:
            self._keep(asyncio.create_task(_clear(connection, address)))

    async def _relay(self, relay: Relay, name: str, owner: Owner, after: Mapping[str, int]) -> None:
        try:
            await relay.run(self.sessions, name, owner, after)
        finally:
            del self._relays[relay.address]

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_relays: WeakKeyDictionary[asyncio.AbstractEventLoop, ResumeRelay] = WeakKeyDictionary()


def resume_relay() -> ResumeRelay:
    """Return the running event loop's sessions and their relay, made at first use."""
    loop = asyncio.get_running_loop()
    if loop not in _relays:
        _relays[loop] = ResumeRelay(Sessions(), config.current().redis_url)
        _relays[loop].start()
    return _relays[loop]


async def start() -> None:
    """Listen for other processes' sockets: a start-up hook of the web process."""
    resume_relay()


async def stop() -> None:
    """End all sessions: a shut-down hook of the web process, before the gateway's."""
    running = _relays.pop(asyncio.get_running_loop(), None)
    if running is not None:
        await within(STOP_S, running.close())
        running.sessions.close()
