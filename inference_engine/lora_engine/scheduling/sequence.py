"""A request inside the engine, and each of its choices as a sequence of tokens."""

from __future__ import annotations

import math
import sys
import zlib
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.embedding_pages import AdapterEmbeddingLayer
from lora_engine.memory import Activation, PrefixKey
from lora_engine.request import GenerationRequest, PoolingKind, PreemptionSpan, RequestUsage
from lora_engine.sampling import SamplingRow
from lora_engine.structured import TokenMasks
from lora_engine.text import IncrementalDetokenizer, Tokenizer

_NEVER = sys.maxsize
Drafts = tuple[int, ...]


class State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


# Maximum number of pre-emptions of a request that its usage lists one by one.
MAX_SPANS = 16


class Outcome(Enum):
    """The result of an attempt to let a waiting sequence run."""

    STARTED = "started"
    LOADING = "loading"  # its adapter is being loaded; others may pass
    BUSY = "busy"  # pre-empted while its last token is still on the device; others may pass
    NO_ROOM = "no room"  # no pages for it or its adapter; the queue policy decides which others may pass
    FULL = "full"  # no tokens or batch slots are left in this step: stop
    FAILED = "failed"  # it can never run, and leaves the queue after this step


@dataclass(slots=True)
class RequestState:
    """The state shared by a request's choices. Times are in seconds of the engine's monotonic clock; None = not yet."""

    request: GenerationRequest
    submitted: float
    sequences: list[Sequence] = field(default_factory=list)
    unfinished: int = 0  # number of sequences, once it is queued
    ended: bool = False
    device_s: float = 0.0  # its share of the device time, in seconds
    ending_tokens: frozenset[int] = frozenset()  # tokens that end its answers
    vocab_needed: int = 0  # vocabulary size that its adapter must have, if it uses tokens that the base lacks
    predicted_first_token: float | None = None  # seconds from submission, predicted on arrival
    first_scheduled: float | None = None
    first_token: float | None = None
    adapter_wait_started: float | None = None
    adapter_wait: float = 0.0
    usage: RequestUsage = field(init=False)

    def __post_init__(self) -> None:
        request = self.request
        prompt_tokens = len(request.prompt_token_ids) + sum(map(len, request.more_prompts))
        self.usage = RequestUsage(request.request_id, request.tenant, request.adapter_digest, prompt_tokens)

    @property
    def loads_from_disk(self) -> bool:
        return self.usage.adapter_loaded_from == "disk"

    @property
    def due(self) -> float:
        """Time at which the first token is due, in seconds of the engine's clock; infinite without a target."""
        slo = self.request.slo
        targets = [ms for ms in (slo.first_token_ms, slo.deadline_ms) if ms]
        return self.submitted + min(targets) / 1000 if targets else math.inf

    @property
    def deadline(self) -> float:
        """Time after which the answer is of no use; infinite without a deadline."""
        ms = self.request.slo.deadline_ms
        return self.submitted + ms / 1000 if ms else math.inf

    def adapter_arrived(self, now: float) -> None:
        """Record the wait for the adapter, before the first token or at the end without one."""
        if self.adapter_wait_started is not None:
            self.adapter_wait = now - self.adapter_wait_started

    def complete_usage(self, now: float) -> None:
        """Fill in the usage that follows from the times of a request that ends ``now``."""
        usage = self.usage
        for sequence in self.sequences:
            self.was_preempted(sequence, now)
        usage.device_us = round(self.device_s * 1e6)
        if self.first_scheduled is None:
            self.adapter_arrived(now)
        waited_until = self.first_scheduled if self.first_scheduled is not None else now
        usage.adapter_load_ms = _ms(self.adapter_wait)
        usage.queue_ms = max(0, _ms(waited_until - self.submitted) - usage.adapter_load_ms)
        if self.first_token is not None:
            usage.first_token_ms = _ms(self.first_token - self.submitted)
            usage.prefill_ms = _ms(self.first_token - waited_until)
            usage.decode_ms = _ms(now - self.first_token)

    def was_preempted(self, sequence: Sequence, until: float) -> None:
        """Count a choice's pre-emption that ends now, at ``until``, if there is one."""
        if sequence.preempted_at is None:
            return
        lost_ms = _ms(until - sequence.preempted_at)
        self.usage.preempted_ms += lost_ms
        if len(self.usage.preemption_spans) < MAX_SPANS:
            at_ms = _ms(sequence.preempted_at - self.submitted)
            self.usage.preemption_spans.append(PreemptionSpan(at_ms, lost_ms))
        sequence.preempted_at = None


@dataclass(slots=True, eq=False)
class Sequence:
    """A choice of a request: its tokens, how many of them are in the KV cache, and in which pages.

    ``num_computed`` tokens have their keys and values in ``pages``; the rest are to be processed. A running sequence
    decodes when exactly one token is left to process.

    The last ``pending`` entries of ``token_ids`` are placeholders of tokens that the device computes and the host has
    not seen yet.
    """

    request_state: RequestState
    choice: int
    arrival: int
    token_ids: list[int]
    max_tokens: int  # limit of generated tokens
    detokenizer: IncrementalDetokenizer
    prompt_apart: bool = False  # the prompt's tokens are computed and shared apart from generated ones
    state: State = State.WAITING
    num_computed: int = 0
    pending: int = 0
    pages: list[int] = field(default_factory=list)
    state_pages: list[int] = field(default_factory=list)  # recurrent state, of a running sequence of such a model
    replays: int = 0  # accepted drafts, of the last step, that the recurrent state does not have yet
    draft_slot: int | None = None  # place of its drafts' inputs in recurrent layers
    snapshots_at: tuple[int, ...] = ()  # numbers of computed tokens at which its state is copied, in order
    slot: AdapterSlot | None = None  # adapter of its next tokens
    dormant: AdapterSlot | None = None  # acquired adapter that acts from ``activation`` on
    activation: Activation | None = None
    charged: int = 0  # leading tokens whose processing its tenant has been charged for
    passed_since: float | None = None  # time since which others have passed it although it was first
    last_outcome: Outcome | None = None  # why it did not run when it was last tried
    preempted_at: float | None = None  # time since which it waits to run again
    read_from: int = 0  # first prompt token whose hidden state is still to be read
    read_until: int = 0  # end of these tokens; 0 = the request reads no hidden states
    pooled: object = None  # sum of the hidden states read so far, on the device
    output_counts: Counter[int] = field(default_factory=Counter)
    masks: TokenMasks | None = field(init=False)  # set if a grammar constrains the answer
    num_prompt: int = field(init=False)
    longest: int = field(init=False)  # limit of prompt and output tokens together
    seed: int = field(init=False)  # of the choice's randomness, a signed 64-bit number
    penalised_prompt: frozenset[int] = field(init=False)  # tokens of the prompt, if a penalty needs them

    def __post_init__(self) -> None:
        self.num_prompt = len(self.token_ids)
        self.longest = self.num_prompt + self.max_tokens
        sampling = self.request.sampling
        seed = sampling.seed if sampling.seed is not None else zlib.crc32(self.request.request_id.encode())
        # Choices of one request must differ, and a seed may be any unsigned 64-bit number.
        mixed = (seed + self.choice * 0x9E3779B97F4A7C15) % (1 << 64)
        self.seed = mixed - (1 << 64) if mixed >= 1 << 63 else mixed
        penalised = sampling.repetition_penalty != 1.0
        self.penalised_prompt = frozenset(self.request.prompt_token_ids) if penalised else frozenset()
        if (pooling := self.request.pooling) is not None:
            self.read_from = self.num_prompt - 1 if pooling.kind is PoolingKind.LAST else 0
            self.read_until = self.num_prompt
        elif self.request.prompt_logprobs is not None and self.choice == 0:
            self.read_until = self.num_prompt
        grammar = self.request_state.request.grammar
        self.masks = None if grammar is None else grammar.start()

    @property
    def request(self) -> GenerationRequest:
        return self.request_state.request

    @property
    def prompt(self) -> list[int]:
        return self.token_ids[: self.num_prompt]

    @property
    def num_output(self) -> int:
        """Number of tokens generated so far, including those still on the device."""
        return len(self.token_ids) - self.num_prompt

    @property
    def ends_by_length(self) -> bool:
        """True if known and pending tokens reach the limit, so that nothing is left to schedule."""
        return len(self.token_ids) >= self.longest

    @property
    def remaining(self) -> int:
        """Number of tokens whose keys and values are still to be computed."""
        return len(self.token_ids) - self.num_computed

    @property
    def chunkable(self) -> int:
        """Number of tokens that its next chunk may have at most."""
        prompt = self.num_prompt - self.num_computed
        tokens = prompt if self.prompt_apart and prompt > 0 else self.remaining
        for at in self.snapshots_at:
            if at > self.num_computed:
                tokens = min(tokens, at - self.num_computed)
                break
        if self.dormant is None or self.activation is None:
            return tokens
        return min(tokens, self.activation.at - self.num_computed)

    def may_end_chunk(self, at: int, boundary: int) -> bool:
        """Return whether a chunk of the prompt may end at ``at`` for any step's budget.

        Boundaries are multiples of ``boundary`` tokens, counted from where its adapter begins to act.
        """
        start = self.activation.at if self.activation is not None and self.activation.at < at else 0
        return (at - start) % boundary == 0

    def whole_chunk(self, tokens: int, boundary: int) -> int:
        """Return how many of its next ``tokens``, at most ``chunkable``, fill chunks of a prompt up to a boundary."""
        end = self.num_computed + tokens
        if boundary == 1 or end >= self.num_prompt or (self.activation is not None and end == self.activation.at):
            return tokens
        start = self.activation.at if self.activation is not None and self.activation.at < end else 0
        return (end - start) // boundary * boundary + start - self.num_computed

    @property
    def reads_prompt(self) -> bool:
        """True if hidden states of its prompt are still to be read."""
        return self.read_from < self.read_until

    @property
    def shareable(self) -> list[int]:
        """Tokens whose keys and values may come from the prefix cache, and one more."""
        if self.reads_prompt:
            return self.token_ids[: self.read_from + 1]
        return self.token_ids[: self.num_prompt + 1] if self.prompt_apart else self.token_ids

    @property
    def cacheable(self) -> int:
        """Number of leading tokens, computed and known, whose keys and values others may share."""
        known = min(self.num_computed, len(self.token_ids) - self.pending)
        return min(known, self.num_prompt) if self.prompt_apart else known

    @property
    def awaits_mask(self) -> bool:
        """True if the mask of its next token is not ready although all its tokens are known.

        A recurrent state cannot be taken back by a token. With one, the step waits for the token before, too.
        """
        if self.masks is None or (self.pending and not self.state_pages):
            return False
        return self.pending > 0 or not self.masks.ready

    @property
    def runs_ahead(self) -> bool:
        """True if its next step may be launched before the last token is known."""
        return self.masks is None or not self.state_pages

    @property
    def embedding(self) -> AdapterEmbeddingLayer | None:
        """Embedding layer of its adapter, if it has one."""
        return None if self.slot is None else self.slot.embedding

    @property
    def head(self) -> AdapterEmbeddingLayer | None:
        return None if self.slot is None else self.slot.head

    @property
    def prefix_key(self) -> PrefixKey:
        """Key of the cached keys and values that it may use: tenant, adapter and salt.

        With an adapter that acts from a token on, the key is the base model's; ``activation`` separates the rest.
        """
        digest = self.request.adapter_digest if self.activation is None else ""
        return self.request.tenant, digest, self.request.cache_salt

    def __lt__(self, other: Sequence) -> bool:
        return self.arrival < other.arrival

    @property
    def due(self) -> float:
        return self.request_state.due

    def find_activation(self, slot: AdapterSlot) -> None:
        """Set where its adapter begins to act: at the last invocation in the prompt, or nowhere if there is none."""
        if self.activation is None and slot.invocation_tokens:
            prompt, tokens = self.prompt, [*slot.invocation_tokens]
            starts = range(self.num_prompt - len(tokens), -1, -1)
            matches = (at for at in starts if prompt[at] == tokens[0] and prompt[at : at + len(tokens)] == tokens)
            self.activation = Activation(next(matches, _NEVER), slot.digest)

    def activate(self) -> bool:
        """Switch to the adapter if all tokens before its activation are computed; returns whether it did."""
        if self.activation is None or self.num_computed < self.activation.at:
            return False
        self.slot, self.dormant = self.dormant, None
        return True

    def start(self, slot: AdapterSlot | None, pages: list[int], cached_tokens: int, now: float) -> None:
        """Begin to run, with ``cached_tokens`` already computed in ``pages``."""
        request_state = self.request_state
        if request_state.first_scheduled is None:
            request_state.adapter_arrived(now)
            request_state.first_scheduled = now
            # An answer that is resumed here may have cached tokens beyond its prompt.
            request_state.usage.cached_prompt_tokens = min(cached_tokens, self.num_prompt)
        request_state.adapter_wait_started = None  # a later wait, after pre-emption, is not a wait for the first token
        request_state.was_preempted(self, now)
        self.slot, self.pages, self.num_computed = slot, pages, cached_tokens
        if self.activation is not None:
            self.slot, self.dormant = None, slot
            self.activate()
        self.passed_since, self.last_outcome = None, None
        self.state = State.RUNNING

    def advance(self, tokens: int) -> None:
        """Count ``tokens`` more as processed; at the end of the known tokens a new one is pending."""
        self.num_computed += tokens
        self.replays = 0
        if not self.remaining:
            self.token_ids.append(0)
            self.pending += 1

    def resume(self, token_ids: list[int], *, finished: bool) -> None:
        """Append tokens that another host has generated, before the sequence is queued."""
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
        """Record that the prompt's hidden states are read as far as they are computed."""
        self.read_from = max(self.read_from, self.num_computed)

    def retract(self) -> None:
        """Withdraw the pending token, which was not sampled; the last token is processed again."""
        self.token_ids.pop()
        self.pending -= 1
        self.num_computed -= 1

    def resolve(self, token_id: int) -> None:
        """Set the oldest pending token; without one, append a token that follows an accepted draft.

        The draft's step computed the keys and values of the token before.
        """
        if self.pending:
            self.token_ids[len(self.token_ids) - self.pending] = token_id
            self.pending -= 1
        else:
            self.token_ids.append(token_id)
            self.num_computed += 1
            self.replays += 1 if self.state_pages else 0
        if self.request.sampling.penalises:
            self.output_counts[token_id] += 1

    def sampling_row(self, drafts: Drafts = ()) -> SamplingRow:
        """Return the state with which the token after ``drafts`` is sampled."""
        sampling = self.request_state.request.sampling
        position = len(self.token_ids) - self.num_prompt + len(drafts)
        suppressed = self.request_state.ending_tokens if position < sampling.min_tokens else ()
        counts = self.output_counts + Counter(drafts) if drafts and sampling.penalises else self.output_counts
        return SamplingRow(sampling, self.seed, position, self.penalised_prompt, counts, suppressed=suppressed)


@dataclass(slots=True)  # not frozen: one is made for every token, and that would take three times as long
class Chunk:
    """A part of a step: ``tokens`` tokens of ``sequence`` to process, from ``sequence.num_computed`` on.

    The last of them may be ``drafts``, guesses of what follows the sequence's last token (`speculation.py`); negative
    ones refer to tokens that a draft head left on the device.
    """

    sequence: Sequence
    tokens: int
    drafts: Drafts = ()

    @property
    def known(self) -> int:
        """Number of its tokens that belong to the sequence."""
        return self.tokens - len(self.drafts)

    @property
    def has_unseen_drafts(self) -> bool:
        """True if some drafts are references to tokens that only the device knows."""
        return bool(self.drafts) and min(self.drafts) < 0

    @property
    def samples(self) -> bool:
        """True if the chunk reaches the sequence's end, so that its last row yields a token."""
        return self.tokens - len(self.drafts) == self.sequence.remaining

    @property
    def sampling_rows(self) -> list[SamplingRow]:
        """The state of each row of a chunk that samples: of the last known token's, and of each draft's."""
        return [self.sequence.sampling_row(self.drafts[:count]) for count in range(len(self.drafts) + 1)]

    @property
    def num_sampled(self) -> int:
        """Number of rows that are sampled, the chunk's last ones."""
        return 1 + len(self.drafts) if self.samples else 0

    @property
    def token_ids(self) -> list[int]:
        computed = self.sequence.num_computed
        return [*self.sequence.token_ids[computed : computed + self.known], *self.drafts]


def detokenizer_for(request: GenerationRequest, tokenizer: Tokenizer) -> IncrementalDetokenizer:
    """Return a detokenizer for one choice of the request's answer."""
    sampling = request.sampling
    return IncrementalDetokenizer(
        tokenizer,
        sampling.stop,
        sampling.include_stop,
        continues_text=request.continues_text,
        min_tokens=sampling.min_tokens,
        shown=tokenizer.special_ids if sampling.keep_special_tokens else request.shown_special_ids,
    )


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
