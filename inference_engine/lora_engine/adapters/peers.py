"""A peer is another host that has an adapter on its disk and lets this one read it, often nearer than the store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

import grpc

from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc

# Seconds for a connection to a peer.
_CONNECT_S = 2.0
# Seconds without a byte after which a peer is given up.
_IDLE_S = 5.0


class PeerError(Exception):
    """The peer does not deliver the adapter; fetch it from another source."""


@contextmanager
def open_at_peer(peer: pb.AdapterPeer, digest: str, file: str) -> Iterator[tuple[IO[bytes], int]]:
    """Return a context with the stream and the length of an adapter's file at a peer. Raises ``PeerError``."""
    credentials = grpc.ssl_channel_credentials(peer.authority, peer.key, peer.certificate)
    options = [("grpc.ssl_target_name_override", peer.server_name), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(peer.address, credentials, options=options) as channel:
        try:
            grpc.channel_ready_future(channel).result(_CONNECT_S)
            stub = engine_pb2_grpc.EngineStub(channel)  # type: ignore[no-untyped-call]
            blocks = _Blocks(stub.ReadAdapter(pb.ReadAdapterRequest(digest=digest, file=file)))
            yield cast(IO[bytes], blocks), blocks.length
        except grpc.FutureTimeoutError:
            raise _unavailable(peer.address, "it cannot be reached") from None
        except ConnectionError as error:
            raise _unavailable(peer.address, str(error)) from None
        except grpc.RpcError as error:
            details = error.details() if isinstance(error, grpc.Call) else str(error)
            raise _unavailable(peer.address, details or "the connection was closed") from None


class _Blocks:
    """The part of a file's interface that a transfer uses. Raises ``grpc.RpcError``."""

    def __init__(self, call: Any) -> None:
        self._call = call
        first = self._next()
        self.length, self._first = (first.total, first.data) if first is not None else (0, b"")

    def read(self, _size: int = -1) -> bytes:
        """Return the next block, as large as the host sends them; empty at the end."""
        if self._first:
            first, self._first = self._first, b""
            return first
        message = self._next()
        return b"" if message is None else message.data

    def _next(self) -> pb.AdapterBytes | None:
        patience = threading.Timer(_IDLE_S, self._call.cancel)
        patience.start()
        try:
            message: pb.AdapterBytes | None = next(self._call, None)
            return message
        finally:
            patience.cancel()


def _unavailable(address: str, why: str) -> PeerError:
    return PeerError(f"The host at {address} does not deliver the adapter: {why}.")
