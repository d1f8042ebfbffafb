"""Answers and errors in LoRAX's shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import Generation
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.lorax.request import LoraxRequest
from control_plane.gateway.openai.response_writers import Choice
from lora_engine.wire import engine_pb2 as pb

Json = dict[str, Any]
# Error types from which LoRAX's client makes its exceptions; for other errors it uses the status.
_ERROR_TYPES = {400: "validation", 413: "validation", 422: "validation", 500: "generation", 503: "overloaded"}


def error_body(error: ApiError) -> Json:
    body: Json = {"error": f"{error.message} {error.fix}".strip(), "code": error.code, "fix": error.fix}
    return {**body, "error_type": _ERROR_TYPES[error.status]} if error.status in _ERROR_TYPES else body


def answer(request: LoraxRequest, generation: Generation, choice: Choice) -> Json:
    """Return the body of a complete answer."""
    body: Json = {"generated_text": _full(request, choice.text)}
    if request.parameters.details:
        tokens = [_token(entry, entry.token) for entry in choice.logprobs]
        body["details"] = {**_details(request, generation, choice), "prefill": [], "tokens": tokens}
    return body


def _full(request: LoraxRequest, text: str) -> str:
    return request.inputs + text if request.parameters.return_full_text else text


def _details(request: LoraxRequest, generation: Generation, choice: Choice) -> Json:
    usages = generation.usages
    return {
        "finish_reason": request.finish_reason(choice.text, choice.finish_reason),
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "generated_tokens": sum(usage.completion_tokens for usage in usages),
        "seed": request.parameters.seed,
        **({"schema_violations": choice.violations} if choice.violations else {}),
    }


def _token(entry: pb.TokenLogprob, text: str) -> Json:
    return {"id": entry.token_id, "text": text, "logprob": entry.logprob, "special": False}


class TokenWriter:
    """A writer of the events of a stream: one for each token, the last with the whole text and its details."""

    def __init__(self, request: LoraxRequest, generation: Generation) -> None:
        self._request, self._generation = request, generation
        self._whole = Choice()
        self._last: Json = {"id": 0, "text": "", "logprob": 0.0, "special": True}

    def write(self, chunks: Sequence[Chunk]) -> bytes:
        tokens: list[Json] = []
        for chunk in chunks:
            self._whole.add(chunk)
            tokens += _tokens(chunk)
            if chunk.finish_reason and tokens:
                self._last = tokens.pop()
        return b"".join(_event({"token": token, "generated_text": None, "details": None}) for token in tokens)

    def error(self, error: ApiError) -> bytes:
        return _event(error_body(error))

    async def settle(self) -> None:
        """Do nothing: a LoRAX answer needs no work after its end."""

    def end(self) -> bytes:
        details = _details(self._request, self._generation, self._whole)
        text = _full(self._request, self._whole.text)
        return _event({"token": self._last, "generated_text": text, "details": details})


def _tokens(chunk: Chunk) -> list[Json]:
    """Return the tokens of a chunk. If the tokens' texts do not add up to the chunk's, the last token gets all the
    text.
    """
    entries = chunk.logprobs
    apart = "".join(entry.token for entry in entries) == chunk.text
    return [_token(entry, entry.token if apart else chunk.text if entry is entries[-1] else "") for entry in entries]


def _event(body: Json) -> bytes:
    return b"data:" + encode(body).encode() + b"\n\n"
