"""The guards of all calls: a host's token, or a client's certificate.

A certificate decides what its bearer may call: the control plane everything, another host one adapter's files.

A host's certificate is for servers only, so a host calls no other with it. To read an adapter from a peer it gets a
certificate that is valid for a few minutes and whose common name is the adapter's digest. Every other name than the
control plane's is taken as a digest.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from .secret_list import SecretList

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]

CONTROL_PLANE = "control-plane"
_OPEN_TO_GRANTS = "/lorikeet.engine.v1.Engine/ReadAdapter"


def granted_digest(context: Any) -> str | None:
    """Return the only adapter that the caller may read, or None if it may call everything (the control plane, or any
    caller where no certificates are required).
    """
    names = context.auth_context().get("x509_common_name")
    if not names:
        return None
    name = names[0].decode(errors="replace")
    return None if name == CONTROL_PLANE else f"sha256:{name}"


class GrantInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """A guard that allows callers with a grant ``ReadAdapter`` only. That method checks which adapter it is."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method == _OPEN_TO_GRANTS:
            return handler
        return _for_the_control_plane(handler)


def _for_the_control_plane(handler: Handler) -> Handler:
    method = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    return _with_method(handler, _guarded_stream(method) if inspect.isasyncgenfunction(method) else _guarded(method))


def _with_method(handler: Handler, method: Any) -> Handler:
    """Return a handler of the same kind that calls ``method``: gRPC checks the kind before it calls."""
    makers = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    make = makers[handler.request_streaming, handler.response_streaming]
    return make(method, handler.request_deserializer, handler.response_serializer)


def _guarded(method: Any) -> Any:
    async def guarded(request: Any, context: Any) -> Any:
        await _require_control_plane(context)
        return await method(request, context)

    return guarded


def _guarded_stream(method: Any) -> Any:
    async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
        await _require_control_plane(context)
        async for message in method(request, context):
            yield message

    return guarded


async def _require_control_plane(context: Any) -> None:
    if granted_digest(context) is not None:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this certificate only allows ReadAdapter")


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """An interceptor that refuses every call without the host's token."""

    def __init__(self, token: str) -> None:
        self._tokens = SecretList(token)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        metadata = dict(handler_call_details.invocation_metadata)
        scheme, _, token = str(metadata.get("authorization", "")).partition(" ")
        handler = await continuation(handler_call_details)
        if handler is None or (scheme == "Bearer" and self._tokens.accepts(token)):
            return handler
        return _with_method(handler, _refuse_stream if handler.response_streaming else _refuse)


async def _refuse(_request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the host token is missing or wrong")


async def _refuse_stream(_request: Any, context: Any) -> AsyncIterator[None]:
    await _refuse(_request, context)
    yield
