"""A client's request while it runs: one engine request per prompt, with choices numbered over all prompts."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Protocol, Self

from control_plane.adapters.registry.resolve import ResolvedModel
from control_plane.billing.quotas.budgets import counter_of
from control_plane.billing.quotas.reservations import LimitExceededError, RequestReservations, Reservation
from control_plane.billing.usage import request_ids
from control_plane.billing.usage.counters import Details
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core import traces
from control_plane.core.http.request_id import client_request_id, set_request_id
from control_plane.core.http.request_log import forget_dispatched, note_dispatched
from control_plane.core.jobs import clocks
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.answer_checks import CheckedSchemas
from control_plane.gateway.dispatch.constraint_checks import ConstraintVerdict, RequestedConstraint, tool_schemas
from control_plane.gateway.dispatch.dispatch import Dispatch
from control_plane.gateway.dispatch.rate_limits import (
    bound_output,
    choices_of,
    output_tokens,
    over_budget,
    prompt_tokens,
    rate_headers,
    refused,
)
from control_plane.gateway.dispatch.runtime import Runtime
from control_plane.gateway.recording.refusals import Undispatched
from control_plane.gateway.recording.transcripts import TranscriptBuffer
from control_plane.gateway.recording.usage import RequestContext, Settled
from lora_engine.wire import engine_pb2 as pb

# Names the fields of a request that were left out.
IGNORED_HEADER = "X-Lorikeet-Ignored"
# Names the keywords of schemas that are checked when an answer is finished.
CHECKED_HEADER = "X-Lorikeet-Checked-At-End"
# Maximum number of names in one header, and of the characters of each.
MAX_NAMES, LONGEST_NAME = 16, 64
_NOT_PLAIN = re.compile(r"[^\w.\[\]-]", re.ASCII)


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    return {IGNORED_HEADER: ", ".join(names)} if names else {}


def _header_name(name: str) -> str:
    """Return a name as a header may have it. Of a long path the end says more than the beginning."""
    return _NOT_PLAIN.sub("_", name)[-LONGEST_NAME:]


class GenerationParams(Protocol):
    """A validated request body of any endpoint that generates."""

    endpoint: ClassVar[ApiEndpoint]

    @property
    def choices(self) -> int: ...

    @property
    def ignored(self) -> Sequence[str]: ...

    @property
    def optional(self) -> Mapping[str, str]: ...

    @property
    def requested_constraint(self) -> RequestedConstraint | None: ...

    def submits(self) -> list[pb.Submit]: ...


class Generation:
    """A running request. Iterate over it for lists of chunks; ``usages`` is complete at the end.

    Leaving it early aborts everything that it started.
    """

    def __init__(self, admission: Admission, params: GenerationParams, request_id: str) -> None:
        self.admission = admission
        self.request_id = request_id
        self.created = int(time.time())
        self._choices = params.choices
        # Fields of the request that were left out. A dispatch may add some until its first output.
        self.ignored = list(params.ignored)
        self.schemas = CheckedSchemas()
        self.reserved = RequestReservations()
        self._dispatches: list[Dispatch] = []  # one for each prompt
        self._reads: dict[asyncio.Future[list[Chunk]], int] = {}  # pending reads of several prompts: prompt index

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Abort everything that still runs. Idempotent."""
        for read in self._reads:
            read.cancel()
        for dispatch in self._dispatches:
            dispatch.close()

    def abort(self) -> None:
        """Ask for an early end; iterate further for the output made until then."""
        for dispatch in self._dispatches:
            dispatch.abort()

    @property
    def usages(self) -> list[pb.UsageRecord]:
        return [dispatch.usage for dispatch in self._dispatches if dispatch.usage is not None]

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers with what remains of the caller's limits, and the fields of the request that were left out."""
        limits = self.reserved.limits
        rates = rate_headers(limits.request.scopes, limits.readings) if limits else {}
        places = self.schemas.places
        checked = {CHECKED_HEADER: ", ".join(map(_header_name, places[:MAX_NAMES]))} if places else {}
        return {**rates, **ignored_header(self.ignored), **checked}

    def note(self, requested: RequestedConstraint, verdict: ConstraintVerdict) -> None:
        """Note what a grammar does not enforce of a constraint."""
        names = [_header_name(name) for name in verdict.ignored]
        room = max(0, MAX_NAMES - len(self.ignored))
        self.ignored += [name for name in dict.fromkeys(names) if name not in self.ignored][:room]
        if not verdict.checked_at_end:
            return
        self.schemas.places += [f"{requested.param}.{path}" for path in verdict.checked_at_end]
        if requested.function:
            self.schemas.functions[requested.function] = requested.constraint.text
        else:
            self.schemas.answer = requested.constraint.text

    def add(self, dispatch: Dispatch) -> None:
        """Add one prompt, which was sent."""
        self._dispatches.append(dispatch)

    def retract(self) -> None:
        """Drop the request without recording usage: it was refused after admission."""
        forget_dispatched(self.request_id)
        for dispatch in self._dispatches:
            dispatch.retract()
        self.close()

    def __aiter__(self) -> AsyncIterator[list[Chunk]]:
        # A single prompt, which is nearly every request, needs none of the tasks that merging costs.
        return self._dispatches[0] if len(self._dispatches) == 1 else self._merged()

    async def _merged(self) -> AsyncIterator[list[Chunk]]:
        reads = self._reads
        for index, dispatch in enumerate(self._dispatches):
            reads[asyncio.ensure_future(_next(dispatch))] = index
        try:
            while reads:
                done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for read in done:
                    index = reads.pop(read)
                    if chunks := read.result():
                        yield self._renumbered(chunks, index)
                        reads[asyncio.ensure_future(_next(self._dispatches[index]))] = index
        except HostError as failure:
            for dispatch in self._dispatches:
                dispatch.give_up(failure)
            self.close()
            raise

    def _renumbered(self, chunks: list[Chunk], index: int) -> list[Chunk]:
        for chunk in chunks:
            chunk.choice += index * self._choices
        return chunks


async def _next(dispatch: Dispatch) -> list[Chunk]:
    return await anext(dispatch, [])


async def begin(
    runtime: Runtime,
    admission: Admission,
    params: GenerationParams,
    *,
    streamed: bool,
    request_id: str = "",
    pending: Undispatched | None = None,
    keep: Callable[[Settled], object] | None = None,
) -> Generation:
    """Reserve the request's tokens and cost, and send its prompts to the hosts.

    With ``pending`` it is a request by HTTP, whose answer and errors have its id. With ``keep``, which receives the
    usage, it is a line of a batch, and runs when no other request waits.

    Raises ``ApiError`` or ``LorikeetError`` if limits refuse it, ``HostError``; then nothing is left running.
    """
    principal, endpoint, batch = admission.principal, params.endpoint, keep is not None
    request_id = request_id or request_ids.make(principal, endpoint, streamed=streamed, batch=batch)
    if pending is not None:
        set_request_id(request_id)
    admission = admission.for_request(request_id)
    generation = Generation(admission, params, request_id)
    created_at = clocks.now() - timedelta(seconds=admission.took_s)
    keeps_text = await runtime.admission_cache.keeps_text(principal.tenant)
    submits = params.submits()
    if (constraint := params.requested_constraint) is not None:
        generation.note(constraint, await runtime.constraint_checks.check(constraint, str(principal.tenant.pk)))
        for submit in submits:
            submit.constraint.CopyFrom(constraint.wire())
    for schema in tool_schemas(submits):
        generation.note(schema, await runtime.constraint_checks.check(schema, str(principal.tenant.pk)))
    bound_output(submits, admission.limits)
    began = time.monotonic()
    generation.reserved = await reserve(runtime, admission, request_id, submits, batch=batch)
    details = Details(auth_ms=_ms(admission.took_s), quota_ms=_ms(time.monotonic() - began))
    context = RequestContext(
        endpoint,
        streamed,
        created_at,
        details,
        keep,
        "" if batch else traces.parent(),
        generation.ignored,
        params.optional,
        generation.schemas or None,
        "" if batch else client_request_id(),
    )
    try:
        for index, submit in enumerate(submits):
            submit.request_id = (
                request_id if index == 0 else request_ids.make(principal, endpoint, streamed=streamed, batch=batch)
            )
            _address(submit, admission, background=batch)
            dispatch = Dispatch(runtime, admission, context, submit, generation.reserved)
            # Further prompts follow the first, whose output is not read before all are sent.
            await dispatch.begin(waits=index == 0)
            if keeps_text:
                dispatch.transcript = TranscriptBuffer(principal, submit, created_at)
            generation.add(dispatch)
        note_dispatched(request_id)
    except BaseException:
        generation.retract()
        raise
    finally:
        runtime.sent(generation.reserved)
    if pending is not None:
        pending.dispatched()
    return generation


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


async def reserve(
    runtime: Runtime, admission: Admission, request_id: str, submits: Sequence[pb.Submit], *, batch: bool = False
) -> RequestReservations:
    """Reserve tokens and cost, both or neither. Raises ``ApiError`` if a limit or a budget refuses the request."""
    budgets = await _reserve_money(runtime, admission, request_id, submits, batch=batch)
    try:
        return RequestReservations(await _reserve_tokens(runtime, admission, request_id, submits), budgets)
    except BaseException:
        runtime.sent(RequestReservations(budgets=budgets))  # no engine request follows: release the money
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


def apply_adapter_template(submit: pb.Submit, model: ResolvedModel) -> None:
    """Make the engine render the messages with the adapter's chat template, if the adapter came with one."""
    template = model.chat_template if submit.HasField("chat") else None
    if template is not None:
        submit.chat.own_template.CopyFrom(pb.ChatTemplate(**template))


def _address(submit: pb.Submit, admission: Admission, *, background: bool) -> None:
    """Fill in the tenant, the adapter and the service level of an engine request."""
    tenant, targets = admission.principal.tenant, admission.targets
    submit.tenant = str(tenant.pk)
    submit.adapter_digest = admission.model.digest
    submit.adapter_dtype = admission.model.adapter_dtype
    submit.model = admission.model.recorded_name
    submit.base_digest = admission.base_digest
    apply_adapter_template(submit, admission.model)
    if background:
        submit.slo.CopyFrom(pb.Slo(weight=tenant.weight, background=True))  # no latency objective
        return
    submit.slo.CopyFrom(
        pb.Slo(
            first_token_ms=targets.first_token_ms or 0,
            inter_token_ms=targets.inter_token_ms or 0,
            weight=tenant.weight,
            priority=submit.slo.priority,
        )
    )
