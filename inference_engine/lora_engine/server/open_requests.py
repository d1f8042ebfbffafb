"""The open requests of all sessions: from ``Submit`` to the engine, and from its output to ``Finished``."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from lora_engine.adapters.staging import AdapterTiers
from lora_engine.errors import RequestError
from lora_engine.request import GenerationRequest, RequestFinished, RequestUsage, StepOutput
from lora_engine.scheduling.sequence import detokenizer_for
from lora_engine.text import Tokenizer
from lora_engine.text.output import ChatOutput, ChoiceParser
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.prompt_prefixes import RecentPrefixes, prefix_marks

from .chat import read_into
from .engine_loop import EngineLoop, on_event_loop
from .input_processor import InputProcessor
from .journal import UsageJournal
from .lifecycle import Lifecycle
from .messages import delta_message, error_message, usage_message
from .metrics import AdapterLoad, HostMetrics
from .session import ClientSession

log = logging.getLogger(__name__)

# Seconds over which the token rate is measured.
_RATE_WINDOW_S = 2.0
_UNREADABLE = RequestError("invalid_request", "The engine could not read this request.",
                           "Check the prompt and the sampling values.")  # fmt: skip


@dataclass(slots=True)
class OpenRequest:
    """A request between Submit and Finished. ``session`` is None once its client has disconnected."""

    submit: pb.Submit
    session: ClientSession | None
    submitted_unix: float
    handle: int = 0  # in its session
    adapter: str = ""  # key of its adapter in the dtype that serves it
    is_in_engine: bool = False
    is_aborted: bool = False
    prompt: pb.PromptDescription | None = None  # sent with its first delta
    output: ChatOutput | None = None
    parsers: dict[int, ChoiceParser] = field(default_factory=dict)
    finish_reasons: set[str] = field(default_factory=set)
    prompt_tokens: int = 0  # in the engine; 0 again once they are computed

    @property
    def has_plain_output(self) -> bool:
        """True if tokens' texts are sent unchanged and the client accepts ``PlainTokens``."""
        return self.handle > 0 and self.output is None and self.prompt is None

    def resume(self, request: GenerationRequest, tokenizer: Tokenizer) -> None:
        """Feed the parsers with the text that another host has already delivered; nothing of it is sent."""
        for part in request.so_far if self.output is not None else ():
            parser, text = self._parser(part.choice), detokenizer_for(request, tokenizer)
            for token_id in part.token_ids:
                parser.feed(text.append(token_id))

    def read(self, message: pb.Delta) -> None:
        """Split a delta's text into reasoning, text and tool calls, if the answer is parsed."""
        if self.output is None:
            return
        parser = self._parser(message.choice)
        parsed = parser.finish(message.text) if message.finish_reason else parser.feed(message.text)
        read_into(message, parsed, has_calls=parser.has_calls)

    def _parser(self, choice: int) -> ChoiceParser:
        assert self.output is not None
        if choice not in self.parsers:
            self.parsers[choice] = self.output.choice(choice)
        return self.parsers[choice]


class OpenRequests:
    """The requests of all sessions between Submit and Finished. It lives on the event loop."""

    def __init__(
        self,
        engine: EngineLoop,
        inputs: InputProcessor,
        tiers: AdapterTiers,
        journal: UsageJournal,
        lifecycle: Lifecycle,
        metrics: HostMetrics,
        prefixes: RecentPrefixes,
    ) -> None:
        self._engine = engine
        self._inputs = inputs
        self._tiers = tiers
        self._journal = journal
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._prefixes = prefixes
        self._open: dict[str, OpenRequest] = {}
        self._being_recorded = 0  # finished requests whose usage is being written
        self._generated: deque[tuple[float, int]] = deque()

    @property
    def idle(self) -> bool:
        """True if no request is open and no usage is being written to the journal."""
        return not self._open and not self._being_recorded

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second, over the last two seconds."""
        since = time.monotonic() - _RATE_WINDOW_S
        while self._generated and self._generated[0][0] < since:
            self._generated.popleft()
        return sum(tokens for _, tokens in self._generated) / _RATE_WINDOW_S

    def adapters(self) -> dict[str, AdapterLoad]:
        """Return the adapters with open requests, by digest."""
        names = {open_request.submit.adapter_digest: open_request.submit.model for open_request in self._open.values()}
        names.pop("", None)
        counts = Counter(open_request.submit.adapter_digest for open_request in self._open.values())
        return {digest: AdapterLoad(name or digest[:19], counts[digest]) for digest, name in names.items()}

    def submit(self, session: ClientSession, submit: pb.Submit) -> None:
        """Accept a request. Any error becomes its ``Finished``."""
        adapter = self._tiers.dtypes.key(submit.adapter_digest, submit.adapter_dtype)
        open_request = OpenRequest(submit, session, time.time(), submit.handle, adapter)
        if error := self._refusal(submit):
            self._refuse(open_request, error)
            return
        self._open[submit.request_id] = open_request
        session.requests.add(submit.request_id)
        if adapter:
            self._tiers.acquire(adapter)

        def convert() -> GenerationRequest:
            request, open_request.output = self._inputs.convert(submit, adapter)
            open_request.resume(request, self._inputs.tokenizer)
            if submit.describe_prompt:
                ids = request.prompt_token_ids
                open_request.prompt = pb.PromptDescription(token_ids=ids, text=self._inputs.tokenizer.decode(ids))
            return request

        threads = self._inputs.threads_for(submit)
        if threads is None:
            self._enter(open_request, convert)
        else:
            threads.submit(submit.tenant, convert).add_done_callback(
                lambda done: self._enter(open_request, done.result)
            )

    def abort(self, session: ClientSession, request_id: str) -> None:
        """End a request of this session early; unknown ids are ignored."""
        if request_id in session.requests and (open_request := self._open.get(request_id)):
            self._abort(open_request)

    def close_session(self, session: ClientSession) -> None:
        """End the requests of a client that disconnected; their usage stays in the journal."""
        for request_id in session.requests:
            if open_request := self._open.get(request_id):
                open_request.session = None
                self._abort(open_request)

    def abort_all(self) -> None:
        for open_request in list(self._open.values()):
            self._abort(open_request)

    def take(self, output: StepOutput) -> None:
        """Send a step's output, grouped into one message per session."""
        tokens = 0
        for delta in output.deltas:
            open_request = self._open.get(delta.request_id)
            if open_request is None:
                continue
            tokens += len(delta.token_ids)
            if open_request.prompt_tokens:
                self._note_prefill(open_request)
            if open_request.session is None:
                open_request.finish_reasons.add(delta.finish_reason)
            elif not (
                delta.is_plain
                and open_request.has_plain_output
                and open_request.session.add_plain(output.step, open_request.handle, delta.text, delta.token_ids[0])
            ):
                message = delta_message(delta, open_request.submit.echo_token_ids, self._inputs.tokenizer)
                if open_request.prompt is not None:
                    message.prompt.CopyFrom(open_request.prompt)
                    open_request.prompt = None
                open_request.read(message)
                open_request.finish_reasons.add(message.finish_reason)
                open_request.session.add_delta(output.step, message, open_request.handle)
        if tokens:
            self._generated.append((time.monotonic(), tokens))
        if output.finished:
            self._finish(output.step, output.finished)

    def _refusal(self, submit: pb.Submit) -> RequestError | None:
        request_id, digest = submit.request_id, submit.adapter_digest
        if not request_id:
            return RequestError("invalid_request", "The request has no id.", "Give every request a unique request_id.",
                                param="request_id")  # fmt: skip
        if request_id in self._open or request_id in self._journal:
            return RequestError("duplicate_request", f"Request id {request_id} was used before.",
                                "Use a new request id for every request.", param="request_id")  # fmt: skip
        if error := self._inputs.reject_base(submit.base_digest):
            return error
        if error := self._lifecycle.refusal("takes no new requests", "Send the request to another host, or try again."):
            return error
        if self._journal.failing:
            return RequestError("journal_unavailable", "This host cannot write its usage journal.",
                                "Free space on the engine host's disk.", retry_after_ms=5000)  # fmt: skip
        if digest and not self._tiers.knows(digest):
            error = self._tiers.load_error(digest)
            return error or RequestError(
                "adapter_not_found",
                f"The adapter {digest[:80]} is not on this host.",
                "Stage the adapter on this host, or send the request to a host that has it.",
                param="model",
                retry_after_ms=1000,
            )
        return None

    def _refuse(self, open_request: OpenRequest, error: RequestError) -> None:
        """Answer a request that never reached the engine; there is no usage to record."""
        finished = self._unstarted(open_request, "refused", error)
        self._answer(open_request, 0, finished, usage_message(finished.usage, error))

    def _unstarted(self, open_request: OpenRequest, outcome: str, error: RequestError | None = None) -> RequestFinished:
        submit = open_request.submit
        usage = RequestUsage(submit.request_id, submit.tenant, submit.adapter_digest, outcome=outcome,
                             submitted_unix=open_request.submitted_unix, finished_unix=time.time())  # fmt: skip
        return RequestFinished(submit.request_id, usage, error)

    def _enter(self, open_request: OpenRequest, convert: Callable[[], GenerationRequest]) -> None:
        """Pass the converted request to the engine, unless it cannot be served or its client has aborted it."""
        try:
            request = convert()
        except asyncio.CancelledError:  # this process ends
            return
        except Exception as cause:
            error = cause if isinstance(cause, RequestError) else _UNREADABLE
            if error is not cause:
                log.exception("a request could not be read", extra={"request_id": open_request.submit.request_id})
            self._close(open_request)
            self._refuse(open_request, error)
            return
        if open_request.is_aborted:
            self._finish(0, [self._unstarted(open_request, "aborted")])
        else:
            open_request.is_in_engine, open_request.prompt_tokens = True, len(request.prompt_token_ids)
            self._engine.submit(request)

    def _abort(self, open_request: OpenRequest) -> None:
        open_request.is_aborted = True
        if open_request.is_in_engine:
            self._engine.abort(open_request.submit.request_id)

    def _close(self, open_request: OpenRequest) -> None:
        del self._open[open_request.submit.request_id]
        if open_request.adapter:
            self._tiers.release(open_request.adapter)

    def _note_prefill(self, open_request: OpenRequest) -> None:
        """Record that a request's prompt is computed."""
        if self._prefixes.enabled:
            self._prefixes.used(prefix_marks(open_request.submit), open_request.prompt_tokens)
        open_request.prompt_tokens = 0

    def _finish(self, step: int, finished: Iterable[RequestFinished]) -> None:
        """Write usage to the journal, then send ``Finished``. Refused requests have no usage."""
        used = []
        for item in finished:
            open_request = self._open.get(item.request_id)
            if open_request is None:
                continue
            self._close(open_request)
            item.usage.adapter_digest = open_request.submit.adapter_digest
            item.usage.submitted_unix = item.usage.submitted_unix or open_request.submitted_unix
            item.usage.finished_unix = item.usage.finished_unix or time.time()
            record = usage_message(item.usage, item.error)
            record.finish_reason = ",".join(sorted(open_request.finish_reasons - {""}))
            if item.usage.outcome == "refused":
                self._answer(open_request, step, item, record)
            else:
                used.append((open_request, item, record))
        if used:
            self._being_recorded += len(used)
            records = [record for _, _, record in used]
            self._journal.append(records, on_event_loop(partial(self._recorded, step, used)))

    def _recorded(self, step: int, used: list[tuple[OpenRequest, RequestFinished, pb.UsageRecord]]) -> None:
        self._being_recorded -= len(used)
        for open_request, item, record in used:
            self._answer(open_request, step, item, record)

    def _answer(self, open_request: OpenRequest, step: int, item: RequestFinished, record: pb.UsageRecord) -> None:
        submit, error = open_request.submit, item.error
        tokens_before = sum(len(part.token_ids) for part in submit.so_far)
        self._metrics.count(item, submit.slo.inter_token_ms, tokens_before, submit.model)
        if error:
            context = {
                "request_id": submit.request_id,
                "tenant": submit.tenant,
                "adapter_digest": submit.adapter_digest,
                "code": error.code,
            }
            log.info("%s: %s", item.usage.outcome, error.message, extra=context)
        if open_request.session is not None:
            message = pb.Finished(
                request_id=item.request_id, usage=record, error=error_message(error) if error else None
            )
            open_request.session.add_finished(step, message)
