"""``/v1/embeddings``: a vector for each input, from the base model or an adapter."""

from __future__ import annotations

import array
import asyncio
import base64
import sys
from typing import Annotated, ClassVar, Literal

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from pydantic import BaseModel, ConfigDict, Field

from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.http.json_body import read_object
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.constraint_checks import RequestedConstraint
from control_plane.gateway.dispatch.generation import Generation, begin
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.callers import admission_of
from control_plane.gateway.openai.completion_request import TokenPrompt
from control_plane.gateway.openai.model_names import LONGEST, ModelName
from control_plane.gateway.openai.parameters import CacheSalt, read_parameters
from control_plane.gateway.openai.serving import endpoint, idempotent, refuses_unknown, undispatched
from control_plane.gateway.openai.unions import TEXTS_OR_TOKENS, tag
from control_plane.gateway.openai.unknown_fields import RequestBody
from control_plane.gateway.recording.refusals import Undispatched
from lora_engine.wire import engine_pb2 as pb

# Maximum number of inputs of one request, as in OpenAI's API.
MAX_INPUTS = 2048
_POOLING = {"last": pb.Pooling.LAST, "mean": pb.Pooling.MEAN}
# Parameters in engine errors that stand for the input.
_INPUT = frozenset({"prompt", "messages", "max_tokens"})
# Vectors written before the event loop runs other tasks.
_VECTORS_PER_SLICE = 32

Text = Annotated[str, Field(min_length=1)]


Input = Annotated[
    Annotated[Text, tag("text")]
    | Annotated[list[Text], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True), tag("texts")]
    | Annotated[TokenPrompt, tag("tokens")]
    | Annotated[list[TokenPrompt], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True), tag("token_lists")],
    TEXTS_OR_TOKENS,
]


class EmbeddingsRequest(RequestBody):
    endpoint: ClassVar[ApiEndpoint] = ApiEndpoint.EMBEDDINGS
    choices: ClassVar[int] = 1
    requested_constraint: ClassVar[RequestedConstraint | None] = None

    model: ModelName = Field(min_length=1, max_length=LONGEST)
    input: Input
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="Encoding of the vectors; left out: `float`."
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=1 << 16,
        description="Number of leading components of the vectors, which are scaled to length 1 again; left out: all.",
    )
    pooling: Literal["last", "mean"] | None = Field(
        default=None,
        description="Hidden state that becomes the vector: the last token's, by default, or the mean over all tokens.",
    )
    add_special_tokens: bool | None = None
    cache_salt: CacheSalt | None = None

    @property
    def inputs(self) -> list[str | list[int]]:
        if isinstance(self.input, str):
            return [self.input]
        if isinstance(self.input[0], int):
            return [self.input]
        return list(self.input)

    def submits(self) -> list[pb.Submit]:
        """Return one engine request for all inputs, without id and tenant."""
        submit = pb.Submit(
            prompt_only=True,
            pooling=pb.Pooling(kind=_POOLING[self.pooling or "last"], dimensions=self.dimensions or 0),
            cache_salt=self.cache_salt or "",
        )
        first, *more = self.inputs
        _put(submit, first)
        for prompt in more:
            _put(submit.more_prompts.add(), prompt)
        if self.add_special_tokens is not None:
            submit.add_special_tokens = self.add_special_tokens
        return [submit]


def _put(prompt: pb.Submit | pb.Prompt, value: str | list[int]) -> None:
    if isinstance(value, str):
        prompt.text = value
    else:
        prompt.token_ids.ids.extend(value)


class EmbeddingObject(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="Vector of length 1; with `base64`, as little-endian float32.")


class EmbeddingsUsage(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingsUsage


@endpoint("POST")
async def embeddings(request: HttpRequest) -> HttpResponseBase:
    with undispatched(request, EmbeddingsRequest.endpoint) as pending:
        refuse_unknown = await refuses_unknown(request)
        with pending.reading():
            body = read_object(request.body, nul=True)
            params = read_parameters(EmbeddingsRequest, body, refuse_unknown=refuse_unknown)
        pending.model = params.model
        admission = await admission_of(request, params.model)
        async with idempotent(request, admission) as answer:
            return answer.stored or answer.keep(await _answer(admission, params, pending))


async def _answer(admission: Admission, params: EmbeddingsRequest, pending: Undispatched) -> HttpResponseBase:
    try:
        async with await begin(runtime(), admission, params, streamed=False, pending=pending) as generation:
            body = await whole_embeddings(generation, params)
            return HttpResponse(body, content_type="application/json", headers=generation.headers)
    except HostError as failure:
        error = errors.from_failure(failure)
        error.param = "input" if error.param in _INPUT else error.param
        raise error from failure


async def whole_embeddings(generation: Generation, params: EmbeddingsRequest) -> bytes:
    """Return the answer's body when all vectors have arrived. Raises the ``HostError`` that ended the generation."""
    vectors = await _vectors(generation, len(params.inputs))
    return await _body(generation, vectors, params.encoding_format or "float")


async def _vectors(generation: Generation, count: int) -> list[bytes]:
    """Collect the vectors of all inputs. Raises the ``HostError`` that ended the generation."""
    vectors = [b""] * count
    async for chunks in generation:
        for chunk in chunks:
            vectors[chunk.choice] = chunk.embedding or vectors[chunk.choice]
    return vectors


async def _body(generation: Generation, vectors: list[bytes], encoding_format: str) -> bytes:
    """Write the body in slices: thousands of vectors take a second, during which the loop must serve other requests."""
    write = _base64 if encoding_format == "base64" else _floats
    parts = []
    for index, vector in enumerate(vectors):
        parts.append(f'{{"object":"embedding","index":{index},"embedding":{write(vector)}}}')
        if index % _VECTORS_PER_SLICE == _VECTORS_PER_SLICE - 1:
            await asyncio.sleep(0)
    tokens = sum(record.prompt_tokens for record in generation.usages)
    rest = {
        "model": generation.admission.model.display_name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return f'{{"object":"list","data":[{",".join(parts)}],{encode(rest)[1:]}'.encode()


def _base64(vector: bytes) -> str:
    return f'"{base64.b64encode(vector).decode()}"'


def _floats(vector: bytes) -> str:
    """Write float32 values with nine digits, which identify each exactly."""
    values = array.array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return f"[{','.join(map('{:.9g}'.format, values))}]"
