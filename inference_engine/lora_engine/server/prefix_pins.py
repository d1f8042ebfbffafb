"""Pinned prefixes of this host: their tokens, and the background requests that compute missing ones.

The requests belong to the prefix's tenant. They run when no other request waits, and yield to others. They have no
session, are not in the journal, and are not billed.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lora_engine.adapters.staging import AdapterTiers
from lora_engine.errors import RequestError
from lora_engine.request import GenerationRequest, PinnedPrefix, PinState, RequestFinished, Slo, StepOutput
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.prompt_prefixes import RecentPrefixes, prefix_marks

from .engine_loop import EngineLoop
from .input_processor import InputProcessor
from .messages import error_message

log = logging.getLogger(__name__)

# Seconds for which a prefix's tokens are kept: a template's output may change with the date.
_TOKENS_KEPT_S = 600.0
# Seconds between two checks for missing prefixes.
_CHECK_EVERY_S = 1.0
_FAILED_REST_S = 25.0  # pause after a failure; the control plane repeats its call twice a minute
# Seconds that ``set`` waits for missing prefixes, and between two checks.
_PATIENCE_S = 1.0
_PATIENCE_POLL_S = 0.05
_STATES = {
    PinState.KEPT: pb.PrefixState.KEPT,
    PinState.MISSING: pb.PrefixState.COMPUTING,
    PinState.NO_ROOM: pb.PrefixState.NO_ROOM,
    PinState.OFF: pb.PrefixState.OFF,
}


@dataclass(frozen=True, slots=True)
class _Read:
    """A prefix in tokens, or the reason why it cannot be pinned."""

    prompt: bytes
    at: float
    token_ids: list[int]
    error: RequestError | None = None


class PrefixPins:
    """A keeper of pinned prefixes. It lives on the event loop, like the host."""

    def __init__(
        self,
        engine: EngineLoop,
        tiers: AdapterTiers,
        inputs: InputProcessor,
        page_tokens: int,
        recent: RecentPrefixes,
    ) -> None:
        """Create the keeper. ``recent`` gets the pinned prefixes as recently used ones, for dispatchers."""
        self._engine = engine
        self._tiers = tiers
        self._inputs = inputs
        self._page_tokens = self._least = page_tokens
        self._recent = recent
        self._read: dict[str, _Read] = {}
        self._wanted: dict[str, PinnedPrefix] = {}
        self._failed: dict[str, tuple[RequestError, float]] = {}  # and the time until which it is not retried
        self._computing: dict[str, asyncio.Future[RequestFinished]] = {}  # by request id
        self._keeper: asyncio.Task[None] | None = None
        self._setting = asyncio.Lock()

    async def set(self, prefixes: Sequence[pb.PinnedPrefix]) -> pb.PinPrefixesReply:
        """Pin these prefixes and no others. Waits up to a second for those that are missing."""
        async with self._setting:
            self._least = await asyncio.wrap_future(self._engine.call(lambda engine: engine.least_pinned_tokens))
            self._read = {prefix.name: await self._tokens(prefix) for prefix in prefixes}
            valid = [prefix for prefix in prefixes if self._read[prefix.name].error is None]
            self._wanted = {prefix.name: self._in_tokens(prefix) for prefix in valid}
            self._failed = {name: failed for name, failed in self._failed.items() if name in self._wanted}
            wanted = list(self._wanted.values())
            states = await asyncio.wrap_future(self._engine.call(lambda engine: engine.pin_prefixes(wanted)))
        if self._wanted and (self._keeper is None or self._keeper.done()):
            self._keeper = asyncio.create_task(self._keep())
        until = time.monotonic() + _PATIENCE_S
        while self._missing(states) and time.monotonic() < until:
            await asyncio.sleep(_PATIENCE_POLL_S)
            states = await self._states()
        reply = pb.PinPrefixesReply(prefixes=[self._state(prefix.name, states) for prefix in prefixes])
        for prefix, state in zip(prefixes, reply.prefixes, strict=True):
            if state.state == pb.PrefixState.KEPT:
                self._recent.used(prefix_marks(prefix.prompt), state.tokens)
        return reply

    def take(self, output: StepOutput) -> None:
        """Take the ends of this keeper's requests from a step's output."""
        for item in output.finished if self._computing else ():
            ended = self._computing.pop(item.request_id, None)
            if ended is not None and not ended.done():
                ended.set_result(item)

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()

    async def _tokens(self, prefix: pb.PinnedPrefix) -> _Read:
        prompt, now = prefix.prompt.SerializeToString(deterministic=True), time.monotonic()
        known = self._read.get(prefix.name)
        if known is not None and known.prompt == prompt and now - known.at < _TOKENS_KEPT_S:
            return known
        if error := self._inputs.reject_base(prefix.prompt.base_digest):
            return _Read(prompt, now, [], error)
        try:
            ids = await self._inputs.common_tokens(prefix.prompt)
        except RequestError as error:
            return _Read(prompt, now, [], error)
        except Exception:
            log.exception("a prefix could not be read", extra={"prefix": prefix.name})
            return _Read(prompt, now, [], _unreadable())
        return _Read(
            prompt, now, ids, None if len(ids) >= self._least else _too_short(len(ids), self._page_tokens, self._least)
        )

    def _in_tokens(self, prefix: pb.PinnedPrefix) -> PinnedPrefix:
        ids, prompt = self._read[prefix.name].token_ids, prefix.prompt
        full = ids[: len(ids) // self._page_tokens * self._page_tokens]
        adapter = self._tiers.dtypes.key(prompt.adapter_digest, prompt.adapter_dtype)
        return PinnedPrefix(prefix.name, prompt.tenant, adapter, prompt.cache_salt, full)

    async def _states(self) -> dict[str, PinState]:
        return await asyncio.wrap_future(self._engine.call(lambda engine: engine.pinned_prefixes()))

    def _missing(self, states: dict[str, PinState]) -> list[PinnedPrefix]:
        """Return the prefixes to compute now."""
        now = time.monotonic()
        return [
            prefix
            for name, prefix in self._wanted.items()
            if states.get(name) is PinState.MISSING and not (name in self._failed and now < self._failed[name][1])
        ]

    def _state(self, name: str, states: dict[str, PinState]) -> pb.PrefixState:
        if (read := self._read.get(name)) is None:  # another call replaced the set meanwhile
            return pb.PrefixState(name=name, state=pb.PrefixState.COMPUTING)
        state = states.get(name, PinState.MISSING)
        error = read.error or (self._failed[name][0] if state is PinState.MISSING and name in self._failed else None)
        return pb.PrefixState(
            name=name,
            state=pb.PrefixState.FAILED if error else _STATES[state],
            tokens=len(read.token_ids),
            error=error_message(error) if error else None,
        )

    async def _keep(self) -> None:
        """Compute missing prefixes one after the other, as long as any are wanted."""
        while self._wanted:
            try:
                for prefix in self._missing(await self._states()):
                    if self._wanted.get(prefix.name) == prefix:
                        await self._compute(prefix)
            except Exception:
                log.exception("checking pinned prefixes failed; they are checked again")
            await asyncio.sleep(_CHECK_EVERY_S)

    async def _compute(self, prefix: PinnedPrefix) -> None:
        """Compute a prefix until its request ends or it is no longer wanted."""
        request = GenerationRequest(
            request_id=f"pin-{uuid.uuid4().hex}",
            prompt_token_ids=prefix.token_ids,
            adapter_digest=prefix.adapter_digest,
            tenant=prefix.tenant,
            slo=Slo(background=True),
            prompt_only=True,
            cache_salt=prefix.cache_salt,
            pin=prefix.name,
        )
        ended = self._computing[request.request_id] = asyncio.get_running_loop().create_future()
        if prefix.adapter_digest:
            self._tiers.acquire(prefix.adapter_digest)
        try:
            self._engine.submit(request)
            while not ended.done() and self._wanted.get(prefix.name) == prefix:
                await asyncio.wait([ended], timeout=_CHECK_EVERY_S)
        finally:
            if not ended.done():  # its end still arrives, but nothing waits for it
                self._engine.abort(request.request_id)
            if prefix.adapter_digest:
                self._tiers.release(prefix.adapter_digest)
        self._note(prefix, ended)

    def _note(self, prefix: PinnedPrefix, ended: asyncio.Future[RequestFinished]) -> None:
        self._failed.pop(prefix.name, None)
        if ended.done() and (error := ended.result().error) is not None:
            log.info("the prefix %s could not be computed: %s", prefix.name, error.message)
            self._failed[prefix.name] = error, time.monotonic() + _FAILED_REST_S


def _too_short(tokens: int, page_tokens: int, least: int) -> RequestError:
    kept = f"only full pages of {page_tokens} tokens are kept"
    if least > page_tokens:
        kept = f"this host keeps the state of a prefix of {least} tokens or more"
    return RequestError(
        "prefix_too_short",
        f"Longer prompts have {tokens} tokens of it in common, and {kept}.",
        "Pin a longer beginning. Some chat templates write the system prompt into the last message: with these, "
        "nothing can be shared.",
    )


def _unreadable() -> RequestError:
    return RequestError("invalid_request", "The engine could not read this prefix.", "Check its messages.")
