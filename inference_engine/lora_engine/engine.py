"""The engine: requests in, tokens out. ``Engine.step`` is the whole story."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from lora_engine.execution.device_time import DeviceTime
from lora_engine.execution.prompt_reads import is_finite
from lora_engine.execution.row_runner import RowRunner
from lora_engine.execution.runner import InFlight, Launched, Runner, Sampled, StepMirror, of_answer, one_token
from lora_kernels.sampling_parameters import OVERFLOWED

from . import __version__
from .adapters.device_copies import InlineCopies, StreamCopies
from .adapters.device_table import DeviceTable
from .adapters.device_tier import DeviceAdapter, DeviceMirror
from .adapters.layout import PackedAdapter, TargetShapes
from .adapters.load_times import LoadTime
from .adapters.source import AdapterSource
from .config import EngineConfig
from .memory import PageKind, PageMap, PageOwner, PagePool, PoolStats, page_map
from .model.config import ModelConfig
from .model.loading import LoadedModel, load_model
from .model.transformer import Transformer
from .peft_format import is_combined
from .peft_format.embedding_layers import MOST_NEW_TOKENS
from .request import (
    MAX_TOP_LOGPROBS,
    Embedding,
    GenerationRequest,
    PinnedPrefix,
    PinState,
    PromptLogprobs,
    RequestError,
    RequestFinished,
    RequestUsage,
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
from .scheduling.sequence import RequestState, Sequence, State
from .structured import Grammars
from .text import Tokenizer, detokenizer_for

log = logging.getLogger(__name__)

# How long a step waits for masks of constrained answers although the device has nothing else to do. While it has, it is
# a third of a step's time; the rest is for planning the next. Masks that take longer are used in a later step, so that
# one which is slow delays its own answer only. Waiting until a plan just fits was tried on a GPU: fewer rows are held,
# but the device waits more often (docs/LOG.md).
_MASK_PATIENCE_S = 0.002
_MASK_POLL_S = 0.00005
_HELD_REST_S = 0.005
_MOST_NUMBERS = 1 << 23  # of all vectors of one request: 32 MiB
_REPORTED_TENANTS = 100  # in one status; the rest of them by asking for their waiting requests


class Mirror(DeviceMirror, StepMirror, Protocol):
    """The other ranks of a tensor-parallel group, which do to their devices what this one does to its own."""

    def mergeable(self, model: Transformer) -> MergeableWeights:
        """The merged weights of all ranks as one."""

    def weight_norms(self, layer: int) -> None:
        """Have the other ranks take part in ``Parallel.sums`` of their squared norms."""


class Engine:
    """One base model, its page pool, and the requests of all its adapters.

    Not thread-safe: one thread calls everything but the constructor.
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
        """``mirror``: the other tensor-parallel ranks of this one, which is the first. ``runner``: if it is built."""
        self.config = config
        self._mirror = mirror
        self.source = source
        self.loaded = loaded or load_model(config)
        self.pool: PagePool = self.loaded.pool
        self.core = SchedulingCore(
            config,
            source,
            self.pool,
            self.loaded.targets.shapes,
            clock=clock,
            copies=StreamCopies(self.pool.data.device) if self.pool.data.is_cuda else InlineCopies(),
            on_end=self._report_end,
            table=DeviceTable(self.loaded.tables) if self.loaded.tables is not None else None,
            merged_weights=self._merged_weights(),
            mirror=mirror,
        )
        self.runner = runner or build_runner(config, self.loaded, mirror)
        self.grammars = Grammars(self.tokenizer, self.model_config.vocab_size)
        self.steps = 0
        self.device_time = DeviceTime()
        self._clock = clock
        self._ended: list[RequestFinished] = []
        self._in_flight: InFlight | None = None
        self._step_s = 0.0  # that the last step kept the device busy

    # The engine's life, on one screen.

    def step(self) -> StepOutput:
        """Schedule, launch, commit: at most one token for every running sequence.

        On a GPU the tokens committed are those of the step before: while the device works on this
        one, the host takes them in, and schedules the next without waiting for it. Where answers are
        constrained, it is those tokens that say what may be chosen in this step.
        """
        self.steps += 1
        output = StepOutput(self.steps)
        if not self._may_overlap():
            self._commit(output)
        launched = self._launch(self.core.schedule())
        self._commit(output)
        self._in_flight = self._sample(launched) if isinstance(launched, Launched) else launched
        if not self.runner.overlaps:
            self._commit(output)
        output.finished, self._ended = self._ended, []
        return output

    def add_request(self, request: GenerationRequest) -> None:
        """Queue a request. Raises ``RequestError``; nothing is kept of a refused one."""
        max_tokens = self._check(request)
        state = self.core.new_request(
            request, self._usage(request), max_tokens, self._clock(), lambda: detokenizer_for(request, self.tokenizer)
        )
        state.ending_tokens = self._ending_tokens(request)
        if request.largest_token_id >= self.model_config.vocab_size:
            state.vocab_needed = request.largest_token_id + 1
        self.core.add(state)

    def abort(self, request_id: str) -> None:
        """End a request early; its ``RequestFinished`` comes with the next step. Unknown ids are ignored."""
        if state := self.core.requests.get(request_id):
            self.core.end(state, "aborted")

    def has_work(self) -> bool:
        return bool(self.core.requests or self._ended or self._in_flight)

    def use_idle_time(self) -> bool:
        """Do a little of what the start left for later, between steps; False once nothing is left."""
        return self.core.scheduler.bring_pinned() or self.runner.capture_next()

    @property
    def failure(self) -> str:
        """Why this process should be ended, once its requests are; empty if nothing is wrong."""
        return self.runner.failure

    def drop_adapter(self, digest: str) -> bool:
        """Give back an idle adapter's pages; True if it was on the device. In use, it stays until its requests end."""
        return self.core.drop_adapter(digest)

    def pin_adapters(self, digests: Iterable[str]) -> list[str]:
        """Have these adapters, and no others, stay on the device, as far as a quarter of the pool goes, in this order.

        Those that are there by now; others follow when they are in host memory, and when there is room.
        """
        return self.core.pin_adapters(digests)

    def pinned_adapters(self) -> list[str]:
        """Adapters that are on the device and stay there."""
        return self.core.scheduler.pinned.kept()

    def pin_prefixes(self, prefixes: Iterable[PinnedPrefix]) -> dict[str, PinState]:
        """Have these prefixes, and no others, stay in the KV cache, in the room that pinned adapters leave of a quarter
        of the pool, in this order. Those that are missing stay once a request with their name as its ``pin`` has
        computed them. The state of each, by name.
        """
        return self.core.pin_prefixes(prefixes)

    def pinned_prefixes(self) -> dict[str, PinState]:
        """The state of each prefix that is to stay, by name."""
        return self.core.scheduler.pinned_prefixes.states()

    # What others may know.

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
        """Whose keys and values requests could share now; None if none ever are."""
        prefixes = self.core.prefixes
        return len(prefixes) * self.config.page_tokens if prefixes.enabled else None

    def queue_report(self) -> QueueReport:
        """Tenants' shares and how the admission policy does."""
        return self.core.stats.report(self.core.admission.refused, _REPORTED_TENANTS)

    def merge_report(self) -> MergeReport:
        return self.core.merged.report

    def prefill_budget_report(self) -> PrefillBudgetReport:
        """What is done for objectives of the time between tokens."""
        return self.core.scheduler.prefill_budget.report

    def waiting_requests(self, tenant: str, limit: int) -> list[WaitingRequest]:
        """Waiting requests and why each waits; of one tenant, or of all if ``tenant`` is ``""``."""
        return self.core.stats.waiting(tenant, limit)

    def page_map(self) -> PageMap:
        """Whose each page of the pool is. Takes time in proportion to the pages: not for every step."""
        core, now = self.core, self._clock()
        prefixes = (
            (PageOwner(PageKind.CACHED_PREFIX, tenant, digest, pinned=pinned), pages)
            for (tenant, digest, _salt), pinned, pages in core.prefixes.by_key()
        )
        running = ((_owner_of(sequence, now), sequence.pages) for sequence in core.scheduler.running)
        adapters = (
            (PageOwner(PageKind.ADAPTER, "", slot.digest, now - slot.last_used, slot.pinned), slot.pages)
            for slot in core.device_tier.slots()
        )
        return page_map(core.allocator, itertools.chain(prefixes, running, adapters))

    def device_adapters(self) -> list[DeviceAdapter]:
        return self.core.device_tier.report()

    @property
    def device_load_time(self) -> LoadTime:
        """How long adapters take from host memory to the device."""
        return self.core.device_tier.load_times.now

    def weight_norms(self, layer: int) -> list[float]:
        """Squared norms of a layer's matrices, by target group."""
        if self._mirror is not None:
            self._mirror.weight_norms(layer)
        model = self.loaded.model
        return model.parallel.sums(model.weights.layers[layer].norms(), model.device)

    def describe(self) -> dict[str, str | int]:
        """Settings and sizes, for the host's description and the start-up log."""
        geometry = self.pool.geometry
        return {
            "engine_version": __version__,
            "model": self.loaded.name,
            "base_digest": self.loaded.digest,
            "family": self.model_config.family.model_type,
            "device": self.loaded.device_name,
            "dtype": str(self.pool.data.dtype).removeprefix("torch."),
            "fp8_matrices": self.loaded.model.weights.num_quantised(),
            "kv_dtype": str(self.pool.kv.dtype).removeprefix("torch."),
            "max_context": self.max_context,
            "max_running": self.config.max_running,
            "max_lora_rank": self.config.max_lora_rank,
            "page_tokens": geometry.page_tokens,
            "page_bytes": geometry.page_bytes(self.pool.data.dtype),
            "pages_total": self.pool.num_pages,
            "order": self.config.order,
            "admission": self.config.admission,
            "mode": self.core.merge_policy.name,
            "deterministic": str(self.config.deterministic).lower(),
        }

    # What a step is made of.

    def _merged_weights(self) -> MergeableWeights | None:
        if not self.config.merges or self._mirror is None:
            return self.loaded.model.merged
        return self._mirror.mergeable(self.loaded.model)

    def _may_overlap(self) -> bool:
        """Whether the next step can be planned before the last one's tokens are known."""
        return not any(sequence.request.sampling.penalises for sequence in self.core.scheduler.running)

    def _launch(self, plan: StepPlan) -> InFlight | Launched | None:
        """Give a step to the device; its tokens are chosen at once unless some answer is constrained."""
        if not plan.chunks:
            self._rest_if_all_are_held()
            return None
        launched_at = self._clock()
        try:
            applied = self.core.choose_merged(plan)
            computing = self.runner.launch(plan.chunks.values(), self.core.merged.slot, reads=bool(plan.reads))
            launched = computing if computing.is_constrained else self.runner.sample(computing)
        except Exception as error:
            log.exception("a step of %d sequences could not be launched", len(plan.chunks))
            self._fail(plan.chunks, error)
            return None
        self.device_time.launched(plan.chunks.values(), launched_at)
        self.core.launched(plan, applied)
        return launched

    def _sample(self, launched: Launched) -> InFlight | None:
        """Choose a step's tokens, each among those that its answer's constraint allows."""
        try:
            return self.runner.sample(launched, self._bring_masks(launched))
        except Exception as error:
            log.exception("the tokens of a step could not be chosen")
            self.device_time.ended(self._clock())
            self._fail(list(self.core.scheduler.running), error)
            self.core.step_failed()
            return None

    def _bring_masks(self, launched: Launched) -> set[Sequence]:
        """Give the rows their masks. Sequences whose mask is not there in time are held; they are returned."""
        constrained = [
            (sequence, sequence.masks, row)
            for sequence, row in zip(launched.sequences, launched.rows, strict=True)
            if sequence.masks is not None and sequence.state is not State.FINISHED
        ]
        began = time.monotonic()
        for _, masks, _ in constrained:
            while not (masks.ready or masks.are_slow) and self._is_patient(began, launched):
                time.sleep(_MASK_POLL_S)  # lets the threads have Python's lock
        held = set()
        for sequence, masks, row in constrained:
            if sequence.state is State.FINISHED:  # another choice of its request failed just now
                continue
            if not masks.ready:
                masks.was_late()
                self.core.hold(sequence)
                held.add(sequence)
                continue
            try:
                row.mask = masks.mask
            except RequestError as error:
                self.core.end(sequence.parent, "failed", error)
        return held

    def _is_patient(self, began: float, launched: Launched) -> bool:
        """Whether to wait on for masks."""
        waited = time.monotonic() - began
        return waited < _MASK_PATIENCE_S or (waited < self._step_s / 3 and launched.is_computing)

    def _rest_if_all_are_held(self) -> None:
        """With nothing to run but sequences that are held, wait a little for one of their masks."""
        if self._in_flight is None:
            until = time.monotonic() + _HELD_REST_S
            held = [sequence.masks for sequence in self.core.scheduler.running if sequence.masks is not None]
            while held and not any(masks.ready for masks in held) and time.monotonic() < until:
                time.sleep(_MASK_POLL_S)

    def _commit(self, output: StepOutput) -> None:
        """Take in the tokens of the step in flight. The token of a sequence that ended meanwhile is dropped."""
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
        complete = self._begin_masks(sampled)  # first: those that are not quick are computed beside the rest
        for sequence, token, logprob in sampled:
            if token == OVERFLOWED:
                self._overflowed(sequence)
            if sequence.state is not State.FINISHED:
                self.core.token_arrived(sequence, token, now)
                output.deltas.append(self._token_delta(sequence, token, logprob, complete=sequence in complete))

    def _begin_masks(self, sampled: Iterable[Sampled]) -> set[Sequence]:
        """Take tokens into the grammars of their answers and start on what may come next; answers that are complete.

        Of an answer that ends for another reason, the mask is of no use to anybody.
        """
        complete, going_on = set(), []
        for sequence, token, _ in sampled:
            if (masks := sequence.masks) is None or sequence.state is State.FINISHED or sequence.request.prompt_only:
                continue
            if token == OVERFLOWED or token in sequence.parent.ending_tokens:
                continue
            if masks.take(token):
                complete.add(sequence)
            else:
                going_on.append(masks)
        self.grammars.begin_masks(going_on)
        return complete

    def _token_delta(
        self, sequence: Sequence, token: int, logprob: TokenLogprob | None, *, complete: bool
    ) -> TokenDelta:
        """What a token adds to the answer; ends the sequence if it is its last. ``complete`` by its grammar."""
        if sequence.request.prompt_only:  # the token only says that the prompt is processed
            self.core.finish(sequence)
            return TokenDelta(sequence.request.request_id, sequence.choice, "", [], [], "length")
        ended_by_token = token in sequence.parent.ending_tokens
        text = "" if ended_by_token else sequence.detokenizer.append(token)
        reason = ""
        if ended_by_token or sequence.detokenizer.stopped is not None or complete:
            reason = "stop"
        elif sequence.num_output - sequence.pending >= sequence.max_tokens:
            reason = "length"
        if reason:
            text += sequence.detokenizer.flush()
            self.core.finish(sequence)
        return TokenDelta(
            sequence.request.request_id, sequence.choice, text, [token], [logprob] if logprob else [], reason
        )

    def _prompt_deltas(self, reads: Iterable[tuple[Sequence, PromptLogprobs | Embedding]]) -> Iterable[TokenDelta]:
        for sequence, read in reads:
            if not is_finite(read):
                self._overflowed(sequence)
            if sequence.state is not State.FINISHED:
                yield TokenDelta(sequence.request.request_id, sequence.choice, "", [], [], "", read)

    def _overflowed(self, sequence: Sequence) -> None:
        """Its logits are not finite. Its request ends, and nothing that it computed is kept for others."""
        self.core.prefixes.drop_path(sequence.prefix_key, sequence.token_ids, sequence.activation)
        if sequence.state is State.FINISHED:
            return
        digest = sequence.request.adapter_digest
        log.warning("the logits of %s are not finite: %s", sequence.request.request_id, digest or "the base model")
        self.core.fail(sequence.parent, overflow(digest, str(self.pool.data.dtype).removeprefix("torch.")))

    def _fail(self, sequences: Iterable[Sequence], cause: Exception) -> None:
        error = RequestError(
            "engine_error",
            f"The engine failed while it worked on this request ({type(cause).__name__}).",
            "Try again; if it fails again, send the request id to the operator.",
            retry_after_ms=1000,
        )
        for state in {id(s.parent): s.parent for s in sequences}.values():
            self.core.fail(state, error)

    def _report_end(self, state: RequestState, error: RequestError | None) -> None:
        state.usage.finished_unix = time.time()
        self._ended.append(RequestFinished(state.request.request_id, state.usage, error))

    # What adding a request is made of.

    def _check(self, request: GenerationRequest) -> int:
        """Refuse what cannot be served; the most tokens each choice may generate."""
        params, prompts = request.sampling, [request.prompt_token_ids, *request.more_prompts]
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
        params.validate(vocab)
        for token_ids in prompts:
            self._check_prompt(token_ids, vocab)
        self._check_prompt_logprobs(request)
        self._check_pooling(request)
        self._check_so_far(request, vocab)
        room = self.max_context - prompt
        wanted = 0 if request.prompt_only else params.max_tokens or 1
        if wanted > room:
            raise RequestError(
                "context_length_exceeded",
                f"This model's context is {self.max_context} tokens, but the request needs "
                f"{prompt + wanted} ({prompt} in the prompt, {wanted} to generate).",
                f"Shorten the prompt or lower max_tokens; together they may be {self.max_context}.",
                param="messages" if room < min(1, wanted) else "max_tokens",
            )
        sequences = params.n + len(request.more_prompts)
        if not (request.so_far or self.core.may_queue(request.tenant, sequences)):  # an answer that has begun goes on
            raise RequestError(
                "overloaded",
                f"{len(self.core.queue)} requests are already waiting on this host.",
                "Try again in a moment.",
                retry_after_ms=1000,
            )
        max_tokens = 1 if request.prompt_only else params.max_tokens or room
        if not self.core.scheduler.can_ever_fit(prompt + max_tokens, packed.num_pages if packed else 0):
            raise too_large_for_host()
        return max_tokens

    def _vocab_size(self, request: GenerationRequest, packed: PackedAdapter | None) -> int:
        """Number of tokens that the request may name: the base's, or the adapter's if it has more.

        Of an adapter that is not in host memory it is not known yet: the most that one may have. The scheduler compares
        again once it is.
        """
        if not request.adapter_digest:
            return self.model_config.vocab_size
        if packed is None:
            return self.model_config.vocab_size + MOST_NEW_TOKENS
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
            problem = "it asks for something of its prompt"
        elif len({*choices}) < len(choices) or max(choices, default=0) >= request.sampling.n:
            problem = f"it has {request.sampling.n} choices, and these are {choices}"
        elif any(max(part.token_ids, default=0) >= vocab for part in request.so_far):
            problem = f"a token id is outside 0 to {vocab - 1}"
        elif any(not part.finished and self._is_full(request, part.token_ids) for part in request.so_far):
            problem = "a choice has all the tokens that it may have, and is not finished"
        else:
            return
        raise RequestError(
            "invalid_value", f"The request cannot be resumed: {problem}.", "Send it anew.", param="so_far"
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
        asked = prompt * (1 + top)
        if most and asked > most:
            raise RequestError(
                "invalid_value",
                f"The prompt has {prompt} tokens; with the {top} most likely ones for each that is {asked} "
                f"log-probabilities, and {most} is the most for one prompt of this request.",
                "Ask for fewer of the most likely tokens, or send a shorter prompt or fewer prompts in one request.",
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
        if numbers > _MOST_NUMBERS:
            raise RequestError(
                "invalid_value",
                f"The vectors would have {numbers} numbers together; {_MOST_NUMBERS} is the most for one request.",
                "Send fewer inputs in one request, or ask for fewer dimensions.",
                param="input",
            )

    def _usage(self, request: GenerationRequest) -> RequestUsage:
        return RequestUsage(
            request.request_id,
            request.tenant,
            request.adapter_digest,
            prompt_tokens=len(request.prompt_token_ids) + sum(map(len, request.more_prompts)),
            submitted_unix=time.time(),
        )

    def _ending_tokens(self, request: GenerationRequest) -> frozenset[int]:
        params = request.sampling
        return frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self.tokenizer.eos_token_ids)


def overflow(digest: str, dtype: str) -> RequestError:
    """For a request whose next token could not be chosen: some logit was infinite, or no number."""
    if is_combined(digest):
        return RequestError(
            "adapter_overflow",
            f"With these adapters together the model's numbers grew beyond what {dtype} holds, so no token could be "
            "chosen.",
            "Give them smaller weights, or call each by itself: one of them may overflow alone.",
            param="model",
        )
    if digest:
        return RequestError(
            "adapter_overflow",
            f"With this adapter the model's numbers grew beyond what {dtype} holds, so no token could be chosen.",
            "Train or export the adapter with smaller weights or a smaller lora_alpha, and upload it as a new version.",
            param="model",
        )
    return RequestError(
        "model_overflow",
        f"The base model's numbers grew beyond what {dtype} holds on this prompt, so no token could be chosen.",
        "Send the request id to the operator: the model may need another --dtype (bfloat16 or float32).",
        param="model",
    )


def build_runner(config: EngineConfig, loaded: LoadedModel, mirror: StepMirror | None = None) -> Runner:
    """Graphs where the backend can be captured, plain execution elsewhere. A rank that does not plan captures what
    rank 0 captures, when it says so."""
    decodes = of_answer if config.deterministic else one_token
    if loaded.tables is None and config.deterministic:
        return RowRunner(loaded.model, loaded.pool, config.max_running, decodes, mirror)
    if loaded.tables is None or not loaded.pool.data.is_cuda:
        return Runner(loaded.model, loaded.pool, config.max_running, decodes, mirror)
    # These need triton, which a CPU engine does not.
    from lora_engine.execution.graph_runner import GraphRunner

    from .model.graph_shapes import graph_memory
    from .model.warm_up import compile_prefill_steps

    with loaded.progress.phase("prompt steps"):
        seconds = {"compile prefill steps": compile_prefill_steps(loaded.model, loaded.pool)}
    if not config.cuda_graphs:
        runner = Runner(loaded.model, loaded.pool, config.max_running, decodes, mirror)
        runner.start_seconds = seconds
        return runner
    budget = graph_memory(config.max_running, loaded.model.shape, config.deterministic)
    deferred = config.defer_graphs and loaded.kernels_ahead  # else a capture while serving could wait for a compiler
    graphs = GraphRunner(
        loaded.model, loaded.pool, config.max_running, loaded.max_context, budget, deferred, decodes, mirror
    )
    if loaded.model.parallel.rank:
        return graphs
    with loaded.progress.phase("decode graphs") as share:
        graphs.start_seconds = {**seconds, "capture decode graphs": graphs.graphs.capture_first(share)}
    return graphs


def _owner_of(sequence: Sequence, now: float) -> PageOwner:
    request = sequence.request
    return PageOwner(PageKind.KV, request.tenant, request.adapter_digest, now - sequence.parent.timeline.submitted)
