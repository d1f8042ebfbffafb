"""Conversion between the wire's messages and the engine's data classes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import takewhile

from lora_engine.adapters.load_times import LoadTime
from lora_engine.adapters.staging import Phase, StageEvent
from lora_engine.constraints import Constraint, Kind
from lora_engine.errors import RequestError, StageError
from lora_engine.memory import PageMap
from lora_engine.request import (
    ChoiceSoFar,
    GenerationRequest,
    Pooling,
    PoolingKind,
    PromptLogprobs,
    RequestUsage,
    SamplingParams,
    Slo,
    TokenDelta,
    TokenLogprob,
)
from lora_engine.scheduling.forecast import Accuracy
from lora_engine.scheduling.scheduler_stats import Newcomer, ServiceGap, TenantShare, WaitingRequest
from lora_engine.structured import Grammars
from lora_engine.text import Tokenizer
from lora_engine.text.output import ChatOutput
from lora_engine.wire import engine_pb2 as pb

from .chat import ChatFormat, Prompt, chat_size

MAX_STOPS = 64
MAX_STOP_CHARS = 1000
# Texts that may follow a prompt, to see which of its tokens depend on them.
_NEXT_TEXTS = ("a", " the", "1", "\n", ".")
_NEXT_MESSAGES = ("a", "1, the")
_POOLING = {pb.Pooling.LAST: PoolingKind.LAST, pb.Pooling.MEAN: PoolingKind.MEAN}
_PHASES = {phase: getattr(pb.StageEvent, phase.name) for phase in Phase}
_SHARE_FIELDS = tuple(field.name for field in fields(TenantShare))
_USAGE_FIELDS = tuple(field.name for field in fields(RequestUsage) if field.name != "preemption_spans")


def prompt_size(submit: pb.Submit) -> int:
    """Return the characters or tokens of the prompt, a measure of the time that preparing it takes."""
    if submit.HasField("chat"):
        return chat_size(submit.chat)
    more = sum(len(prompt.text) + len(prompt.token_ids.ids) for prompt in submit.more_prompts)
    return len(submit.text) + len(submit.token_ids.ids) + more


def has_adapter_template(submit: pb.Submit) -> bool:
    """Return whether an adapter's template writes the prompt, which may take as long as its time limit."""
    return submit.HasField("chat") and submit.chat.HasField("own_template")


def generation_request(
    submit: pb.Submit,
    tokenizer: Tokenizer,
    chat_format: ChatFormat,
    grammars: Grammars,
    max_context: int | None = None,
) -> tuple[GenerationRequest, ChatOutput | None]:
    """Convert a request and return how its answer is parsed. Prompts that are clearly longer than ``max_context``
    tokens are refused before they are tokenised. Raises ``RequestError``.
    """
    prompt = _prompt(submit, tokenizer, chat_format, max_context)
    request = GenerationRequest(
        request_id=submit.request_id,
        prompt_token_ids=prompt.token_ids,
        continues_text=submit.WhichOneof("prompt") != "chat" or submit.chat.continue_final_message,
        shown_special_ids=prompt.shown_special_ids,
        sampling=_ended_at(_sampling(submit.sampling), prompt.end_ids),
        adapter_digest=submit.adapter_digest,
        tenant=submit.tenant,
        slo=_slo(submit.slo),
        grammar=None if prompt.constraint is None else grammars.compile(prompt.constraint),
        prompt_only=submit.prompt_only,
        prompt_logprobs=submit.prompt_logprobs if submit.HasField("prompt_logprobs") else None,
        most_prompt_logprobs=submit.most_prompt_logprobs,
        pooling=_pooling(submit),
        more_prompts=tuple(_more_prompt(submit, more, tokenizer, max_context) for more in submit.more_prompts),
        so_far=tuple(ChoiceSoFar(part.choice, list(part.token_ids), part.finished) for part in submit.so_far),
        cache_salt=submit.cache_salt,
    )
    return request, prompt.output


def prompt_description(request: GenerationRequest, tokenizer: Tokenizer) -> pb.PromptDescription:
    return pb.PromptDescription(token_ids=request.prompt_token_ids, text=tokenizer.decode(request.prompt_token_ids))


def _pooling(submit: pb.Submit) -> Pooling | None:
    if not submit.HasField("pooling"):
        return None
    return Pooling(_POOLING[submit.pooling.kind], submit.pooling.dimensions)


def _more_prompt(submit: pb.Submit, prompt: pb.Prompt, tokenizer: Tokenizer, max_context: int | None) -> list[int]:
    if prompt.WhichOneof("prompt") != "text":
        return list(prompt.token_ids.ids)
    special = submit.add_special_tokens if submit.HasField("add_special_tokens") else True
    return _encode(tokenizer, prompt.text, special, max_context)


def _encode(tokenizer: Tokenizer, text: str, special: bool, max_context: int | None) -> list[int]:
    if max_context is not None and tokenizer.is_longer(text, max_context):
        raise RequestError(
            "context_length_exceeded",
            f"This model's context is {max_context} tokens, and the prompt, {len(text)} characters, has more.",
            f"Shorten the prompt; together with the answer it may be {max_context} tokens.",
            param="messages",
        )
    return tokenizer.encode(text, add_special_tokens=special)


def tokenize(submit: pb.Submit, tokenizer: Tokenizer, chat_format: ChatFormat) -> pb.TokenizeReply:
    """Tokenise a prompt. Raises ``RequestError``."""
    read = beginning if submit.is_beginning else _prompt_ids
    ids = read(submit, tokenizer, chat_format)
    return pb.TokenizeReply(token_ids=ids, token_bytes={i: tokenizer.token_bytes(i) for i in set(ids)})


def beginning(submit: pb.Submit, tokenizer: Tokenizer, chat_format: ChatFormat) -> list[int]:
    """Return the tokens that all longer prompts beginning with this one have in common. Raises ``RequestError``.

    The following text decides how the last characters become tokens, and what a chat template writes after the last
    message, or even before it. So a few continuations are rendered and compared.
    """
    longer = [_prompt_ids(prompt, tokenizer, chat_format) for prompt in _longer(submit)]
    return [first for first, *others in takewhile(lambda ids: len({*ids}) == 1, zip(*longer, strict=False))]


def _longer(submit: pb.Submit) -> Iterator[pb.Submit]:
    """Yield prompts that begin with this one and differ in what follows."""
    prompt = pb.Submit()
    prompt.CopyFrom(submit)
    if submit.WhichOneof("prompt") == "text":
        for more in _NEXT_TEXTS:
            prompt.text = submit.text + more
            yield prompt
    elif submit.WhichOneof("prompt") == "chat":
        if submit.chat.messages and submit.chat.messages[-1].role == "user":
            yield submit
            prompt.chat.messages.add(role="assistant", content=_NEXT_MESSAGES[0])
        for content in _NEXT_MESSAGES:
            following = pb.Submit()
            following.CopyFrom(prompt)
            following.chat.messages.add(role="user", content=content)
            yield following
    else:
        yield submit


def _prompt_ids(submit: pb.Submit, tokenizer: Tokenizer, chat_format: ChatFormat) -> list[int]:
    return _prompt(submit, tokenizer, chat_format).token_ids


def detokenize(token_ids: pb.TokenIds, tokenizer: Tokenizer) -> pb.DetokenizeReply:
    """Return the text of token ids. Raises ``RequestError``."""
    if max(token_ids.ids, default=0) >= tokenizer.vocab_size:
        raise RequestError(
            "invalid_value",
            f"tokens holds {max(token_ids.ids)}, but the vocabulary has {tokenizer.vocab_size} tokens.",
            f"Use token ids from 0 to {tokenizer.vocab_size - 1}.",
            param="tokens",
        )
    return pb.DetokenizeReply(text=tokenizer.decode(token_ids.ids, keep_special_tokens=True))


def constraint_of(submit: pb.Submit) -> Constraint | None:
    """Return a request's constraint, or None. Raises ``RequestError`` for a kind that this engine does not know."""
    if not submit.HasField("constraint"):
        return None
    wire = submit.constraint
    try:
        return Constraint(Kind(wire.kind), wire.text, wire.best_effort)
    except ValueError:
        raise RequestError(
            "invalid_constraint",
            f"This engine knows no constraint of kind {wire.kind}.",
            "Update the engine host.",
        ) from None


def is_compiled(submit: pb.Submit, chat_format: ChatFormat, grammars: Grammars) -> bool:
    """Return whether the answer's constraint is compiled already, or there is none."""
    if submit.HasField("chat") and chat_format.constrains(submit.chat, has_constraint=submit.HasField("constraint")):
        return False  # the grammar depends on the prompt
    try:
        constraint = constraint_of(submit)
    except RequestError:
        return True
    return constraint is None or grammars.find(constraint) is not None


def _slo(wire: pb.Slo) -> Slo:
    if not 0.0 <= wire.weight < float("inf"):  # also catches NaN
        raise RequestError(
            "invalid_value", f"slo.weight is {wire.weight}.", "Send a finite weight above 0.", param="slo.weight"
        )
    return Slo(
        first_token_ms=wire.first_token_ms,
        inter_token_ms=wire.inter_token_ms,
        weight=wire.weight or 1.0,
        priority=wire.priority,
        deadline_ms=wire.deadline_ms,
        max_running=wire.max_running,
        background=wire.background,
    )


def _prompt(submit: pb.Submit, tokenizer: Tokenizer, chat_format: ChatFormat, max_context: int | None = None) -> Prompt:
    kind, constraint = submit.WhichOneof("prompt"), constraint_of(submit)
    special = submit.add_special_tokens if submit.HasField("add_special_tokens") else kind == "text"
    if kind == "chat":
        chat_format = chat_format.of(submit.chat)
        text = chat_format.prompt(submit.chat)
        output = chat_format.output(submit.request_id, submit.chat, text, has_constraint=constraint is not None)
        ids = _encode(tokenizer, text, special, max_context)
        constraint = chat_format.constraint(submit.chat, output, constraint)
        reads = output if output.reads_something else None
        return Prompt(ids, constraint, reads, chat_format.shown_ids(output), chat_format.end_ids)
    if kind == "text":
        return Prompt(_encode(tokenizer, submit.text, special, max_context), constraint)
    if kind == "token_ids":
        return Prompt(list(submit.token_ids.ids), constraint)
    message = "The request has no prompt."
    raise RequestError("empty_prompt", message, "Send text, token ids or messages.", param="prompt")


def _sampling(wire: pb.Sampling) -> SamplingParams:
    if len(wire.stop) > MAX_STOPS or any(len(text) > MAX_STOP_CHARS for text in wire.stop):
        raise RequestError(
            "invalid_value",
            f"stop holds more than {MAX_STOPS} strings, or one of more than {MAX_STOP_CHARS} characters.",
            "Send fewer or shorter stop strings.",
            param="stop",
        )
    return SamplingParams(
        max_tokens=wire.max_tokens,
        temperature=wire.temperature,
        top_p=wire.top_p or 1.0,
        top_k=wire.top_k,
        min_p=wire.min_p,
        presence_penalty=wire.presence_penalty,
        frequency_penalty=wire.frequency_penalty,
        repetition_penalty=wire.repetition_penalty or 1.0,
        seed=wire.seed if wire.HasField("seed") else None,
        stop=tuple(wire.stop),
        stop_token_ids=tuple(wire.stop_token_ids),
        n=wire.n or 1,
        logprobs=wire.logprobs,
        top_logprobs=wire.top_logprobs,
        ignore_eos=wire.ignore_eos,
        logit_bias=dict(wire.logit_bias),
        include_stop=wire.include_stop,
        min_tokens=wire.min_tokens,
        keep_special_tokens=wire.keep_special_tokens,
    )


def _ended_at(sampling: SamplingParams, end_ids: tuple[int, ...]) -> SamplingParams:
    """Add the template's end tokens to the stop tokens, unless the request ignores ends."""
    if not end_ids or sampling.ignore_eos:
        return sampling
    return replace(sampling, stop_token_ids=tuple(dict.fromkeys((*sampling.stop_token_ids, *end_ids))))


def delta_message(delta: TokenDelta, echo_token_ids: bool, tokenizer: Tokenizer) -> pb.Delta:
    message = pb.Delta(
        request_id=delta.request_id,
        choice=delta.choice,
        text=delta.text,
        num_tokens=len(delta.token_ids),
        token_ids=delta.token_ids if echo_token_ids else (),
        logprobs=[_logprob(entry, tokenizer) for entry in delta.logprobs],
        finish_reason=delta.finish_reason,
    )
    if isinstance(delta.of_prompt, PromptLogprobs):
        message.prompt_logprobs.CopyFrom(_prompt_logprobs(delta.of_prompt, tokenizer))
    elif delta.of_prompt is not None:
        message.embedding = delta.of_prompt.values
    return message


def _prompt_logprobs(scores: PromptLogprobs, tokenizer: Tokenizer) -> pb.PromptLogprobs:
    top_ids = [token_id for ids in scores.top_ids for token_id in ids]
    return pb.PromptLogprobs(
        token_ids=scores.token_ids,
        logprobs=scores.logprobs,
        ranks=scores.ranks,
        num_top=max(map(len, scores.top_ids), default=0),
        top_ids=top_ids,
        top_logprobs=[logprob for logprobs in scores.top_logprobs for logprob in logprobs],
        token_bytes={token_id: tokenizer.token_bytes(token_id) for token_id in {*scores.token_ids, *top_ids}},
    )


def _logprob(entry: TokenLogprob, tokenizer: Tokenizer) -> pb.TokenLogprob:
    return pb.TokenLogprob(
        token_id=entry.token_id,
        token=tokenizer.token_text(entry.token_id),
        token_bytes=tokenizer.token_bytes(entry.token_id),
        logprob=entry.logprob,
        top=[
            pb.TopLogprob(
                token_id=token_id,
                token=tokenizer.token_text(token_id),
                token_bytes=tokenizer.token_bytes(token_id),
                logprob=logprob,
            )
            for token_id, logprob in entry.top
        ],
    )


def usage_message(usage: RequestUsage, error: RequestError | None) -> pb.UsageRecord:
    code = error.code if error else ""
    spans = [pb.PreemptionSpan(at_ms=at_ms, ms=ms) for at_ms, ms in usage.preemption_spans]
    return pb.UsageRecord(
        error_code=code, preemption_spans=spans, **{name: getattr(usage, name) for name in _USAGE_FIELDS}
    )


def error_message(error: RequestError | StageError) -> pb.EngineError:
    retry_after_ms = (1000 if error.passes else 0) if isinstance(error, StageError) else error.retry_after_ms
    return pb.EngineError(
        code=error.code,
        message=error.message,
        fix=error.fix,
        param="" if isinstance(error, StageError) else error.param,
        retry_after_ms=retry_after_ms,
    )


def page_map_message(pages: PageMap, boot_id: str) -> pb.PageMap:
    owners = [
        pb.PageOwner(
            kind=owner.kind.name,
            tenant=owner.tenant,
            adapter_digest=owner.adapter_digest,
            age_s=owner.age_s,
            pinned=owner.pinned,
        )
        for owner in pages.owners
    ]
    return pb.PageMap(
        boot_id=boot_id, unix_time=time.time(), owners=owners, owner_of=pages.owner_of, lengths=pages.lengths
    )


def tenant_message(share: TenantShare) -> pb.TenantShare:
    return pb.TenantShare(**{name: getattr(share, name) for name in _SHARE_FIELDS})


def newcomer_message(newcomer: Newcomer | None) -> pb.FirstTokenForecast | None:
    if newcomer is None:
        return None
    return pb.FirstTokenForecast(
        seconds=newcomer.seconds,
        prompt_token_s=newcomer.prompt_token_s,
        place_s=newcomer.place_s,
        free_places=newcomer.free_places,
    )


def gap_message(gap: ServiceGap | None) -> pb.ServiceGap | None:
    return gap if gap is None else pb.ServiceGap(gap=gap.gap, bound=gap.bound, ahead=gap.ahead, behind=gap.behind)


def load_time_message(time: LoadTime) -> pb.LoadTime:
    return pb.LoadTime(loads=time.loads, fixed_s=time.fixed_s, seconds_per_byte=time.seconds_per_byte)


def accuracy_message(accuracy: Accuracy) -> pb.ForecastAccuracy:
    return pb.ForecastAccuracy(requests=accuracy.requests, median=accuracy.median, p90=accuracy.p90)


def waiting_message(request: WaitingRequest) -> pb.WaitingRequest:
    return pb.WaitingRequest(
        request_id=request.request_id,
        tenant=request.tenant,
        adapter_digest=request.adapter_digest,
        waited_ms=round(request.waited_s * 1000),
        predicted_ms=max(1, round(request.predicted_s * 1000)) if request.predicted_s is not None else 0,
        reason=request.reason.code,
        text=request.reason.text,
    )


def stage_message(event: StageEvent) -> pb.StageEvent:
    return pb.StageEvent(
        phase=_PHASES[event.phase],
        bytes_done=event.bytes_done,
        bytes_total=event.bytes_total,
        error=error_message(event.error) if event.error else None,
        rank=event.rank,
        pool_pages=event.pool_pages,
    )
