"""A request inside the engine, and each of its choices as a sequence of tokens."""

from __future__ import annotations

import math
import sys
import zlib
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.embedding_layers import AdapterEmbeddingLayer
from lora_engine.memory import Activation, PrefixKey
from lora_engine.request import GenerationRequest, PoolingKind, RequestUsage
from lora_engine.sampling import SamplingRow
from lora_engine.structured import TokenMasks
from lora_engine.text import IncrementalDetokenizer

_NEVER = sys.maxsize


class State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


MOST_SPANS = 16
"""Pre-emptions of a request that are told one by one."""


class Outcome(Enum):
    """The result of an attempt to let a waiting sequence run."""

    ADMITTED = "admitted"
    LOADING = "loading"  # its adapter is on the way; others may pass
    BUSY = "busy"  # pre-empted with its last token still on the device; others may pass
    NO_ROOM = "no room"  # its pages, or its adapter's, are not free; the queue policy decides which others may pass
    FULL = "full"  # no token or no batch slot is left this step: stop
    FAILED = "failed"  # it can never run and will be taken out of the queue after this step


@dataclass(slots=True)
class Timeline:
    """When things happened to a request, in seconds of the engine's monotonic clock; None = not yet."""

    submitted: float
    first_scheduled: float | None = None
    first_token: float | None = None
    adapter_wait_started: float | None = None
    adapter_wait: float = 0.0

    def adapter_arrived(self, now: float) -> None:
        """Before its first token; or the request ends without it."""
        if self.adapter_wait_started is not None:
            self.adapter_wait = now - self.adapter_wait_started


@dataclass(slots=True)
class RequestState:
    """Bookkeeping shared by a request's choices."""

    request: GenerationRequest
    timeline: Timeline
    usage: RequestUsage
    sequences: list[Sequence] = field(default_factory=list)
    unfinished: int = 0  # of its sequences, once it is queued
    ended: bool = False
    device_s: float = 0.0  # its share of device time, in seconds
    ending_tokens: frozenset[int] = frozenset()  # that its answers end with
    vocab_needed: int = 0  # tokens that its adapter must have, if it names some that the base lacks
    predicted_first_token: float | None = None  # seconds from submission, as judged on arrival

    @property
    def loads_from_disk(self) -> bool:
        return self.usage.adapter_loaded_from == "disk"

    @property
    def due(self) -> float:
        """When its first token is wanted, in seconds of the engine's clock; infinite without a target."""
        slo = self.request.slo
        targets = [ms for ms in (slo.first_token_ms, slo.deadline_ms) if ms]
        return self.timeline.submitted + min(targets) / 1000 if targets else math.inf

    @property
    def deadline(self) -> float:
        """After this time the answer is of no use; infinite without a deadline."""
        ms = self.request.slo.deadline_ms
        return self.timeline.submitted + ms / 1000 if ms else math.inf

    def complete_usage(self, now: float) -> None:
        """Fill in what follows from the timeline of a request that ends ``now``."""
        usage, timeline = self.usage, self.timeline
        for sequence in self.sequences:
            self.was_preempted(sequence, now)
        usage.device_us = round(self.device_s * 1e6)
        if timeline.first_scheduled is None:
            timeline.adapter_arrived(now)
        waited_until = timeline.first_scheduled if timeline.first_scheduled is not None else now
        usage.adapter_load_ms = _ms(timeline.adapter_wait)
        usage.queue_ms = max(0, _ms(waited_until - timeline.submitted) - usage.adapter_load_ms)
        if timeline.first_token is not None:
            usage.first_token_ms = _ms(timeline.first_token - timeline.submitted)
            usage.prefill_ms = _ms(timeline.first_token - waited_until)
            usage.decode_ms = _ms(now - timeline.first_token)

    def was_preempted(self, sequence: Sequence, until: float) -> None:
        """Count a choice's pre-emption, if it was under one ``until`` now."""
        if sequence.preempted_at is None:
            return
        lost_ms = _ms(until - sequence.preempted_at)
        self.usage.preempted_ms += lost_ms
        if len(self.usage.preemption_spans) < MOST_SPANS:
            self.usage.preemption_spans.append((_ms(sequence.preempted_at - self.timeline.submitted), lost_ms))
        sequence.preempted_at = None


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice of a request: its tokens, how many of them are in the KV cache, and in which pages.

    ``num_computed`` tokens have their keys and values in ``pages``; the rest are to be
    processed. A running sequence decodes when exactly one token is left to process.

    The last ``pending`` entries of ``token_ids`` are placeholders of tokens that the device has
    been asked for and the host has not seen.
    """

    parent: RequestState
    choice: int
    arrival: int
    token_ids: list[int]
    max_tokens: int  # most tokens to generate
    detokenizer: IncrementalDetokenizer
    prompt_apart: bool = False  # what the prompt's tokens are computed as, and shared, the generated ones never are
    state: State = State.WAITING
    num_computed: int = 0
    pending: int = 0
    pages: list[int] = field(default_factory=list)
    slot: AdapterSlot | None = None  # that its next tokens are computed with
    dormant: AdapterSlot | None = None  # that it holds, and that acts from ``activation`` on
    activation: Activation | None = None
    charged: int = 0  # leading tokens whose processing its tenant has been charged for
    passed_since: float | None = None  # since when others have gone before it although it was first
    held_by: Outcome | None = None  # why it did not run when it was last tried
    preempted_at: float | None = None  # since when it waits to run again
    read_from: int = 0  # the first prompt token whose hidden state is still to be read, if one is
    read_until: int = 0  # after the last one; 0 = the request asks nothing of its prompt
    pooled: object = None  # the sum of the hidden states read so far, on the device
    output_counts: Counter[int] = field(default_factory=Counter)
    masks: TokenMasks | None = field(init=False)  # if the answer is held to a grammar
    num_prompt: int = field(init=False)
    longest: int = field(init=False)  # tokens it may come to, prompt and output

    def __post_init__(self) -> None:
        self.num_prompt = len(self.token_ids)
        self.longest = self.num_prompt + self.max_tokens
        if (pooling := self.request.pooling) is not None:
            self.read_from = self.num_prompt - 1 if pooling.kind is PoolingKind.LAST else 0
            self.read_until = self.num_prompt
        elif self.request.prompt_logprobs is not None and self.choice == 0:
            self.read_until = self.num_prompt
        grammar = self.parent.request.grammar
        self.masks = None if grammar is None else grammar.start()

    @property
    def request(self) -> GenerationRequest:
        return self.parent.request

    @property
    def prompt(self) -> list[int]:
        return self.token_ids[: self.num_prompt]

    @property
    def num_output(self) -> int:
        """Tokens generated so far, those still on the device included."""
        return len(self.token_ids) - self.num_prompt

    @property
    def ends_by_length(self) -> bool:
        """Whether the tokens asked for are all it may generate: there is nothing more to schedule."""
        return len(self.token_ids) >= self.longest

    @property
    def remaining(self) -> int:
        """Tokens whose keys and values are still to be computed."""
        return len(self.token_ids) - self.num_computed

    @property
    def chunkable(self) -> int:
        """The most tokens that its next chunk may have."""
        prompt = self.num_prompt - self.num_computed
        tokens = prompt if self.prompt_apart and prompt > 0 else self.remaining
        if self.dormant is None or self.activation is None:
            return tokens
        return min(tokens, self.activation.at - self.num_computed)

    @property
    def reads_prompt(self) -> bool:
        """Whether hidden states of its prompt are still to be read."""
        return self.read_from < self.read_until

    @property
    def shareable(self) -> list[int]:
        """The tokens whose keys and values may come from the prefix cache, and one more."""
        if self.reads_prompt:
            return self.token_ids[: self.read_from + 1]
        return self.token_ids[: self.num_prompt + 1] if self.prompt_apart else self.token_ids

    @property
    def cacheable(self) -> int:
        """How many leading tokens have keys and values that others may share: those that are computed, and known."""
        known = min(self.num_computed, len(self.token_ids) - self.pending)
        return min(known, self.num_prompt) if self.prompt_apart else known

    @property
    def awaits_mask(self) -> bool:
        """Whether its next token cannot be chosen yet: all its tokens are known, but not what may come after them."""
        return self.masks is not None and not self.pending and not self.masks.ready

    @property
    def embedding(self) -> AdapterEmbeddingLayer | None:
        """Its adapter's own, if it has one."""
        return None if self.slot is None else self.slot.embedding

    @property
    def head(self) -> AdapterEmbeddingLayer | None:
        return None if self.slot is None else self.slot.head

    @property
    def prefix_key(self) -> PrefixKey:
        """Whose cached keys and values it may use: its tenant's, computed with its adapter, under the same salt.

        Of one that acts from a token on: the base model's, with what ``activation`` says of the rest.
        """
        digest = self.request.adapter_digest if self.activation is None else ""
        return self.request.tenant, digest, self.request.cache_salt

    def __lt__(self, other: Sequence) -> bool:
        return self.arrival < other.arrival

    @property
    def due(self) -> float:
        """When its first token is wanted, in seconds of the engine's clock; infinite without a target."""
        return self.parent.due

    def find_activation(self, slot: AdapterSlot) -> None:
        """Where its adapter begins to act: at the last invocation in the prompt; nowhere, if there is none."""
        if self.activation is None and slot.invocation_tokens:
            prompt, tokens = self.prompt, [*slot.invocation_tokens]
            starts = range(self.num_prompt - len(tokens), -1, -1)
            found = (at for at in starts if prompt[at] == tokens[0] and prompt[at : at + len(tokens)] == tokens)
            self.activation = Activation(next(found, _NEVER), slot.digest)

    def activate(self) -> bool:
        """Go on with the adapter, if all that comes before it is computed."""
        if self.activation is None or self.num_computed < self.activation.at:
            return False
        self.slot, self.dormant = self.dormant, None
        return True

    def start(self, slot: AdapterSlot | None, pages: list[int], cached_tokens: int, now: float) -> None:
        """It runs from now on, with ``cached_tokens`` already computed in ``pages``."""
        timeline = self.parent.timeline
        if timeline.first_scheduled is None:
            timeline.adapter_arrived(now)
            timeline.first_scheduled = now
            # Of an answer that goes on here, what was cached may reach beyond the prompt.
            self.parent.usage.cached_prompt_tokens = min(cached_tokens, self.num_prompt)
        timeline.adapter_wait_started = None  # of one that was pre-empted: no wait for its first token
        self.parent.was_preempted(self, now)
        self.slot, self.pages, self.num_computed = slot, pages, cached_tokens
        if self.activation is not None:
            self.slot, self.dormant = None, slot
            self.activate()
        self.passed_since, self.held_by = None, None
        self.state = State.RUNNING

    def advance(self, tokens: int) -> None:
        """``tokens`` more are being processed; if that reaches the end, a new token is on its way."""
        self.num_computed += tokens
        if not self.remaining:
            self.token_ids.append(0)
            self.pending += 1

    def resume(self, token_ids: list[int], *, finished: bool) -> None:
        """Before it is queued: another host has generated these tokens, as if it had been pre-empted there."""
        for token_id in token_ids:
            self.detokenizer.append(token_id)
            if self.masks is not None:
                self.masks.take(token_id)
        self.token_ids += token_ids
        if self.request.sampling.penalises:
            self.output_counts.update(token_ids)
        if finished:
            self.state = State.FINISHED
        elif token_ids and self.masks is not None:
            self.masks.begin_mask()

    def was_read(self) -> None:
        """The prompt's hidden states are being read as far as they are computed."""
        self.read_from = max(self.read_from, self.num_computed)

    def retract(self) -> None:
        """The token on its way was not chosen after all; its last token is to be processed again."""
        self.token_ids.pop()
        self.pending -= 1
        self.num_computed -= 1

    def resolve(self, token_id: int) -> None:
        """The oldest pending token has arrived."""
        self.token_ids[len(self.token_ids) - self.pending] = token_id
        self.pending -= 1
        if self.request.sampling.penalises:
            self.output_counts[token_id] += 1

    def sampling_row(self) -> SamplingRow:
        params = self.request.sampling
        seed = params.seed if params.seed is not None else zlib.crc32(self.request.request_id.encode())
        prompt = frozenset(self.request.prompt_token_ids) if params.repetition_penalty != 1.0 else frozenset()
        # Choices of one request must differ, and a seed may be any unsigned 64-bit number.
        mixed = (seed + self.choice * 0x9E3779B97F4A7C15) % (1 << 64)
        signed = mixed - (1 << 64) if mixed >= 1 << 63 else mixed
        suppressed = self.parent.ending_tokens if self.num_output < params.min_tokens else ()
        return SamplingRow(params, signed, self.num_output, prompt, self.output_counts, suppressed=suppressed)


@dataclass(slots=True)  # not frozen: one is made for every token, and that would cost three times as much
class Chunk:
    """``tokens`` tokens of ``sequence`` to process this step, from ``sequence.num_computed`` on."""

    sequence: Sequence
    tokens: int

    @property
    def samples(self) -> bool:
        """Whether the chunk reaches the sequence's end, so that its last row yields a token."""
        return self.tokens == self.sequence.remaining


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
