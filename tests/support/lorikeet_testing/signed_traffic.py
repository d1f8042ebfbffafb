"""Requests to many adapters of one engine host while those are staged, replaced, dropped, evicted and merged at random.

Every adapter answers with its signature (``signatures.py``), so every token of every answer is checked. The adapters
live as they do in production: through ``AdapterTiers.stage`` and ``ResidentAdapters.drop``, from disk by host memory to
the device, in tiers too small for all of them. Requests go through a client's session, and their usage through the
journal.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lora_engine.peft_format import adapter_digest, folder_digests
from lora_engine.server.host import HostServer
from lora_engine.server.session import ClientSession
from lora_engine.wire import engine_pb2 as pb

from .signatures import BASE, VOCAB, Signature, most_likely_owner, new_signature, save_signed

_SESSIONS = 2
_STAGERS = 4
_DISTURBERS = 4
_ACKNOWLEDGED_AT_ONCE = 500
_TENANTS = 20
_PREFIXES, _PREFIX_TOKENS = 24, 64  # beginnings of prompts, each of which many adapters and tenants have in common
_ERA = 3000  # requests after which another adapter is the busy one
_DROPPED_KEPT = 50  # versions that requests still name after they were dropped


@dataclass(eq=False, slots=True)
class Version:
    """An adapter's version; ``is_dropped`` once the host confirmed that it forgot it."""

    name: str
    signature: Signature
    folder: Path
    digest: str
    is_dropped: bool = False
    is_being_staged: bool = False


@dataclass(slots=True)
class Open:
    """A request under way, and what must come of it."""

    version: Version | None  # None: the base model
    answer: list[int]
    must_be_refused: bool
    is_aborted: bool = False
    tokens: list[int] = field(default_factory=list)


@dataclass
class Tally:
    """Counts of a run; ``wrong`` and ``unexplained`` describe the first of each kind of failure."""

    requests: int = 0
    finished: int = 0
    aborted: int = 0
    refused: int = 0
    tokens: int = 0
    wrong_tokens: int = 0
    events: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("requests", "finished", "aborted", "refused", "tokens", "wrong_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.events += other.events
        self.wrong += other.wrong
        self.unexplained += other.unexplained


class SignedTraffic:
    """A run of traffic against a host. All randomness comes from ``seed``, except the order in which requests end."""

    def __init__(
        self,
        host: HostServer,
        folder: Path,
        *,
        adapters: int,
        seed: int,
        concurrency: int,
        disturb_every: int,
        long_answers: float = 0.01,
        patience_s: float = 60.0,
    ) -> None:
        """``disturb_every``: requests that end between two changes of adapters. ``long_answers``: share of requests for
        dozens of tokens. ``patience_s``: for any request to end.
        """
        self.tally = Tally()
        self._host = host
        self._folder = folder
        self._rnd = random.Random(seed)
        self._prefix = f"{seed}-"
        self._concurrency = concurrency
        self._disturb_every = disturb_every
        self._long_answers = long_answers
        self._patience_s = patience_s
        self._current: list[Version] = []
        self._dropped: list[Version] = []
        self._num_adapters = adapters
        self._created = 0
        self._prompts = [self._random_tokens(_PREFIX_TOKENS) for _ in range(_PREFIXES)]
        self._open: dict[str, Open] = {}
        self._by_handle: dict[int, Open] = {}
        self._sessions = [ClientSession() for _ in range(_SESSIONS)]
        self._unacknowledged: list[str] = []
        self._going_on: Callable[[], bool] = lambda: True
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, going_on: Callable[[], bool]) -> Tally:
        """Submit requests while ``going_on()`` holds, and wait for the last answer.

        A few adapters are staged before the first request, the others beside it.
        """
        self._going_on = going_on
        while len(self._current) < min(self._num_adapters, 8):
            await self._new_adapter()
        readers = [asyncio.create_task(self._read(session)) for session in self._sessions]
        others = [asyncio.create_task(self._stage_rest()) for _ in range(_STAGERS)]
        others += [asyncio.create_task(self._disturb()) for _ in range(_DISTURBERS)]
        self._refill()
        try:
            await self._watch([*readers, *others])
        finally:
            for task in (*readers, *others, *self._tasks):
                task.cancel()
            await asyncio.gather(*readers, *others, *self._tasks, return_exceptions=True)
        await asyncio.wrap_future(self._host.journal.acknowledge(self._unacknowledged))
        merging = (await self._host.status.read()).merging
        self.tally.events.update(merges=merging.merges, merged_steps=merging.merged_steps)
        return self.tally

    async def _watch(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for the last answer; raises what a task raised, and if nothing ends for long."""
        seen, since = -1, time.monotonic()
        while not self._ended.is_set() or self._open:
            await asyncio.sleep(0.05)
            for task in tasks:
                if task.done() and (error := task.exception()):
                    raise error
            if (count := self._count_ended()) != seen:
                seen, since = count, time.monotonic()
            stuck = time.monotonic() - since > self._patience_s
            assert not stuck, f"no request ended for {self._patience_s:.0f} s; {len(self._open)} are open"

    def _count_ended(self) -> int:
        return self.tally.finished + self.tally.aborted + self.tally.refused

    # Requests.

    def _refill(self) -> None:
        while len(self._open) < self._concurrency and not self._ended.is_set():
            if not self._going_on():
                self._ended.set()
                return
            self._submit()

    def _submit(self) -> None:
        rnd, number = self._rnd, self.tally.requests
        self.tally.requests += 1
        version = self._choose()
        owner = random.Random(version.name if version else "")  # what all versions of an adapter have in common
        tenant, prompts = f"tenant-{owner.randrange(_TENANTS)}", owner.choices(self._prompts, k=2)
        kept = rnd.choice((0, 16, 32, 48, 64))
        prompt = rnd.choice(prompts)[:kept] + self._random_tokens(rnd.randint(1, 8))
        max_tokens = rnd.randint(24, 64) if rnd.random() < self._long_answers else rnd.randint(1, 4)
        sampling = pb.Sampling(max_tokens=max_tokens, ignore_eos=True)
        if rnd.random() < 0.5:
            sampling.temperature, sampling.seed = 1.0, number
            sampling.top_p, sampling.top_k = rnd.choice((0, 0.9)), rnd.choice((0, 20))
        if rnd.random() < 0.0005:
            sampling.presence_penalty = 0.5  # keeps the engine from planning a step before the last one's tokens
        submit = pb.Submit(
            request_id=f"{self._prefix}{number}",
            tenant=tenant,
            adapter_digest=version.digest if version else "",
            token_ids=pb.TokenIds(ids=prompt),
            sampling=sampling,
            handle=number + 1 if rnd.random() < 0.9 else 0,
            echo_token_ids=True,
        )
        signature = version.signature if version else BASE
        request = Open(version, signature.answer(prompt, max_tokens), bool(version and version.is_dropped))
        self._open[submit.request_id] = request
        if submit.handle:
            self._by_handle[submit.handle] = request
        session = self._sessions[number % _SESSIONS]
        self._host.requests.submit(session, submit)
        if rnd.random() < 0.01:
            request.is_aborted = True
            asyncio.get_running_loop().call_later(
                rnd.random() / 20, self._host.requests.abort, session, submit.request_id
            )

    def _choose(self) -> Version | None:
        """Return the adapter of the next request; at times one is busier than the others, or the only one."""
        rnd, era = self._rnd, random.Random(f"{self._prefix}{self.tally.requests // _ERA}")
        kind, busy = era.random(), era.choice(self._current)
        share = 1.0 if kind < 0.1 else 0.6 if kind < 0.3 else 0.0
        if rnd.random() < share:
            return busy
        if rnd.random() < 0.04:
            return None
        if self._dropped and rnd.random() < 0.01:
            return rnd.choice(self._dropped)
        return self._current[int(len(self._current) * rnd.random() ** 2)]

    def _random_tokens(self, count: int) -> list[int]:
        return [self._rnd.randrange(VOCAB) for _ in range(count)]

    # Answers.

    async def _read(self, session: ClientSession) -> None:
        async def take(message: pb.EngineMessage) -> None:
            for handle, token in zip(message.step.plain.handles, message.step.plain.token_ids, strict=True):
                self._by_handle[handle].tokens.append(token)
            for delta in message.step.deltas:
                self._open[delta.request_id].tokens += delta.token_ids
            for finished in message.step.finished:
                self._judge(finished)
            self._refill()

        await session.send_all(take)

    def _judge(self, finished: pb.Finished) -> None:
        request = self._open.pop(finished.request_id)
        self._by_handle.pop(int(finished.request_id.removeprefix(self._prefix)) + 1, None)
        usage = finished.usage
        self.tally.tokens += len(request.tokens)
        self.tally.events["preemptions"] += usage.preemptions
        self.tally.events["cached_prompt_tokens"] += usage.cached_prompt_tokens
        self.tally.events["loads_from_host"] += usage.adapter_loaded_from == "host"
        self.tally.events["loads_from_disk"] += usage.adapter_loaded_from == "disk"
        self._check_tokens(finished, request)
        match usage.outcome:
            case "finished":
                self.tally.finished += 1
                if request.must_be_refused:
                    self._unexplained(finished, "was answered although its adapter had been dropped")
                if len(request.tokens) != len(request.answer):
                    self._unexplained(finished, f"has {len(request.tokens)} of {len(request.answer)} tokens")
            case "aborted" if request.is_aborted:
                self.tally.aborted += 1
            case "refused" if finished.error.code == "adapter_not_found" and request.version is not None:
                self.tally.refused += 1
                if not request.must_be_refused:
                    self._stage_again(request.version)
                return
            case _:
                self._unexplained(finished, f"ended as {usage.outcome} ({finished.error.code})")
        self._unacknowledged.append(finished.request_id)
        if len(self._unacknowledged) >= _ACKNOWLEDGED_AT_ONCE:
            self._host.journal.acknowledge(self._unacknowledged)
            self._unacknowledged = []

    def _check_tokens(self, finished: pb.Finished, request: Open) -> None:
        if request.tokens == request.answer[: len(request.tokens)]:
            return
        expected = request.answer[: len(request.tokens)]
        self.tally.wrong_tokens += sum(a != b for a, b in zip(request.tokens, expected, strict=False))
        if len(self.tally.wrong) < 20:
            known = {version.digest: version.signature for version in (*self._current, *self._dropped)}
            owner = most_likely_owner(request.tokens, {**known, "the base model": BASE})
            name = request.version.digest if request.version else "the base model"
            self.tally.wrong.append(
                f"{finished.request_id} to {name} got {request.tokens} instead of {request.answer}; "
                f"the most likely author is {owner}; {finished.usage}"
            )

    def _unexplained(self, finished: pb.Finished, what: str) -> None:
        if len(self.tally.unexplained) < 20:
            self.tally.unexplained.append(f"{finished.request_id} {what}: {finished.error.message}")
        self.tally.events["unexplained"] += 1

    # Adapters.

    async def _stage_rest(self) -> None:
        while self._created < self._num_adapters:
            await self._new_adapter()

    async def _new_adapter(self) -> None:
        name = f"adapter-{self._created}"
        self._created += 1
        version = await self._stage_new(name, BASE)
        self._current.append(version)
        self.tally.events["adapters"] += 1

    async def _disturb(self) -> None:
        """Change an adapter, again and again, as requests end."""
        due = 0
        while True:
            due += self._disturb_every * _DISTURBERS
            while self._count_ended() < due:
                await asyncio.sleep(0.005)
            await self._rnd.choices(
                (self._replace, self._archive_and_restore, self._drop_and_restage_at_once, self._pin), (6, 2, 2, 1)
            )[0]()

    async def _replace(self) -> None:
        """Stage a new version beside the old one, let requests use it, and drop the old one soon or at once."""
        old = self._rnd.choice(self._current)
        new = await self._stage_new(old.name, old.signature)
        if old not in self._current:  # another change was quicker
            await self._drop(new)
            return
        self._current[self._current.index(old)] = new
        if self._rnd.random() < 0.5:
            await asyncio.sleep(self._rnd.random() / 10)
        await self._drop(old)
        self.tally.events["replaced"] += 1

    async def _archive_and_restore(self) -> None:
        """Drop an adapter, let requests for it be refused, and bring the same version back."""
        if len(self._current) < 2:
            return
        version = self._rnd.choice(self._current)
        self._current.remove(version)
        await self._drop(version, keep_files=True)
        await asyncio.sleep(self._rnd.random() / 10)
        await self._bring_back(version)
        self.tally.events["archived"] += 1

    async def _drop_and_restage_at_once(self) -> None:
        """Drop an adapter that may be running, and stage it again before its requests have ended."""
        version = self._rnd.choice(self._current)
        self._current.remove(version)
        await self._drop(version, keep_files=True)
        await self._bring_back(version)
        self.tally.events["dropped_and_staged"] += 1

    async def _pin(self) -> None:
        await self._host.resident_adapters.pin([version.digest for version in self._rnd.sample(self._current, 4)])
        self.tally.events["pinned"] += 1

    async def _stage_new(self, name: str, previous: Signature) -> Version:
        signature = new_signature(self._rnd, previous)
        folder = self._folder / f"{name}-{self._rnd.getrandbits(64):x}"
        digest = save_signed(folder, signature, self._rnd)
        version = Version(name, signature, folder, digest)
        await self._stage(version)
        return version

    async def _stage(self, version: Version) -> None:
        files = folder_digests(version.folder)
        assert adapter_digest(files) == version.digest
        request = pb.StageAdapterRequest(
            digest=version.digest, source_uri=version.folder.resolve().as_uri(), file_digests=files
        )
        async for event in self._host.tiers.stage(request):
            assert event.phase != pb.StageEvent.FAILED, event
        self.tally.events["staged"] += 1

    async def _bring_back(self, version: Version) -> None:
        # From here on the host may answer for it again, so nothing is said of requests that name it.
        version.is_dropped = False
        self._dropped.remove(version)
        await self._stage(version)
        self._current.append(version)

    def _stage_again(self, version: Version) -> None:
        """The host evicted it from its disk: stage it again, as the control plane does."""
        if version.is_being_staged or version.is_dropped or version not in self._current:
            return

        async def stage() -> None:
            try:
                await self._stage(version)
            finally:
                version.is_being_staged = False

        version.is_being_staged = True
        self.tally.events["evicted_from_disk"] += 1
        task = asyncio.create_task(stage())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drop(self, version: Version, *, keep_files: bool = False) -> None:
        while version.is_being_staged:
            await asyncio.sleep(0.005)
        await self._host.resident_adapters.drop(version.digest)
        version.is_dropped = True
        self._dropped.append(version)
        del self._dropped[:-_DROPPED_KEPT]
        if not keep_files:
            shutil.rmtree(version.folder)
