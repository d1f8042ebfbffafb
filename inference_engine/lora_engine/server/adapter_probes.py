"""Probes show that an adapter acts: the serving engine runs a few prompts with and without it.

The probes are ordinary background requests: they run when no other request waits, and yield to others. They have no
session, are not in the journal, and are not billed.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from lora_engine.adapters.delta_norms import Norms
from lora_engine.adapters.staging import AdapterTiers
from lora_engine.errors import RequestError
from lora_engine.request import GenerationRequest, PromptLogprobs, RequestFinished, SamplingParams, Slo, StepOutput
from lora_engine.text import Tokenizer
from lora_engine.wire import engine_pb2 as pb

from .base_agreement import MOMENT_S, Answer, AnswerPair, BaseAgreement
from .engine_loop import EngineLoop
from .input_processor import InputProcessor

PROBING = "lorikeet:probe"  # tenant name of these requests
NEW_TOKENS = 6
# Tokens of an answer that both dtypes of an adapter read: some tens in all make a share of them meaningful.
ANSWER_TOKENS = 16
TOP = 10  # most likely tokens compared at each position of a prompt
# Smallest difference of log-probabilities, in nats, that counts as a change: kernels for other shapes may round the
# last bits differently.
LEAST_CHANGE = 1e-4
# Distance of two log-probabilities in nats from which they are as far as can be: one of them may be minus infinity.
_FARTHEST = 1000.0
# Seconds between two checks whether the adapter is in host memory.
_LOAD_POLL_S = 0.005
# Maximum number of answers of the base model that are kept for later probes.
_MAX_BASE_ANSWERS = 64
QUESTIONS = ("How are you today?", "Write one short sentence about the sea.")
TEXT = "The first thing to know is"
Verdict = pb.AdapterEffect.Verdict


@dataclass(slots=True)
class _Probe:
    """A probe request that is being served."""

    request: GenerationRequest
    done: asyncio.Future[RequestFinished]
    begun: asyncio.Future[None]  # set with its first token, or at its end
    token_ids: list[int] = field(default_factory=list)
    prompt: list[PromptLogprobs] = field(default_factory=list)  # in parts, as prefill computes them

    @property
    def overflowed(self) -> bool:
        """Return whether the adapter overflowed. Raises ``RequestError`` for every other failure."""
        finished = self.done.result()
        if finished.error is None and finished.usage.outcome == "finished":
            return False
        if finished.error is not None and finished.error.code == "adapter_overflow":
            return True
        raise finished.error or _busy()

    @property
    def answer(self) -> Answer:
        return Answer(self.request.prompt_token_ids, self.token_ids, [*_places(self)])


@dataclass(frozen=True, slots=True)
class DtypeReading:
    """A text of one prompt and its answer, as an adapter in FP8 and in the pool's dtype reads it."""

    tokens: int = 0  # number of tokens that both read
    agreeing: int = 0  # number of these after which the most likely token is the same
    distances: tuple[float, ...] = ()  # of log-probabilities
    overflows: bool = False  # in FP8 the model's numbers are not finite


# The base model's probe and the adapter's.
_Pair = tuple[_Probe, _Probe]


class AdapterProbes:
    """A runner of probe requests. It lives on the event loop, like the host."""

    def __init__(
        self,
        engine: EngineLoop,
        tiers: AdapterTiers,
        inputs: InputProcessor,
        agreement: BaseAgreement | None = None,
    ) -> None:
        """Create the runner. ``agreement`` compares with the unquantised base, where the base is quantised."""
        self._engine = engine
        self._tiers = tiers
        self._inputs = inputs
        self._agreement = agreement
        self._running: dict[str, _Probe] = {}
        self._base_answers: OrderedDict[tuple[int, ...], _Probe] = OrderedDict()  # by prompt tokens
        self._base_norms: list[list[float]] = []  # by layer, for the layers read so far

    async def probe(self, digest: str, patience_s: float, template: pb.ChatTemplate | None = None) -> pb.AdapterEffect:
        """Probe an adapter and return its effect. ``template`` replaces the model's chat template, if the adapter has
        one.

        On a quantised base the agreement with the unquantised one takes longer: it is ``PENDING`` until a later call.

        Raises ``RequestError``: ``overloaded`` if there was no time, or the engine's own error. On a slow host only the
        shortest prompt runs before that is decided; that is enough to detect an adapter that overflows.
        """
        key = digest, b"" if template is None else template.SerializeToString(deterministic=True)
        if self._agreement is not None and (known := self._agreement.known(key)):
            return known
        began = time.monotonic()
        self._tiers.acquire(digest)
        try:
            async with asyncio.timeout(patience_s):
                invocation = await self._invocation(digest)
                prompts = (
                    [*self._prompts()]
                    if template is None
                    else await asyncio.to_thread(lambda: [*self._prompts(template)])
                )
                requests = [replace(each, prompt_token_ids=[*each.prompt_token_ids, *invocation]) for each in prompts]
                pairs, layers = await self._try(digest, requests, began + patience_s)
                embedding_layers = self._tiers.changes_embedding_layers(digest)
        except TimeoutError:
            raise _busy() from None
        finally:
            self._tiers.release(digest)
        effect = effect_of(pairs, layers, self._inputs.tokenizer, embedding_layers)
        effect.elapsed_ms = round((time.monotonic() - began) * 1000)
        if self._agreement is None:
            return effect
        answers = [
            AnswerPair(base.answer, adapted.answer, len(base.answer.prompt) - len(invocation) if invocation else 0)
            for base, adapted in pairs
        ]
        return await self._agreement.compare(key, digest, answers, effect, min(MOMENT_S, patience_s))

    async def read_twice(self, pool: str, fp8: str, template: pb.ChatTemplate | None = None) -> list[DtypeReading]:
        """Have an adapter in two dtypes, by its keys, read the prompts, each with the answer in the pool's dtype.

        Raises ``RequestError``.
        """
        self._tiers.acquire(pool)
        self._tiers.acquire(fp8)
        probes: list[_Probe] = []
        try:
            invocation = await self._invocation(pool)
            await self._invocation(fp8)
            prompts = await asyncio.to_thread(lambda: [*self._prompts(template)])
            readings = []
            for prompt in prompts:  # one request at a time: a single step with all would delay other requests
                ids = [*prompt.prompt_token_ids, *invocation]
                answer = SamplingParams(max_tokens=ANSWER_TOKENS, ignore_eos=True)
                question = replace(prompt, prompt_token_ids=ids, sampling=answer, prompt_logprobs=None)
                answered = await self._ended(question, pool, probes)
                if answered.overflowed:
                    raise _overflow()
                text = replace(
                    prompt,
                    prompt_token_ids=[*ids, *answered.token_ids],
                    sampling=SamplingParams(max_tokens=1, ignore_eos=True),
                )
                first = len(ids) - len(invocation) if invocation else 0
                in_pool, in_fp8 = await self._ended(text, pool, probes), await self._ended(text, fp8, probes)
                readings.append(_compare_reading(in_pool, in_fp8, first))
            return readings
        finally:
            for probe in probes:
                if not probe.done.done():
                    self._engine.abort(probe.request.request_id)
            self._tiers.release(pool)
            self._tiers.release(fp8)

    async def _ended(self, prompt: GenerationRequest, key: str, probes: list[_Probe]) -> _Probe:
        """Run a prompt to its end, and add its probe to ``probes``."""
        probe = self._begin(prompt, key)
        probes.append(probe)
        await probe.done
        return probe

    def take(self, output: StepOutput) -> None:
        """Take the probes' output from a step's."""
        if not self._running:
            return
        for delta in output.deltas:
            if probe := self._running.get(delta.request_id):
                probe.token_ids += delta.token_ids
                _settle(probe.begun, bool(probe.token_ids))
                probe.prompt += [delta.of_prompt] if isinstance(delta.of_prompt, PromptLogprobs) else []
        for item in output.finished:
            probe = self._running.pop(item.request_id, None)
            if probe is not None and not probe.done.done():
                probe.done.set_result(item)
                _settle(probe.begun)

    async def _invocation(self, digest: str) -> list[int]:
        """Load the adapter into host memory and return the tokens that its prompts must end with (empty for most)."""
        while (packed := self._tiers.get(digest)) is None:
            if error := self._tiers.load_error(digest):
                raise error
            self._tiers.request_load(digest)
            await asyncio.sleep(_LOAD_POLL_S)
        return [*packed.layout.invocation_tokens]

    def _prompts(self, template: pb.ChatTemplate | None = None) -> Iterator[GenerationRequest]:
        for submit in (*(_chat(question, template) for question in QUESTIONS), pb.Submit(text=TEXT)):
            try:
                request, _output = self._inputs.convert(submit)
            except RequestError:  # the model has no chat template, or its template refuses this chat
                request, _output = self._inputs.convert(pb.Submit(text=submit.chat.messages[0].content))
            sampling = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
            yield replace(request, tenant=PROBING, sampling=sampling, slo=Slo(background=True), prompt_logprobs=TOP)

    async def _try(
        self, digest: str, prompts: list[GenerationRequest], until: float
    ) -> tuple[list[_Pair], list[float]]:
        """Return the base's and the adapter's probe of each prompt, and the relative change of each layer.

        The shortest prompt runs first, and its duration shows whether there is time for the others: requests that
        arrive cannot interrupt a step. If there is none, returns the first pair alone if it overflowed; otherwise
        raises ``RequestError``.
        """
        probes: list[_Probe] = []
        norms: asyncio.Future[list[float]] | None = None
        try:
            first, *others = sorted(prompts, key=lambda prompt: len(prompt.prompt_token_ids))
            began, work = time.monotonic(), self._work([first])
            pairs = {id(first): self._begin_pair(first, digest, probes)}
            await asyncio.wait([probe.begun for probe in pairs[id(first)]])
            now = time.monotonic()
            if now + (now - began) * self._work(others) / work > until:
                base, adapted = pairs[id(first)]
                if adapted.done.done() and adapted.overflowed:
                    await base.done
                    return [(base, adapted)], []
                raise _busy()
            norms = asyncio.ensure_future(self._layer_changes(digest))
            for prompt in others:  # one at a time: a single step with all of them would delay other requests
                pairs[id(prompt)] = self._begin_pair(prompt, digest, probes)
                await asyncio.wait([probe.begun for probe in pairs[id(prompt)]])
            await asyncio.wait([probe.done for probe in probes])
            self._keep(base for base, _ in pairs.values())
            return [pairs[id(prompt)] for prompt in prompts], await norms
        finally:
            for probe in probes:
                if not probe.done.done():  # its end still arrives, but nothing waits for it
                    self._engine.abort(probe.request.request_id)
            if norms is not None:
                norms.cancel()

    def _work(self, prompts: Iterable[GenerationRequest]) -> int:
        """Count the tokens to compute: the adapter's, and the base's where its answer is not known."""
        tokens = [(len(prompt.prompt_token_ids), _key(prompt) in self._base_answers) for prompt in prompts]
        return sum(length if known else 2 * length for length, known in tokens)

    def _begin_pair(self, prompt: GenerationRequest, digest: str, probes: list[_Probe]) -> _Pair:
        """Submit a prompt for the base and the adapter, and add the new probes to ``probes``. The base's answer is
        reused.
        """
        base = self._base_answers.get(_key(prompt))
        begun = [self._begin(prompt, template) for template in ([digest] if base else ["", digest])]
        probes += begun
        return base or begun[0], begun[-1]

    def _begin(self, prompt: GenerationRequest, digest: str) -> _Probe:
        loop, request = asyncio.get_running_loop(), replace(prompt, request_id=f"probe-{uuid.uuid4().hex}")
        probe = _Probe(replace(request, adapter_digest=digest), loop.create_future(), loop.create_future())
        self._running[request.request_id] = probe
        self._engine.submit(probe.request)
        return probe

    def _keep(self, bases: Iterable[_Probe]) -> None:
        for base in bases:
            finished = base.done.result()
            if finished.error is None and finished.usage.outcome == "finished":
                self._base_answers[_key(base.request)] = base
                self._base_answers.move_to_end(_key(base.request))
        while len(self._base_answers) > _MAX_BASE_ANSWERS:
            self._base_answers.popitem(last=False)

    async def _layer_changes(self, digest: str) -> list[float]:
        deltas = await asyncio.to_thread(self._tiers.delta_norms, digest)
        for layer in range(len(self._base_norms), len(deltas or ())):  # once; one layer between two steps
            norms = await asyncio.wrap_future(self._engine.call(lambda engine, layer=layer: engine.weight_norms(layer)))  # type: ignore[misc]
            if layer == len(self._base_norms):  # another probe may have appended it
                self._base_norms.append(norms)
        return [relative_change(delta, base) for delta, base in zip(deltas or (), self._base_norms, strict=False)]


def _compare_reading(pool: _Probe, fp8: _Probe, first: int) -> DtypeReading:
    """Compare what both predict after the text's token ``first`` and later ones."""
    if pool.overflowed:
        raise _overflow()
    if fp8.overflowed:
        return DtypeReading(overflows=True)
    places = [*zip(_places(pool), _places(fp8), strict=True)][first:]
    pairs = [(value, other[token]) for one, other in places for token, value in one.items() if token in other]
    distances = (abs(value - other) for value, other in pairs)
    near = tuple(distance if distance < _FARTHEST else _FARTHEST for distance in distances)  # also where it is NaN
    agreeing = sum(_most_likely(one) == _most_likely(other) for one, other in places)
    return DtypeReading(len(places), agreeing, near)


def _most_likely(place: dict[int, float]) -> int | None:
    return max(place, key=place.__getitem__, default=None)


def _overflow() -> RequestError:
    return RequestError(
        "adapter_overflow",
        "The model's numbers overflow with the adapter, so that there is nothing to compare.",
        "Train or export the adapter with smaller weights or a smaller lora_alpha, and upload it as a new version.",
    )


def _key(prompt: GenerationRequest) -> tuple[int, ...]:
    return tuple(prompt.prompt_token_ids)


def _settle(future: asyncio.Future[None], is_over: bool = True) -> None:
    if is_over and not future.done():
        future.set_result(None)


def relative_change(delta: Norms, base: list[float]) -> float:
    """Return the adapter's change of a layer relative to the weights that it changes; 0 if it changes none."""
    touched = sum(base[group] for group in delta)
    return float((sum(delta.values()) / touched) ** 0.5) if touched else 0.0


def effect_of(
    pairs: list[_Pair], layers: list[float], tokenizer: Tokenizer, embedding_layers: bool = False
) -> pb.AdapterEffect:
    """Judge the adapter by its probes. ``embedding_layers``: it changes the embedding or head, which ``layers`` omits.

    Raises ``RequestError`` for a request that failed otherwise than by overflowing with the adapter.
    """
    prompts = [_compared(base, adapted, tokenizer) for base, adapted in pairs]
    verdict: Verdict = pb.AdapterEffect.ACTS
    if not all(prompt.finite for prompt in prompts):
        verdict = pb.AdapterEffect.OVERFLOWS
    elif not (any(layers) or embedding_layers) or max(prompt.largest_change for prompt in prompts) < LEAST_CHANGE:
        verdict = pb.AdapterEffect.CHANGES_NOTHING
    return pb.AdapterEffect(verdict=verdict, prompts=prompts, layer_changes=layers)


def _compared(base: _Probe, adapted: _Probe, tokenizer: Tokenizer) -> pb.ProbedPrompt:
    if base.overflowed:
        raise RequestError(
            "model_overflow",
            "The base model's numbers overflowed on a prompt of the probe.",
            "The model may need another --dtype (bfloat16 or float32).",
        )
    prompt = pb.ProbedPrompt(
        prompt=tokenizer.decode(base.request.prompt_token_ids, keep_special_tokens=True),
        base_tokens=map(tokenizer.token_text, base.token_ids),
        finite=not adapted.overflowed,
    )
    if prompt.finite:
        changes = list(_changes(base, adapted)) or [0.0]
        prompt.adapter_tokens.extend(map(tokenizer.token_text, adapted.token_ids))
        prompt.largest_change, prompt.mean_change = max(changes), sum(changes) / len(changes)
    return prompt


def _changes(base: _Probe, adapted: _Probe) -> Iterator[float]:
    """Yield the absolute change of log-probability of each token that is known with and without the adapter."""
    for one, other in zip(_places(base), _places(adapted), strict=True):
        yield from (abs(logprob - other[token_id]) for token_id, logprob in one.items() if token_id in other)


def _places(probe: _Probe) -> Iterator[dict[int, float]]:
    """Yield the known log-probabilities by token id at each position of a prompt."""
    for part in probe.prompt:
        for token_id, logprob, ids, logprobs in zip(
            part.token_ids, part.logprobs, part.top_ids, part.top_logprobs, strict=True
        ):
            yield {token_id: logprob, **dict(zip(ids, logprobs, strict=True))}


def _chat(question: str, template: pb.ChatTemplate | None) -> pb.Submit:
    return pb.Submit(chat=pb.Chat(messages=[pb.ChatMessage(role="user", content=question)], own_template=template))


def _busy() -> RequestError:
    return RequestError(
        "overloaded",
        "The host had no time to probe the adapter: other requests come first.",
        "No action is needed: the probe is repeated automatically.",
        retry_after_ms=5000,
    )
