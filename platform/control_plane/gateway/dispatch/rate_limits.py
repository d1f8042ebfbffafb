"""Limits at /v1: the reservation of a request, the refusal, and the rate limit headers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from control_plane.billing.limits.values import Counted
from control_plane.billing.quotas.budgets import NANOS_A_MICRO
from control_plane.billing.quotas.limiter_interface import OverLimit, Reading, Scope
from control_plane.billing.quotas.queries import OF_TENANT, PrincipalLimits
from control_plane.billing.quotas.reservations import LimitExceededError
from control_plane.core import config
from control_plane.gateway.dispatch.errors import ApiError, invalid
from lora_engine.wire import engine_pb2 as pb

# Bytes of text per token, for estimates before tokenization: the usual ratio of byte-level BPE on prose.
BYTES_PER_TOKEN = 4
# Tokens that a chat template adds to each message, for estimates.
TOKENS_PER_MESSAGE = 4
_WORDS = {
    Counted.REQUESTS_PER_MINUTE: "requests per minute",
    Counted.TOKENS_PER_MINUTE: "tokens per minute",
    Counted.TOKENS_PER_DAY: "tokens per day (UTC)",
    Counted.TOKENS_PER_MONTH: "tokens per month (UTC)",
    Counted.CONCURRENCY: "choices at once",
}

_WAYS_IN = {Counted.CONCURRENCY: ("n", "Set a smaller n or send fewer prompts in one request.")}


def bound_output(submits: Iterable[pb.Submit], limits: PrincipalLimits) -> None:
    """Refuse a request that names more output than the caller's limit; cap a request that names none."""
    allowed = limits.max_output_tokens
    if allowed is None:
        return
    for submit in submits:
        if submit.sampling.max_tokens > allowed:
            raise invalid(
                f"max_tokens is {submit.sampling.max_tokens}; the limit of this caller is {allowed} for one answer.",
                f"Ask for at most {allowed} tokens.",
                "max_tokens",
                "max_output_exceeded",
            )
        if not submit.prompt_only:
            submit.sampling.max_tokens = submit.sampling.max_tokens or allowed


def prompt_tokens(submits: Iterable[pb.Submit]) -> int:
    """Estimate the prompt tokens of a request.

    Only the engine has the tokenizer. A byte-level one makes about one token of four bytes of prose; if it makes more,
    the difference is charged when the request ends.
    """
    return sum(_prompt_tokens(submit) for submit in submits)


def output_tokens(submits: Iterable[pb.Submit]) -> int:
    """Return the most output tokens that a request allows."""
    return sum(_output_tokens(submit) for submit in submits)


def choices_of(submits: Iterable[pb.Submit]) -> int:
    """Return the number of sequences that a request runs at the same time."""
    return sum(max(1, submit.sampling.n) for submit in submits)


def _prompt_tokens(submit: pb.Submit) -> int:
    more = sum(_estimate(prompt.text) + len(prompt.token_ids.ids) for prompt in submit.more_prompts)
    return _first_prompt_tokens(submit) + more


def _first_prompt_tokens(submit: pb.Submit) -> int:
    kind = submit.WhichOneof("prompt")
    if kind == "token_ids":
        return len(submit.token_ids.ids) + _estimate(submit.suffix)
    if kind == "text":
        return _estimate(submit.text) + _estimate(submit.suffix)
    return _chat_tokens(submit.chat)


def _chat_tokens(chat: pb.Chat) -> int:
    """Estimate the tokens of a chat's messages and tools."""
    messages = sum(_message_tokens(message) + TOKENS_PER_MESSAGE for message in chat.messages)
    return messages + sum(_estimate(tool.name + tool.description + tool.parameters) for tool in chat.tools)


def _message_tokens(message: pb.ChatMessage) -> int:
    calls = "".join(call.name + call.arguments for call in message.tool_calls)
    return _estimate(message.content + message.reasoning + calls)


def _estimate(text: str) -> int:
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def _output_tokens(submit: pb.Submit) -> int:
    if submit.prompt_only:
        return 0
    each = submit.sampling.max_tokens or config.current().quota_output_tokens
    return each * max(1, submit.sampling.n)


def refused(error: LimitExceededError) -> ApiError:
    """Return 429 with the limit's name; 400 for a request larger than the limit itself, 403 if the limit is 0."""
    refusal = error.refusal
    whose = "this tenant" if refusal.scope.name == OF_TENANT else "this API key"
    limit = f"{refusal.allowed} {_WORDS[refusal.limit]} of {whose}"
    details = {
        "limit": refusal.limit.value,
        "scope": "tenant" if refusal.scope.name == OF_TENANT else "key",
        "allowed": refusal.allowed,
        "used": refusal.used,
        "requested": refusal.requested,
    }
    if refusal.requested > refusal.allowed:
        param, fix = _WAYS_IN.get(refusal.limit, ("max_tokens", "Set a smaller max_tokens or send a shorter prompt."))
        return ApiError(
            400 if refusal.allowed else 403,
            "exceeds_limit",
            f"The request may use {refusal.requested}, more than the limit of {limit} allows at all.",
            fix if refusal.allowed else "Ask an admin to raise it.",
            param,
            details=details,
        )
    return ApiError(
        429,
        "rate_limit_exceeded" if _passes_soon(refusal) else "quota_exceeded",
        f"Limit reached: {limit}; used {refusal.used}, requested {refusal.requested}.",
        f"Try again in {duration(refusal.wait_ms)}, or ask an admin to raise the limit.",
        retry_after_s=refusal.wait_ms / 1000,
        headers={"retry-after-ms": str(refusal.wait_ms), **rate_headers(error.scopes, error.readings)},
        details=details,
    )


def over_budget(error: LimitExceededError, currency: str) -> ApiError:
    """Return 402: clients do not retry it by themselves, as a retry fails until the day or month ends."""
    refusal = error.refusal
    whose, scope = ("this tenant", "tenant") if refusal.scope.name == OF_TENANT else ("this API key", "key")
    span = "day" if refusal.limit == Counted.TOKENS_PER_DAY else "month"
    allowed, used, requested = (nanos // NANOS_A_MICRO for nanos in (refusal.allowed, refusal.used, refusal.requested))
    return ApiError(
        402,
        "budget_exceeded",
        f"The budget of {whose} for the {span} (UTC), {_amount(allowed, currency)}, does not hold this request: "
        f"{_amount(used, currency)} is spent or set aside, and it may cost {_amount(requested, currency)}.",
        f"A new {span} begins in {duration(refusal.wait_ms)}. Before that: set a smaller max_tokens, or have an "
        "admin of the tenant, or the operator, raise the budget.",
        retry_after_s=refusal.wait_ms / 1000,
        details={
            "scope": scope,
            "span": span,
            "currency": currency,
            "allowed_micros": allowed,
            "used_micros": used,
            "requested_micros": requested,
        },
    )


def _amount(micros: int, currency: str) -> str:
    """Format an amount to the cent; below one cent, to the millionth."""
    return f"{currency} {micros / 1e6:.2f}" if micros >= 10_000 else f"{currency} {micros / 1e6:.6f}"


def _passes_soon(refusal: OverLimit) -> bool:
    return refusal.limit not in (Counted.TOKENS_PER_DAY, Counted.TOKENS_PER_MONTH)


def rate_headers(scopes: Sequence[Scope], readings: Sequence[Reading]) -> Mapping[str, str]:
    """Return OpenAI's `x-ratelimit-*` headers for the scope with the least left."""
    headers: dict[str, str] = {}
    for name, limit in (("requests", Counted.REQUESTS_PER_MINUTE), ("tokens", Counted.TOKENS_PER_MINUTE)):
        tightest = min(
            (
                (allowed - (reading.used(limit) or 0), allowed, reading)
                for scope, reading in zip(scopes, readings, strict=True)
                if (allowed := scope.limits.of(limit)) is not None
            ),
            key=lambda entry: entry[0],
            default=None,
        )
        if tightest is not None:
            left, allowed, reading = tightest
            reset_ms = reading.requests_reset_ms if name == "requests" else reading.tokens_reset_ms
            headers[f"x-ratelimit-limit-{name}"] = str(allowed)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, left))
            headers[f"x-ratelimit-reset-{name}"] = duration(reset_ms)
    return headers


def duration(milliseconds: int) -> str:
    """Format a duration as OpenAI does (`850ms`, `6s`, `2m30s`, `5h10m`), rounded up."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    seconds = math.ceil(milliseconds / 1000)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60}m"
