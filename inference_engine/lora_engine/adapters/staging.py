"""Staging brings adapters from the artifact store to disk and host memory, beside the step loop.

``AdapterTiers`` serves the scheduler as ``AdapterSource``, and the server. All work happens in two small pools of
threads: one for staging, which may wait for a network, and one for adapters on disk for which a request waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

from lora_engine.errors import RequestError, StageError
from lora_engine.peft_format import digests_of, is_combined, parts_of
from lora_engine.wire import engine_pb2 as pb

from .combining import combined_bytes
from .delta_norms import Norms
from .disk_tier import DiskTier
from .download import fetch
from .dtypes import ServedDtypes, content_of, is_fp8, variants
from .host_arena import HostArena
from .layout import PackedAdapter
from .load_times import LoadTimes
from .packing import Packer

log = logging.getLogger(__name__)

# Seconds between two progress reports to watchers.
_PROGRESS_EVERY_S = 0.1
# Seconds after which a failed load may be repeated.
_ERROR_KEPT_S = 5.0
_LOAD_THREADS = 2


def is_last(event: pb.StageEvent) -> bool:
    """Return whether no event of the same staging follows."""
    return event.phase in (pb.StageEvent.READY, pb.StageEvent.FAILED)


class StageJob:
    """The shared work on one digest: one thread publishes, any number of streams watch."""

    def __init__(self, request: pb.StageAdapterRequest, key: str) -> None:
        self.request = request
        self.key = key  # of the variant to have in host memory
        self._lock = threading.Lock()
        self._latest = pb.StageEvent(phase=pb.StageEvent.QUEUED)
        self._published = 0.0
        self._watchers: list[Callable[[pb.StageEvent], None]] = []

    def publish(self, event: pb.StageEvent) -> None:
        """Send an event to all watchers; of several progress reports within 100 ms only the first is sent."""
        with self._lock:
            now = time.monotonic()
            repeats = event.phase == self._latest.phase and not is_last(event)
            if repeats and now - self._published < _PROGRESS_EVERY_S:
                return
            self._latest, self._published = event, now
            for watcher in self._watchers:
                watcher(event)

    def progress(self, done: int, total: int, phase: pb.StageEvent.Phase = pb.StageEvent.DOWNLOADING) -> None:
        self.publish(pb.StageEvent(phase=phase, bytes_done=done, bytes_total=total))

    async def watch(self) -> AsyncGenerator[pb.StageEvent, None]:
        """Yield the latest event, then every following one up to the last."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[pb.StageEvent]()

        def tell(event: pb.StageEvent) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, event)

        with self._lock:
            event = self._latest
            self._watchers.append(tell)
        try:
            yield event
            while not is_last(event):
                event = await queue.get()
                yield event
        finally:
            with self._lock:
                self._watchers.remove(tell)


class AdapterTiers:
    """The tiers below the device, as one source of adapters.

    ``on_change`` is called from any thread whenever an adapter has been loaded into host memory or has failed to, as a
    request may be waiting for it; and whenever one has left host memory, which the device may still read.
    """

    def __init__(
        self,
        disk: DiskTier,
        arena: HostArena,
        packer: Packer,
        *,
        fp8_packer: Packer | None = None,
        parallelism: int = 4,
        wait_for_room_s: float = 30.0,
    ) -> None:
        """Create the tiers. ``fp8_packer`` packs adapters in FP8, on a host that was started for it."""
        self.disk = disk
        self.arena = arena
        self.get = arena.get  # for the scheduler's step thread
        self.on_change: Callable[[], None] = lambda: None
        arena.on_removed = lambda: self.on_change()
        self.load_times = LoadTimes()  # from disk to host memory
        self.download_times = LoadTimes()
        self.dtypes = ServedDtypes(fp8=fp8_packer is not None)
        self._packer = packer
        self._fp8_packer = fp8_packer
        self._wait_for_room_s = wait_for_room_s
        self._stagers = ThreadPoolExecutor(parallelism, "stage")
        self._loaders = ThreadPoolExecutor(_LOAD_THREADS, "load")
        self._lock = threading.Lock()
        self._jobs: dict[str, StageJob] = {}
        self._loads: set[str] = set()
        self._locks: dict[str, threading.Lock] = {}
        self._errors: dict[str, tuple[StageError, float]] = {}
        self._inspected: set[str] = set()  # validated since this process started
        self._dropped: set[str] = set()  # removed as soon as no request uses them

    # The methods below are quick, for the scheduler's step thread.

    def knows(self, digest: str) -> bool:
        if is_combined(digest):
            return all(self._knows_part(part) for part in digests_of(digest))
        return self._knows_part(content_of(digest))

    def _knows_part(self, digest: str) -> bool:
        if digest in self._dropped:
            return False
        in_memory = any(self.arena.has(key) for key in variants(digest))
        return in_memory or self.disk.has(digest) or digest in self._jobs

    def has(self, packed: PackedAdapter) -> bool:
        return self.arena.peek(packed.digest) is packed

    def request_load(self, digest: str) -> None:
        if digest in self._loads or not (is_combined(digest) or self.disk.has(content_of(digest))):
            return  # it is being loaded already, from disk or from the store
        with self._lock:
            if digest in self._loads:
                return
            self._loads.add(digest)
        self._loaders.submit(self._load_for_request, digest)

    def load_error(self, digest: str) -> RequestError | None:
        failed = self._errors.get(digest)
        if failed is None:
            return None
        error, when = failed
        if time.monotonic() - when > _ERROR_KEPT_S:  # the next request may try again
            self._errors.pop(digest, None)
            return None
        return error.as_request_error()

    # The methods below are for the server.

    def acquire(self, digest: str) -> None:
        """Keep the adapter and all its parts in every tier for a request, until ``release``."""
        for each in _with_parts(digest):
            self.arena.acquire(each)
            self.disk.pin(content_of(each))

    def release(self, digest: str) -> None:
        for each in _with_parts(digest):
            content = content_of(each)
            self.disk.unpin(content)
            if not self.arena.release(each) and content in self._dropped and not self._is_in_use(content):
                self._forget(content)

    async def stage(self, request: pb.StageAdapterRequest) -> AsyncGenerator[pb.StageEvent, None]:
        """Bring an adapter into host memory and yield events; the last is READY or FAILED.

        Concurrent calls for one digest share one job, which continues when its callers are cancelled.
        """
        digest = request.digest
        key = self.dtypes.key(digest, request.adapter_dtype)
        packed = self.arena.get(key)
        if packed is not None and digest not in self._dropped:
            yield _ready(packed)
            return
        with self._lock:
            job = self._jobs.get(digest)
            if job is None:
                self._dropped.discard(digest)
                for each in variants(digest):
                    self._errors.pop(each, None)
                job = self._jobs[digest] = StageJob(request, key)
                self._stagers.submit(self._stage, job)
        async with aclosing(job.watch()) as events:
            async for event in events:
                yield event

    def pack_with(self, packer: Packer, digest: str) -> PackedAdapter:
        """Pack the adapter with another packer. Takes time and memory: call it beside the event loop.

        Raises ``StageError`` if its files are no longer on disk, or cannot be packed.
        """
        with self.disk.reading(digest) as folder:
            return packer.pack(digest, folder)

    def delta_norms(self, digest: str) -> list[Norms] | None:
        """Return for each layer the norms of what the adapter adds to the base; None if it is not in host memory.

        Takes time: call it beside the event loop.
        """
        packed = self.arena.get(digest)
        return None if packed is None else self._packer.delta_norms(packed)

    def changes_embedding_layers(self, digest: str) -> bool:
        """Return whether the adapter, if it is in host memory, changes the embedding or the head."""
        packed = self.arena.get(digest)
        return packed is not None and packed.layout.embedding_layers is not None

    def retire(self, key: str) -> None:
        """Remove an adapter in a dtype that no longer serves it from host memory, unless a request uses it."""
        if not self.arena.is_in_use(key):
            self.arena.remove(key)

    def drop(self, digest: str) -> bool:
        """Remove an adapter from host memory and disk as soon as no request uses it. Returns whether it was known."""
        was_here = self.knows(digest)
        with self._lock:
            self._dropped.add(digest)
        if not self._is_in_use(digest):
            self._forget(digest)
        return was_here

    def _is_in_use(self, digest: str) -> bool:
        return any(self.arena.is_in_use(key) for key in variants(digest))

    def close(self) -> None:
        """Start no new work. Running downloads end with the process; the next start removes their files."""
        self._stagers.shutdown(wait=False, cancel_futures=True)
        self._loaders.shutdown(wait=False, cancel_futures=True)

    # The methods below run in the worker threads.

    def _stage(self, job: StageJob) -> None:
        digest = job.request.digest
        self.disk.pin(digest)
        try:
            with self._alone(digest):
                packed = self.arena.get(job.key)
                if packed is None and not self.disk.has(digest):
                    job.progress(0, 0)
                    began = time.monotonic()
                    with self.disk.adding(digest) as folder:
                        fetch(job.request, folder, self._packer.limits.max_bytes, job.progress)
                    self.download_times.add(self.disk.contents().get(digest, 0), time.monotonic() - began)
                if packed is None:
                    size = self.disk.contents().get(digest, 0)
                    job.progress(size, size, pb.StageEvent.VERIFYING)
                    packed = self._load(job.key, lambda: job.progress(size, size, pb.StageEvent.LOADING))
            last = _ready(packed)
        except Exception as cause:
            error = self._failed(digest, cause)
            last = pb.StageEvent(
                phase=pb.StageEvent.FAILED,
                error=pb.EngineError(
                    code=error.code, message=error.message, fix=error.fix, retry_after_ms=error.retry_after_ms
                ),
            )
        self.disk.unpin(digest)
        with self._lock:
            del self._jobs[digest]
        job.publish(last)
        self.on_change()
        self.disk.flush(digest)

    def _load_for_request(self, digest: str) -> None:
        try:
            with self._alone(content_of(digest)):
                if is_combined(digest):
                    self._combine(digest)
                elif not self.arena.has(digest):
                    self._load(digest, lambda: None)
        except Exception as cause:
            self._failed(digest, cause)
        with self._lock:
            self._loads.discard(digest)
        self.on_change()

    def _combine(self, digest: str) -> None:
        """Combine an adapter from its parts, which are loaded first."""
        if self.arena.has(digest):
            return
        self.acquire(digest)
        try:
            parts = [(self._part(part.digest), part.weight) for part in parts_of(digest)]
            self.arena.reserve(digest, combined_bytes([packed for packed, _ in parts]), self._wait_for_room_s)
            try:
                self.arena.put(self._packer.combine(digest, parts))
            finally:
                self.arena.cancel(digest)
        finally:
            self.release(digest)

    def _part(self, digest: str) -> PackedAdapter:
        with self._alone(digest):
            return self.arena.get(digest) or self._load(digest, lambda: None)

    def _load(self, key: str, on_loading: Callable[[], None]) -> PackedAdapter:
        """Load from disk to host memory. The first time in this process, every value is checked."""
        began, waited, digest, packer = time.monotonic(), 0.0, content_of(key), self._packer_of(key)

        def reserve(num_bytes: int) -> None:
            nonlocal waited
            self._inspected.add(digest)
            on_loading()
            waits = time.monotonic()  # wait for room, which is no work on this load
            self.arena.reserve(key, num_bytes, self._wait_for_room_s)
            waited = time.monotonic() - waits

        self.disk.verify(digest)
        with self.disk.reading(digest) as folder:
            try:
                packed = packer.pack(key, folder, check_finite=digest not in self._inspected, reserve=reserve)
                self.arena.put(packed)
            finally:
                self.arena.cancel(key)
        self.load_times.add(self.disk.contents().get(digest, packed.num_bytes), time.monotonic() - began - waited)
        return packed

    def _packer_of(self, key: str) -> Packer:
        if not is_fp8(key):
            return self._packer
        if self._fp8_packer is None:
            raise AssertionError(f"{key} is to be in FP8, for which this host was not started")
        return self._fp8_packer

    def _alone(self, digest: str) -> threading.Lock:
        """Return the lock of a digest, so that two threads never load the same adapter twice."""
        with self._lock:
            return self._locks.setdefault(digest, threading.Lock())

    def _failed(self, digest: str, cause: Exception) -> StageError:
        """Log the failure and keep it for requests that wait."""
        if isinstance(cause, StageError):
            log.warning("%s cannot be loaded: %s", digest, cause)
            error = cause
        else:
            log.error("%s cannot be loaded", digest, exc_info=cause)
            error = _unexpected(cause)
        self._errors[digest] = (error, time.monotonic())
        return error

    def _forget(self, digest: str) -> None:
        for packed in self.arena.contents():
            if digest in _with_parts(content_of(packed.digest)):
                self.arena.remove(packed.digest)
        self.disk.remove(digest)
        with self._lock:
            self._dropped.discard(digest)
            self._inspected.discard(digest)
            self._locks.pop(digest, None)
            for key in variants(digest):
                self._errors.pop(key, None)
        self.dtypes.forget(digest)


def _with_parts(digest: str) -> tuple[str, ...]:
    """Return the digest, and those of its parts if it is a combination."""
    return (digest, *digests_of(digest)) if is_combined(digest) else (digest,)


def _ready(packed: PackedAdapter) -> pb.StageEvent:
    return pb.StageEvent(
        phase=pb.StageEvent.READY,
        bytes_done=packed.num_bytes,
        bytes_total=packed.num_bytes,
        rank=packed.rank,
        pool_pages=packed.num_pages,
    )


def _unexpected(cause: Exception) -> StageError:
    return StageError(
        "stage_failed",
        f"The engine could not load the adapter ({type(cause).__name__}).",
        "Stage it again; if it fails again, see the engine's log.",
        passes=True,
    )
