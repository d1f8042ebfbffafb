"""The engine: requests in, tokens out. ``Engine.step`` shows the whole course of a step."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from lora_engine.execution.device_time import DeviceTime
from lora_engine.execution.head_drafter import HeadDrafter
from lora_engine.execution.prompt_reads import is_finite
from lora_engine.execution.row_runner import RowRunner
from lora_engine.execution.runner import InFlight, Launched, Runner, Sampled, StepMirror, of_answer, one_token
from lora_engine.wire.versions import WIRE_VERSION
from lora_kernels.fp8_tensors import FP8
from lora_kernels.sampling_parameters import OVERFLOWED
from lora_kernels.state_pages import CHUNK
from lorikeet_version import build_version

from .adapters.device_copies import InlineCopies, StreamCopies
from .adapters.device_table import DeviceTable
from .adapters.device_tier import DeviceAdapter, DeviceMirror
from .adapters.dtypes import content_of
from .adapters.expert_policy import ExpertReport
from .adapters.layout import PackedAdapter, TargetShapes
from .adapters.load_times import LoadTime
from .adapters.source import AdapterSource
from .config import EngineConfig
from .errors import RequestError
from .memory import PageKind, PageMap, PageOwner, PagePool, PoolStats, page_map
from .model.config import ModelConfig
from .model.loading import LoadedModel, load_model
from .model.transformer import Transformer
from .peft_format import is_combined
from .peft_format.embedding_layers import MAX_NEW_TOKENS
from .request import (
    MAX_TOP_LOGPROBS,
    Embedding,
    GenerationRequest,
    PinnedPrefix,
    PinState,
    PromptLogprobs,
    RequestFinished,
    StepOutput,
    TokenDelta,
    TokenLogprob,
)
from .scheduling.core import SchedulingCore
from .scheduling.merge_policies import MergeReport
from .scheduling.merged_adapter import MergeableWeights
from .scheduling.prefill_budget import PrefillBudgetReport
from .scheduling.scheduler import StepPlan, too_large_for_host
from .scheduling.scheduler_stats import QueueReport, WaitingRequest
from .scheduling.sequence import RequestState, Sequence, State, detokenizer_for
from .scheduling.speculation import speculation_of
from .structured import Grammars, TokenMasks
from .text import Tokenizer

log = logging.getLogger(__name__)

# Seconds that a step waits for masks of constrained answers while the device is idle. While the device computes, the
# limit is a third of a step's time; the rest is for planning the next step. A mask that takes longer is used in a later
# step, so that a slow one delays only its answer. Waiting for as long as planning allows was tried on a GPU: fewer rows
# are deferred, but the device idles more often (docs/LOG.md).
_MASK_PATIENCE_S = 0.002
# Seconds between checks for masks.
_MASK_POLL_S = 0.00005
# Seconds that a step without a row to run waits for a mask of the deferred sequences.
_DEFERRED_WAIT_S = 0.005
# Maximum count of numbers in all vectors of one request: 32 MiB.
_MAX_NUMBERS = 1 << 23
# Tenants in one status; the waiting requests of others are available by query.
_REPORTED_TENANTS = 100


class Mirror(DeviceMirror, StepMirror, Protocol):
    """The other ranks of a tensor-parallel group, which repeat this rank's operations on their devices."""

    def mergeable(self, model: Transformer) -> MergeableWeights:
        """Return the merged weights of all ranks as one object."""

    def weight_norms(self, layer: int) -> None:
        """Make the other ranks take part in ``Parallel.sums`` of their squared norms."""


@dataclass(slots=True)
class _ArrivedToken:
    """A sampled token that its sequence has."""

    sequence: Sequence
    token: int
    logprob: TokenLogprob | None
    is_first: bool  # of its sequence in the step
    text: str | None = None  # None: not detokenised yet
    reason: str = ""  # why the answer ends with it; empty if it goes on


class Engine:
    """An engine for one base model with its page pool, and for the requests of all its adapters.

    It is not thread-safe: one thread calls all methods but the constructor.
    """

    def __init__(
        self,
        config: EngineConfig,
        source: AdapterSource,
        loaded: LoadedModel | None = None,
        clock: Callable[[], float] = time.monotonic,
        mirror: Mirror | None = None,
        runner: Runner | None = None,
    ) -> None:
        """Create an engine; ``mirror`` is the other tensor-parallel ranks if this is rank 0 of several."""
        self.config = config
        self._mirror = mirror
        self.source = source
        self.loaded = loaded or load_model(config)
        self.pool: PagePool = self.loaded.pool
        boundary = CHUNK if self.loaded.model.ops.invariant and self.pool.geometry.state_pages else 1
        # Fewest tokens of a prefix that can be pinned: a page; where states are kept at fixed tokens only, up to the
        # first of those that ends a page, and a page behind it.
        page = self.pool.geometry.page_tokens
        self.least_pinned_tokens = page if boundary == 1 else math.lcm(page, boundary) + page
        head = self.loaded.draft_head
        self._head = None if head is None else HeadDrafter(head, lambda: self.runner.device_drafts)
        self.core = SchedulingCore(
            config,
            source,
            self.pool,
            self.loaded.targets.shapes,
            clock=clock,
            copies=StreamCopies(self.pool.data.device) if self.pool.data.is_cuda else InlineCopies(),
            on_end=self._report_end,
            table=DeviceTable(self.loaded.tables, self.loaded.model.shape.targets)
            if self.loaded.tables is not None
            else None,
            merged_weights=self._merged_weights(),
            mirror=mirror,
            speculation=speculation_of(config, self._head),
            prompt_boundary=boundary,
        )
        self.runner = runner or build_runner(config, self.loaded, mirror)
        self.runner.drafting = None if self._head is None else self.core.may_draft
        self.grammars = Grammars(self.tokenizer, self.model_config.vocab_size)
        self.steps = 0
        self.device_time = DeviceTime()
        self._clock = clock
        self._ended: list[RequestFinished] = []
        self._in_flight: InFlight | None = None
        self._arrived: list[_ArrivedToken] = []  # tokens that sequences have, and that are not delivered yet
        self._step_s = 0.0  # device time of the last step

    # The life of a step, on one screen.

    def step(self) -> StepOutput:
        """Schedule, launch, commit: a token for every running sequence, and more where drafts foresaw them.

        On a GPU the committed tokens are those of the previous step: while the device computes this step, the host
        commits them, and schedules the next step without waiting. For constrained answers those tokens determine which
        ones this step may sample. Where this step needs them, they are received before it, and delivered after it is
        launched.
        """
        self.steps += 1
        output = StepOutput(self.steps)
        if not self._may_overlap():
            self._receive(output)
        launched = self._launch(self.core.schedule())
        self._commit(output)
        self._in_flight = self._sample(launched) if isinstance(launched, Launched) else launched
        if not self.runner.overlaps:
            self._commit(output)
        output.finished, self._ended = self._ended, []
        return output

    def add_request(self, request: GenerationRequest) -> None:
        """Queue a request. Raises ``RequestError``; the engine keeps nothing of a refused request."""
        max_tokens = self._check(request)
        largest = request.largest_token_id
        request_state = RequestState(
            request,
            self._clock(),
            ending_tokens=self._ending_tokens(request),
            vocab_needed=largest + 1 if largest >= self.model_config.vocab_size else 0,
        )
        request_state.usage.submitted_unix = time.time()
        self.core.add(request_state, max_tokens, lambda: detokenizer_for(request, self.tokenizer))

    def abort(self, request_id: str) -> None:
        """End a request early; its ``RequestFinished`` comes with the next step. Unknown ids are ignored."""
        if request_state := self.core.requests.get(request_id):
            self.core.end(request_state, "aborted")

    def has_work(self) -> bool:
        return bool(self.core.requests or self._ended or self._in_flight)

    def use_idle_time(self) -> bool:
        """Do a part of the work that the start deferred, between steps; returns False once nothing is left."""
        return self.core.scheduler.bring_pinned() or self.runner.capture_next()

    def free_host_memory(self) -> bool:
        """Let go of adapters that left host memory, between steps; returns whether to call again in milliseconds."""
        return self.core.device_tier.free_host_memory()

    @property
    def failure(self) -> str:
        """Reason why this process should end after its requests; empty if there is none."""
        return self.runner.failure

    def drop_adapter(self, digest: str) -> bool:
        """Free an adapter's pages and return whether it was on the device; one in use stays until its requests end."""
        return self.core.drop_adapter(digest)

    def pin_adapters(self, digests: Iterable[str]) -> list[str]:
        """Pin exactly these adapters on the device, in this order, up to a quarter of the pool.

        Returns those on the device now; others follow when they are in host memory and there is room.
        """
        return self.core.pin_adapters(digests)

    def pinned_adapters(self) -> list[str]:
        """Return the pinned adapters that are on the device."""
        return self.core.scheduler.pinned.kept()

    def pin_prefixes(self, prefixes: Iterable[PinnedPrefix]) -> dict[str, PinState]:
        """Pin exactly these prefixes in the KV cache, in this order, and return the state of each by name.

        They share a quarter of the pool with pinned adapters. A missing prefix is pinned once a request with its name
        as ``pin`` has computed it.
        """
        return self.core.pin_prefixes(prefixes)

    def pinned_prefixes(self) -> dict[str, PinState]:
        """Return the state of each pinned prefix by name."""
        return self.core.scheduler.pinned_prefixes.states()

    # State and reports for the server.

    @property
    def tokenizer(self) -> Tokenizer:
        return self.loaded.tokenizer

    @property
    def model_config(self) -> ModelConfig:
        return self.loaded.model.config

    @property
    def targets(self) -> TargetShapes:
        return self.loaded.targets

    @property
    def max_context(self) -> int:
        return self.loaded.max_context

    @property
    def num_running(self) -> int:
        return len(self.core.scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self.core.queue)

    def pool_stats(self) -> PoolStats:
        return self.core.allocator.stats()

    def prefix_tokens(self) -> int | None:
        """Return the number of tokens in the prefix cache; None if it is off."""
        prefixes = self.core.prefixes
        return len(prefixes) * self.config.page_tokens if prefixes.enabled else None

    def queue_report(self) -> QueueReport:
        """Return the tenants' shares, and the results of the admission policy."""
        return self.core.stats.report(self.core.admission.refused, _REPORTED_TENANTS)

    def merge_report(self) -> MergeReport:
        return self.core.merged.report

    def prefill_budget_report(self) -> PrefillBudgetReport:
        """Return the limits of prefill that protect objectives for the time between tokens."""
        return self.core.scheduler.prefill_budget.report

    def waiting_requests(self, tenant: str, limit: int) -> list[WaitingRequest]:
        """Return waiting requests, each with its reason; of one tenant, or of all if ``tenant`` is ``""``."""
        return self.core.stats.waiting(tenant, limit)

    def page_map(self) -> PageMap:
        """Return the owner of each page of the pool; takes time in proportion to the pages, too long for every step."""
        core, now = self.core, self._clock()
        prefixes = (
            (PageOwner(PageKind.CACHED_PREFIX, tenant, digest, pinned=pinned), pages)
            for (tenant, digest, _salt), pinned, pages in core.prefixes.by_key()
        )
        running = ((_owner_of(sequence, now), sequence.pages) for sequence in core.scheduler.running)
        states = (
            (replace(_owner_of(sequence, now), kind=PageKind.STATE), sequence.state_pages)
            for sequence in core.scheduler.running
            if sequence.state_pages
        )
        adapters = (
            (PageOwner(PageKind.ADAPTER, "", slot.digest, now - slot.last_used, slot.pinned), slot.pages)
            for slot in core.device_tier.slots()
        )
        return page_map(core.allocator, itertools.chain(prefixes, running, states, adapters))

    def device_adapters(self) -> list[DeviceAdapter]:
        return self.core.device_tier.report()

    @property
    def device_load_time(self) -> LoadTime:
        """Time that adapters take from host memory to the device."""
        return self.core.device_tier.load_times.now

    def weight_norms(self, layer: int) -> list[float]:
        """Return the squared norms of a layer's matrices, by target group."""
        if self._mirror is not None:
            self._mirror.weight_norms(layer)
        model = self.loaded.model
        return model.parallel.sums(model.weights.layers[layer].norms(), model.device)

    def expert_report(self) -> ExpertReport | None:
        """Return which experts of adapters are in the pool; None for a model without experts."""
        experts = self.core.device_tier.experts
        if self.model_config.experts is None:
            return None
        return ExpertReport(self.config.expert_residency) if experts is None else experts.report()

    def describe(self) -> dict[str, str | int]:
        """Return settings and sizes by their names on the wire, for the host's description and the log of the start."""
        geometry = self.pool.geometry
        return {
            "engine_version": build_version(),
            "wire_version": WIRE_VERSION,
            "base_model": self.loaded.name,
            "base_digest": self.loaded.digest,
            "model_family": self.model_config.family.model_type,
            "device": self.loaded.device_name,
            "dtype": str(self.pool.data.dtype).removeprefix("torch."),
            "fp8_matrices": self.loaded.model.weights.num_quantised(),
            "kv_dtype": str(self.pool.kv.dtype).removeprefix("torch."),
            "adapter_dtype": str(FP8 if self.loaded.fp8_adapters else self.pool.data.dtype).removeprefix("torch."),
            "max_context": self.max_context,
            "max_running": self.config.max_running,
            "max_lora_rank": self.config.max_lora_rank,
            "page_tokens": geometry.page_tokens,
            "page_bytes": geometry.page_bytes(self.pool.data.dtype),
            "pages_total": self.pool.num_pages,
            "order": self.config.order,
            "admission": self.config.admission,
            "mode": self.core.merge_policy.name,
            "expert_residency": self.config.expert_residency,
            "speculation": self.config.speculation if self.core.scheduler.speculation is not None else "off",
            "deterministic": str(self.config.deterministic).lower(),
        }

    # The parts of a step.

    def _merged_weights(self) -> MergeableWeights | None:
        if not self.config.merges or self._mirror is None:
            return self.loaded.model.merged
        return self._mirror.mergeable(self.loaded.model)

    def _may_overlap(self) -> bool:
        """Return whether the next step can be planned before the tokens of the last one are known.

        After drafts it is not known how many tokens there are, and drafts follow the last token.
        """
        if self.core.awaits_drafts or (self._in_flight is not None and self._in_flight.drafts):
            return False
        return not any(sequence.request.sampling.penalises for sequence in self.core.scheduler.running)

    def _launch(self, plan: StepPlan) -> InFlight | Launched | None:
        """Launch a step on the device, and its sampling too unless some answer is constrained."""
        if not plan.chunks:
            self._wait_if_all_deferred()
            return None
        launched_at = self._clock()
        try:
            applied = self.core.choose_merged(plan)
            self._begin_masks_of_drafts(plan)
            launched = self.runner.launch(plan.chunks.values(), self.core.merged.slot, reads_prompts=bool(plan.reads))
            in_flight = None if launched.is_constrained else self.runner.sample(launched)
        except Exception as error:
            log.exception("a step of %d sequences could not be launched", len(plan.chunks))
            self._fail(plan.chunks, error)
            return None
        self.device_time.launched(plan.chunks.values(), launched_at)
        self.core.launched(plan, applied)
        return in_flight or launched

    def _begin_masks_of_drafts(self, plan: StepPlan) -> None:
        """Start the masks of the rows of drafts, which are computed while the step runs."""
        if self.core.scheduler.speculation is not None:
            chunks = plan.chunks.values()
            self.grammars.begin_masks_of_drafts(
                (masks, chunk.drafts)
                for chunk in chunks
                if chunk.drafts and (masks := chunk.sequence.masks) is not None
            )

    def _sample(self, launched: Launched) -> InFlight | None:
        """Sample a step's tokens among those that the answers' constraints allow."""
        try:
            return self.runner.sample(launched, self._bring_masks(launched))
        except Exception as error:
            log.exception("the tokens of a step could not be sampled")
            self.device_time.ended(self._clock())
            self._fail(list(self.core.scheduler.running), error)
            self.core.step_failed()
            return None

    def _bring_masks(self, launched: Launched) -> set[Sequence]:
        """Set the rows' masks, and defer and return the sequences whose mask is not ready in time.

        Drafts whose masks are not ready count as rejected.
        """
        constrained, began = launched.constrained, time.monotonic()
        for sequence, rows in constrained.items():
            while self._lacks_masks(sequence, len(rows)) and self._is_patient(began, launched):
                time.sleep(_MASK_POLL_S)  # releases the interpreter lock for the threads
        deferred = set()
        for sequence, rows in constrained.items():
            masks = sequence.masks
            if masks is None or sequence.state is State.FINISHED:  # another choice of its request failed just now
                continue
            if not masks.ready:
                masks.was_late()
                self.core.defer(sequence)
                deferred.add(sequence)
                continue
            try:
                rows[0].mask = masks.mask
            except RequestError as error:
                self.core.end(sequence.request_state, "failed", error)
            if drafts := launched.drafts.get(sequence):
                ahead = [] if masks.lookahead is None else masks.lookahead.masks_after(drafts)
                for row, mask in zip(rows[1:], ahead, strict=False):
                    row.mask = mask
                launched.drafts[sequence] = drafts[: len(ahead)]
        return deferred

    def _lacks_masks(self, sequence: Sequence, rows: int) -> bool:
        """Return whether a mask of a sequence's rows is not ready, but may be soon."""
        masks = sequence.masks
        if masks is None or masks.are_slow:
            return False
        return not masks.ready or (rows > 1 and masks.lookahead is not None and masks.lookahead.is_busy)

    def _is_patient(self, began: float, launched: Launched) -> bool:
        """Return whether to wait longer for masks."""
        waited = time.monotonic() - began
        return waited < _MASK_PATIENCE_S or (waited < self._step_s / 3 and launched.is_computing)

    def _wait_if_all_deferred(self) -> None:
        """Wait briefly for a mask if all running sequences are deferred."""
        if self._in_flight is None:
            until = time.monotonic() + _DEFERRED_WAIT_S
            pending = [sequence.masks for sequence in self.core.scheduler.running if sequence.masks is not None]
            while pending and not any(masks.ready for masks in pending) and time.monotonic() < until:
                time.sleep(_MASK_POLL_S)

    def _commit(self, output: StepOutput) -> None:
        """Receive the tokens of the step in flight, unless that is done, and deliver them."""
        self._receive(output)
        arrived, self._arrived = self._arrived, []
        for token in arrived:
            delta = self._token_delta(token)
            if token.is_first:
                output.deltas.append(delta)
            else:
                output.deltas[-1].append(delta)  # rows of a sequence are adjacent

    def _receive(self, output: StepOutput) -> None:
        """Give the sequences the tokens of the step in flight, except those that ended meanwhile.

        The device may wait for the next step, whose plan needs to know only which sequences go on. So the text of a
        token follows in ``_commit``, unless it may end the answer.
        """
        launched, self._in_flight = self._in_flight, None
        if launched is None:
            return
        try:
            sampled, reads = launched.collect(), launched.collect_reads()
        except Exception as error:
            log.exception("a step failed on the device")
            self.device_time.ended(self._clock())
            self._fail(list(self.core.scheduler.running), error)
            self.core.step_failed()
            return
        now = self._clock()
        self._step_s = self.device_time.ended(now)
        self.core.measured(self._step_s)
        output.deltas += self._prompt_deltas(reads)
        complete = self._begin_masks(sampled)  # first, so that slow masks are computed during the rest
        kept: dict[Sequence, int] = {}  # tokens
        for sequence, token, logprob in sampled:
            if token == OVERFLOWED:
                self._overflowed(sequence)
            count = kept.get(sequence, 0)
            if sequence.state is State.FINISHED or (count and sequence.state is not State.RUNNING):
                continue  # a pre-empted sequence takes a step's first token only: it has no place for more
            self.core.token_arrived(sequence, token, now)
            arrived = _ArrivedToken(sequence, token, logprob, is_first=not count)
            self._end_if_last(arrived, complete=complete.get(sequence) == count + 1)
            self._arrived.append(arrived)
            kept[sequence] = count + 1
        self._draft(launched, kept)

    def _draft(self, launched: InFlight, kept: Mapping[Sequence, int]) -> None:
        """Guess the next tokens after a step; a draft head that fails ends drafting, not requests."""
        drafted = {sequence: len(drafts) for sequence, drafts in launched.drafts.items()}
        self.core.count_drafts(kept, drafted)
        try:
            if self._head is not None and launched.hidden is not None:
                self._head.observe(launched.hidden, kept)
            self.core.guess(kept, drafted)
        except Exception:
            log.exception("speculation failed, and is off until this engine starts again")
            self.core.scheduler.speculation, self._head, self.runner.drafting = None, None, None

    def _begin_masks(self, sampled: Iterable[Sampled]) -> dict[Sequence, int]:
        """Advance the answers' grammars by their tokens and start the next masks. Returns the number of tokens that
        complete an answer, for each that is complete.

        An answer that ends for another reason needs no mask.
        """
        complete, going_on, counts = dict[Sequence, int](), dict[Sequence, TokenMasks](), Counter[Sequence]()
        for sequence, token, _ in sampled:
            if (masks := sequence.masks) is None or sequence.state is State.FINISHED or sequence.request.prompt_only:
                continue
            if sequence in complete or (counts[sequence] and sequence.state is not State.RUNNING):
                continue
            counts[sequence] += 1
            if token == OVERFLOWED or token in sequence.request_state.ending_tokens:
                going_on.pop(sequence, None)
            elif masks.take(token):
                complete[sequence] = counts[sequence]
                going_on.pop(sequence, None)
            else:
                going_on[sequence] = masks
        self.grammars.begin_masks(going_on.values())
        return complete

    def _end_if_last(self, arrived: _ArrivedToken, *, complete: bool) -> None:
        """End a sequence if a token is its last one; ``complete``: its grammar has ended."""
        sequence, detokenizer = arrived.sequence, arrived.sequence.detokenizer
        if sequence.request.prompt_only:  # the token only marks the end of the prompt
            arrived.text, arrived.reason = "", "length"
        elif arrived.token in sequence.request_state.ending_tokens:
            arrived.text, arrived.reason = "", "stop"
        else:
            if detokenizer.may_stop:
                arrived.text = detokenizer.append(arrived.token)
            if detokenizer.stopped is not None or complete:
                arrived.reason = "stop"
            elif sequence.num_output - sequence.pending >= sequence.max_tokens:
                arrived.reason = "length"
        if arrived.reason:
            self.core.finish(sequence)

    def _token_delta(self, arrived: _ArrivedToken) -> TokenDelta:
        """Return the output of a token."""
        sequence, text, logprob = arrived.sequence, arrived.text, arrived.logprob
        request_id, choice = sequence.request.request_id, sequence.choice
        if sequence.request.prompt_only:
            return TokenDelta(request_id, choice, "", [], [], arrived.reason)
        if text is None:
            text = sequence.detokenizer.append(arrived.token)
        if arrived.reason:
            text += sequence.detokenizer.flush()
        return TokenDelta(request_id, choice, text, [arrived.token], [logprob] if logprob else [], arrived.reason)

    def _prompt_deltas(self, reads: Iterable[tuple[Sequence, PromptLogprobs | Embedding]]) -> Iterable[TokenDelta]:
        for sequence, read in reads:
            if not is_finite(read):
                self._overflowed(sequence)
            if sequence.state is not State.FINISHED:
                yield TokenDelta(sequence.request.request_id, sequence.choice, "", [], [], "", read)

    def _overflowed(self, sequence: Sequence) -> None:
        """End the request of a sequence with logits that are not finite, and drop its pages from the prefix cache."""
        self.core.prefixes.drop_path(sequence.prefix_key, sequence.token_ids, sequence.activation)
        if sequence.state is State.FINISHED:
            return
        digest = sequence.request.adapter_digest
        log.warning("the logits of %s are not finite: %s", sequence.request.request_id, digest or "the base model")
        dtype = str(self.pool.data.dtype).removeprefix("torch.")
        self.core.fail(sequence.request_state, overflow(content_of(digest), dtype))

    def _fail(self, sequences: Iterable[Sequence], cause: Exception) -> None:
        error = RequestError(
            "engine_error",
            f"The engine failed while it processed this request ({type(cause).__name__}).",
            "Try again; if it fails again, send the request id to the operator.",
            retry_after_ms=1000,
        )
        for request_state in {id(s.request_state): s.request_state for s in sequences}.values():
            self.core.fail(request_state, error)

    def _report_end(self, request_state: RequestState, error: RequestError | None) -> None:
        request_state.usage.finished_unix = time.time()
        self._ended.append(RequestFinished(request_state.request.request_id, request_state.usage, error))

    # The checks of a new request.

    def _check(self, request: GenerationRequest) -> int:
        """Check a request and return the maximum number of tokens of each choice. Raises ``RequestError``."""
        sampling, prompts = request.sampling, [request.prompt_token_ids, *request.more_prompts]
        prompt = max(map(len, prompts))
        if request.request_id in self.core.requests:
            raise RequestError(
                "duplicate_request",
                f"Request id {request.request_id} is already running.",
                "Use a new request id for every request.",
                param="request_id",
            )
        packed = self.source.get(request.adapter_digest) if request.adapter_digest else None
        vocab = self._vocab_size(request, packed)
        sampling.validate(vocab)
        for token_ids in prompts:
            self._check_prompt(token_ids, vocab)
        self._check_prompt_logprobs(request)
        self._check_pooling(request)
        self._check_so_far(request, vocab)
        room = self.max_context - prompt
        wanted = 0 if request.prompt_only else sampling.max_tokens or 1
        if wanted > room:
            raise RequestError(
                "context_length_exceeded",
                f"This model's context is {self.max_context} tokens, but the request needs "
                f"{prompt + wanted} ({prompt} in the prompt, {wanted} to generate).",
                f"Shorten the prompt or lower max_tokens; together they may be {self.max_context}.",
                param="messages" if room < min(1, wanted) else "max_tokens",
            )
        sequences = sampling.n + len(request.more_prompts)
        if not (request.so_far or self.core.may_queue(request.tenant, sequences)):  # always resume a begun answer
            raise RequestError(
                "overloaded",
                f"{len(self.core.queue)} requests are already waiting on this host.",
                "Try again in a moment.",
                retry_after_ms=1000,
            )
        max_tokens = 1 if request.prompt_only else sampling.max_tokens or room
        if not self.core.scheduler.can_ever_fit(prompt + max_tokens, self._least_pages(packed)):
            raise too_large_for_host()
        return max_tokens

    def _least_pages(self, packed: PackedAdapter | None) -> int:
        """Return the pages without which an adapter cannot be used; 0 while that is not known."""
        return 0 if packed is None else self.core.device_tier.least_pages(packed)

    def _vocab_size(self, request: GenerationRequest, packed: PackedAdapter | None) -> int:
        """Return the number of token ids that the request may use: the base's, or the adapter's if it has more.

        For an adapter that is not in host memory yet this is the maximum that adapters may have; the scheduler checks
        again once it is loaded.
        """
        if not request.adapter_digest:
            return self.model_config.vocab_size
        if packed is None:
            return self.model_config.vocab_size + MAX_NEW_TOKENS
        return max(self.model_config.vocab_size, packed.layout.vocab_size)

    def _check_prompt(self, token_ids: list[int], vocab: int) -> None:
        if not token_ids:
            raise RequestError(
                "empty_prompt", "The prompt has no tokens.", "Send at least one character of prompt.", param="prompt"
            )
        if min(token_ids) < 0 or max(token_ids) >= vocab:
            raise RequestError(
                "invalid_value",
                f"The prompt holds a token id outside 0 to {vocab - 1}.",
                "Tokenise the prompt with this model's tokenizer.",
                param="prompt",
            )

    def _check_so_far(self, request: GenerationRequest, vocab: int) -> None:
        choices = [part.choice for part in request.so_far]
        if request.so_far and (request.prompt_only or request.prompt_logprobs is not None):
            problem = "it requests results of its prompt"
        elif len({*choices}) < len(choices) or max(choices, default=0) >= request.sampling.n:
            problem = f"it has {request.sampling.n} choices, but so_far has choices {choices}"
        elif any(max(part.token_ids, default=0) >= vocab for part in request.so_far):
            problem = f"a token id is outside 0 to {vocab - 1}"
        elif any(not part.finished and self._is_full(request, part.token_ids) for part in request.so_far):
            problem = "a choice has its maximum number of tokens, but is not finished"
        else:
            return
        raise RequestError(
            "invalid_value",
            f"The request cannot be resumed: {problem}.",
            "Send it anew.",
            param="so_far",
        )

    def _is_full(self, request: GenerationRequest, token_ids: list[int]) -> bool:
        return len(token_ids) >= (request.sampling.max_tokens or self.max_context - len(request.prompt_token_ids))

    def _check_prompt_logprobs(self, request: GenerationRequest) -> None:
        top, prompt, most = request.prompt_logprobs, len(request.prompt_token_ids), request.most_prompt_logprobs
        if top is None:
            return
        if not 0 <= top <= MAX_TOP_LOGPROBS:
            raise RequestError(
                "invalid_value",
                f"prompt_logprobs is {top}, but must be between 0 and {MAX_TOP_LOGPROBS}.",
                f"Send a number from 0 to {MAX_TOP_LOGPROBS}.",
                param="prompt_logprobs",
            )
        count = prompt * (1 + top)
        if most and count > most:
            raise RequestError(
                "invalid_value",
                f"The prompt has {prompt} tokens; with the {top} most likely tokens for each that is {count} "
                f"log-probabilities, but at most {most} are possible for one prompt of this request.",
                "Lower prompt_logprobs, or send a shorter prompt or fewer prompts in one request.",
                param="prompt",
            )

    def _check_pooling(self, request: GenerationRequest) -> None:
        if request.pooling is None:
            return
        dimensions, most = request.pooling.dimensions, self.model_config.hidden_size
        if dimensions > most:
            raise RequestError(
                "invalid_value",
                f"dimensions is {dimensions}, but this model's vectors have {most}.",
                f"Send dimensions from 1 to {most}, or leave them out.",
                param="dimensions",
            )
        numbers = (1 + len(request.more_prompts)) * (dimensions or most)
        if numbers > _MAX_NUMBERS:
            raise RequestError(
                "invalid_value",
                f"The vectors would have {numbers} numbers together, but at most {_MAX_NUMBERS} are possible for one "
                "request.",
                "Send fewer inputs in one request, or lower dimensions.",
                param="input",
            )

    def _ending_tokens(self, request: GenerationRequest) -> frozenset[int]:
        sampling = request.sampling
        eos_token_ids = frozenset() if sampling.ignore_eos else self.tokenizer.eos_token_ids
        return frozenset(sampling.stop_token_ids) | eos_token_ids


def overflow(digest: str, dtype: str) -> RequestError:
    """Return the error of a request with a logit that is infinite or not a number."""
    if is_combined(digest):
        return RequestError(
            "adapter_overflow",
            f"With these adapters together the model's numbers grew beyond the range of {dtype}, so no token could be "
            "sampled.",
            "Lower the adapters' weights, or call each separately: one of them may overflow alone.",
            param="model",
        )
    if digest:
        return RequestError(
            "adapter_overflow",
            f"With this adapter the model's numbers grew beyond the range of {dtype}, so no token could be sampled.",
            "Train or export the adapter with smaller weights or a smaller lora_alpha, and upload it as a new version.",
            param="model",
        )
    return RequestError(
        "model_overflow",
        f"The base model's numbers grew beyond the range of {dtype} on this prompt, so no token could be sampled.",
        "Send the request id to the operator: the model may need another --dtype (bfloat16 or float32).",
        param="model",
    )


def build_runner(config: EngineConfig, loaded: LoadedModel, mirror: StepMirror | None = None) -> Runner:
    """Return a runner with graphs if the backend can be captured, otherwise one without.

    Followers capture graphs only on rank 0's command.
    """
    decodes = of_answer if config.deterministic else one_token
    if loaded.tables is None and config.deterministic:
        return RowRunner(loaded.model, loaded.pool, config.max_running, decodes, mirror)
    if loaded.tables is None or not loaded.pool.data.is_cuda:
        return Runner(loaded.model, loaded.pool, config.max_running, decodes, mirror)
    # Imported here: these need triton, which a CPU engine does not have.
    from lora_engine.execution.graph_runner import GraphRunner

    from .model.graph_shapes import drafted_rows, graph_memory, graph_rows
    from .model.warm_up import compile_prefill_steps

    seconds = {}
    if not loaded.again:  # otherwise each kernel is compiled already, and the first step that needs it loads it
        with loaded.progress.phase("prompt steps"):
            seconds["compile prefill steps"] = compile_prefill_steps(loaded.model, loaded.pool)
    if not config.cuda_graphs:
        runner = Runner(loaded.model, loaded.pool, config.max_running, decodes, mirror)
        runner.start_seconds = seconds
        return runner
    shape = loaded.model.shape
    rows = graph_rows(config, loaded.model.config, shape), drafted_rows(config, shape)
    budget = graph_memory(config.max_running, shape, config.deterministic, *rows)
    deferred = config.defer_graphs and (
        loaded.kernels_ahead or loaded.again
    )  # else a capture could wait for a compiler
    graphs = GraphRunner(
        loaded.model, loaded.pool, config.max_running, loaded.max_context, budget, deferred, decodes, mirror,
        *rows,
    )  # fmt: skip
    if loaded.model.parallel.rank:
        return graphs
    if loaded.again:
        graphs.graphs.defer_smaller()
    with loaded.progress.phase("decode graphs") as share:
        graphs.start_seconds = {**seconds, "capture decode graphs": graphs.graphs.capture_first(share)}
    return graphs


def _owner_of(sequence: Sequence, now: float) -> PageOwner:
    request = sequence.request
    return PageOwner(PageKind.KV, request.tenant, request.adapter_digest, now - sequence.request_state.submitted)
