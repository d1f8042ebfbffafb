"""A client's request while it runs: one engine request for each of its prompts, choices numbered through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Protocol, Self

from control_plane.adapters.registry.resolve import ResolvedModel
from control_plane.billing.quotas.budgets import counter_of
from control_plane.billing.quotas.reservations import Held, LimitExceededError, Reservation
from control_plane.billing.usage import request_ids
from control_plane.billing.usage.counters import Details
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core import traces
from control_plane.core.jobs import clocks
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.constraint_checks import AskedConstraint, tool_schemas
from control_plane.gateway.dispatch.dispatch import Dispatch
from control_plane.gateway.dispatch.limits import (
    bound_output,
    choices_of,
    output_tokens,
    over_budget,
    prompt_tokens,
    rate_headers,
    refused,
)
from control_plane.gateway.dispatch.runtime import Runtime
from control_plane.gateway.recording.transcripts import OutputStream
from control_plane.gateway.recording.usage import RequestContext, Settled
from lora_engine.wire import engine_pb2 as pb


class GenerationRequest(Protocol):
    """A checked body of either endpoint."""

    endpoint: ClassVar[ApiEndpoint]

    @property
    def choices(self) -> int: ...

    @property
    def asked_constraint(self) -> AskedConstraint | None: ...

    def submits(self) -> list[pb.Submit]: ...


class Generation:
    """Iterate for lists of chunks; ``usages`` is filled at the end. Leaving it early aborts everything it started."""

    def __init__(self, admission: Admission, request: GenerationRequest, request_id: str) -> None:
        self.admission = admission
        self.request_id = request_id
        self.created = int(time.time())
        self._choices = request.choices
        self.held = Held()
        self._streams: list[OutputStream] = []
        self._reads: dict[asyncio.Future[list[Chunk]], int] = {}  # of several prompts: the next chunks of each
        self._dispatches: list[Dispatch] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        for read in self._reads:
            read.cancel()
        for stream in self._streams:
            stream.close()

    def abort(self) -> None:
        """Ask for an early end; iterate on for what was made until then."""
        for stream in self._streams:
            stream.abort()

    @property
    def usages(self) -> list[pb.UsageRecord]:
        return [stream.usage for stream in self._streams if stream.usage is not None]

    @property
    def headers(self) -> Mapping[str, str]:
        """What is left of the caller's limits."""
        limits = self.held.limits
        return rate_headers(limits.ask.scopes, limits.readings) if limits else {}

    def add(self, dispatch: Dispatch, stream: OutputStream) -> None:
        """`stream` is the dispatch, or what records it."""
        self._dispatches.append(dispatch)
        self._streams.append(stream)

    def retract(self) -> None:
        """The request is refused after all: what was sent of it is no usage."""
        for dispatch in self._dispatches:
            dispatch.retract()
        self.close()

    def __aiter__(self) -> AsyncIterator[list[Chunk]]:
        # A single prompt, which is nearly every request, goes without the tasks that merging needs.
        return aiter(self._streams[0]) if len(self._streams) == 1 else self._merged()

    async def _merged(self) -> AsyncIterator[list[Chunk]]:
        reads = self._reads
        for index, stream in enumerate(self._streams):
            reads[asyncio.ensure_future(_next(stream))] = index
        try:
            while reads:
                done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for read in done:
                    index = reads.pop(read)
                    if chunks := read.result():
                        yield self._renumbered(chunks, index)
                        reads[asyncio.ensure_future(_next(self._streams[index]))] = index
        except HostError as failure:
            for dispatch in self._dispatches:
                dispatch.give_up(failure)
            self.close()
            raise

    def _renumbered(self, chunks: list[Chunk], index: int) -> list[Chunk]:
        for chunk in chunks:
            chunk.choice += index * self._choices
        return chunks


async def _next(stream: OutputStream) -> list[Chunk]:
    return await anext(stream, [])


async def begin(
    runtime: Runtime,
    admission: Admission,
    request: GenerationRequest,
    *,
    streamed: bool,
    request_id: str = "",
    keep: Callable[[Settled], object] | None = None,
) -> Generation:
    """Reserve what it may use and send everything to the hosts. With ``keep``, which takes its usage, it is a line of a
    batch, and runs when nobody else's request waits.

    Raises ``ApiError`` or ``LorikeetError`` if limits refuse it, ``HostError``; then nothing is left running.
    """
    principal, endpoint, batch = admission.principal, request.endpoint, keep is not None
    request_id = request_id or request_ids.make(principal, endpoint, streamed=streamed, batch=batch)
    admission = admission.for_request(request_id)
    generation = Generation(admission, request, request_id)
    created_at = clocks.now() - timedelta(seconds=admission.took_s)
    keeps_text = await runtime.admission_cache.keeps_text(principal.tenant)
    submits = request.submits()
    if (asked := request.asked_constraint) is not None:
        await runtime.constraint_checks.check(asked, str(principal.tenant.pk))
        for submit in submits:
            submit.constraint.CopyFrom(asked.wire())
    for schema in tool_schemas(submits):
        await runtime.constraint_checks.check(schema, str(principal.tenant.pk))
    bound_output(submits, admission.limits)
    began = time.monotonic()
    generation.held = await reserve(runtime, admission, request_id, submits, batch=batch)
    details = Details(auth_ms=_ms(admission.took_s), quota_ms=_ms(time.monotonic() - began))
    context = RequestContext(
        principal, admission.model, endpoint, streamed, created_at, details, keep, "" if batch else traces.parent()
    )
    try:
        for index, submit in enumerate(submits):
            submit.request_id = (
                request_id if index == 0 else request_ids.make(principal, endpoint, streamed=streamed, batch=batch)
            )
            dispatch = Dispatch(
                runtime, admission, context, _addressed(submit, admission, background=batch), generation.held
            )
            # The others of a request follow its first, whose answer nobody reads before all are sent.
            await dispatch.begin(waits=index == 0)
            stream: OutputStream = dispatch
            if keeps_text:
                stream = runtime.transcripts.record(dispatch, principal, submit, context.created_at)
            generation.add(dispatch, stream)
    except BaseException:
        generation.retract()
        raise
    finally:
        runtime.sent(generation.held)
    return generation


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


async def reserve(
    runtime: Runtime, admission: Admission, request_id: str, submits: Sequence[pb.Submit], *, batch: bool = False
) -> Held:
    """Set aside what it may use and cost: both or nothing. Raises ``ApiError`` if a limit or a budget refuses it."""
    budgets = await _reserve_money(runtime, admission, request_id, submits, batch=batch)
    try:
        return Held(await _reserve_tokens(runtime, admission, request_id, submits), budgets)
    except BaseException:
        runtime.sent(Held(budgets=budgets))  # nothing of it runs: it costs nothing
        raise


async def _reserve_money(
    runtime: Runtime, admission: Admission, request_id: str, submits: Sequence[pb.Submit], *, batch: bool
) -> Reservation | None:
    budgets, tenant = admission.budgets, admission.principal.tenant
    if budgets.currency is None or not submits:
        return None
    base = admission.base_model_id
    most = budgets.most_nanos(base, prompt=prompt_tokens(submits), completion=output_tokens(submits), batch=batch)
    try:
        return await runtime.budgets.reserve(request_id, counter_of(tenant.pk), budgets.scopes, most)
    except LimitExceededError as error:
        raise over_budget(error, budgets.currency) from None


async def _reserve_tokens(
    runtime: Runtime, admission: Admission, request_id: str, submits: Sequence[pb.Submit]
) -> Reservation | None:
    principal = admission.principal
    scopes = admission.limits.scopes(principal.api_key.pk if principal.api_key else None)
    if not scopes:
        return None
    tokens = prompt_tokens(submits) + output_tokens(submits)
    try:
        return await runtime.reservations.reserve(
            request_id, str(principal.tenant.pk), scopes, tokens, choices_of(submits)
        )
    except LimitExceededError as error:
        raise refused(error) from None


def write_by_own_template(submit: pb.Submit, model: ResolvedModel) -> None:
    """Have the adapter's own chat template write the messages, if it came with one."""
    own = model.chat_template if submit.HasField("chat") else None
    if own is not None:
        submit.chat.own_template.CopyFrom(pb.ChatTemplate(**own))


def _addressed(submit: pb.Submit, admission: Admission, *, background: bool) -> pb.Submit:
    """With who asks and what for."""
    tenant, targets = admission.principal.tenant, admission.targets
    submit.tenant = str(tenant.pk)
    submit.adapter_digest = admission.model.digest
    submit.base_digest = admission.base_digest
    write_by_own_template(submit, admission.model)
    if background:
        submit.slo.CopyFrom(pb.Slo(weight=tenant.weight, background=True))  # no objective: nobody waits for it
        return submit
    submit.slo.CopyFrom(
        pb.Slo(
            first_token_ms=targets.first_token_ms or 0,
            inter_token_ms=targets.inter_token_ms or 0,
            weight=tenant.weight,
            priority=submit.slo.priority,
        )
    )
    return submit
