"""Blocking calls to an engine host, for Celery tasks and commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from control_plane.fleet.transport import errors
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.fleet.transport.plausible import implausible, require_plausible
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc

CALL_TIMEOUT_S = 10.0
STAGE_TIMEOUT_S = 1800.0
MOST_RUNS = 1 << 20  # of a map of pages
MOST_STAGE_EVENTS = 100_000


class EngineCalls:
    """The engine's unary and server-streaming calls. Every failure to answer is an ``HostError``."""

    def __init__(self, endpoint: HostEndpoint, channel: grpc.Channel) -> None:
        self._endpoint = endpoint
        self._stub: Any = engine_pb2_grpc.EngineStub(channel)  # type: ignore[no-untyped-call]

    def describe(self) -> pb.EngineDescription:
        description: pb.EngineDescription = self._unary("Describe", pb.DescribeRequest())
        require_plausible(self._endpoint.name, description)
        return description

    def drop(self, digest: str) -> bool:
        """Forget an adapter. Whether it was there."""
        reply: pb.DropAdapterReply = self._unary("DropAdapter", pb.DropAdapterRequest(digest=digest))
        return reply.was_resident

    def pin(self, digests: Sequence[str]) -> Sequence[str]:
        """Have it keep these adapters on the device, and no others. Those that are there now."""
        reply: pb.PinAdaptersReply = self._unary("PinAdapters", pb.PinAdaptersRequest(digests=digests))
        return reply.digests

    def pin_prefixes(self, prefixes: Sequence[pb.PinnedPrefix]) -> Sequence[pb.PrefixState]:
        """Have it keep these prefixes in its KV cache, and no others. What it says of each now."""
        reply: pb.PinPrefixesReply = self._unary("PinPrefixes", pb.PinPrefixesRequest(prefixes=prefixes))
        require_plausible(self._endpoint.name, reply)
        return reply.prefixes

    def tokenize(self, submit: pb.Submit) -> pb.TokenizeReply:
        """The prompt's tokens. What is wrong with it is in the reply."""
        reply: pb.TokenizeReply = self._unary("Tokenize", submit)
        return reply

    def drain(self, *, undo: bool = False) -> pb.DrainReply:
        reply: pb.DrainReply = self._unary("Drain", pb.DrainRequest(undo=undo))
        return reply

    def restart(self, boot_id: str, wait_s: float) -> bool:
        """Drain, then end, for a supervisor to start it anew. False if another process answers by now."""
        reply: pb.RestartReply = self._unary(
            "Restart", pb.RestartRequest(boot_id=boot_id, wait_ms=round(wait_s * 1000))
        )
        return reply.restarts

    def request_certificate(self) -> bytes:
        """Have a host that joined make a new key; its request for a certificate (PKCS #10, PEM)."""
        reply: pb.CertificateRequest = self._unary("RequestCertificate", pb.RequestCertificateRequest())
        return reply.request

    def install_certificate(self, certificate: bytes) -> None:
        """Of the key that it was last asked to make (PEM); for connections from now on."""
        self._unary("InstallCertificate", pb.InstallCertificateRequest(certificate=certificate))

    def probe(self, digest: str, patience_s: float, own_template: pb.ChatTemplate | None = None) -> pb.AdapterEffect:
        """What an adapter does to a few prompts, chats written by its own template if it has one.

        Raises ``HostError``: ``overloaded`` if there was no time for it.
        """
        request = pb.ProbeAdapterRequest(digest=digest, patience_ms=round(patience_s * 1000), own_template=own_template)
        reply: pb.ProbeAdapterReply = self._unary("ProbeAdapter", request)
        if reply.HasField("error"):
            raise errors.HostError.from_wire(reply.error)
        require_plausible(self._endpoint.name, reply.effect)
        return reply.effect

    def map_pages(self) -> pb.PageMap:
        """Whose each page of the pool is."""
        found: pb.PageMap = self._unary("MapPages", pb.MapPagesRequest())
        require_plausible(self._endpoint.name, found)
        runs = len(found.lengths)
        if runs > MOST_RUNS or runs != len(found.owner_of) or max(found.owner_of, default=-1) >= len(found.owners):
            raise implausible(self._endpoint.name, "its map of pages leads nowhere")
        return found

    def pull_usage(self, after_seq: int, limit: int) -> Sequence[pb.UsageRecord]:
        """Unacknowledged usage records beyond ``after_seq``, oldest first."""
        reply: pb.PullUsageReply = self._unary("PullUsage", pb.PullUsageRequest(after_seq=after_seq, limit=limit))
        return reply.records

    def acknowledge(self, request_ids: Sequence[str]) -> int:
        reply: pb.AckUsageReply = self._unary("AckUsage", pb.AckUsageRequest(request_ids=request_ids))
        return reply.acknowledged

    def stage(self, request: pb.StageAdapterRequest) -> Iterator[pb.StageEvent]:
        """Phases of bringing an adapter into host memory; the last is READY or FAILED."""
        with self._failures():
            events = self._stub.StageAdapter(request, timeout=STAGE_TIMEOUT_S, metadata=self._endpoint.metadata)
            for told, event in enumerate(events):
                require_plausible(self._endpoint.name, event)
                if told >= MOST_STAGE_EVENTS:
                    raise implausible(self._endpoint.name, f"{told} events of one staging")
                yield event

    def _unary(self, method: str, request: object) -> Any:
        with self._failures():
            call = getattr(self._stub, method)
            return call(request, timeout=CALL_TIMEOUT_S, metadata=self._endpoint.metadata)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            details = error.details() if isinstance(error, grpc.Call) else str(error)
            raise errors.unavailable(self._endpoint.name, details or "") from error


@contextmanager
def engine_calls(endpoint: HostEndpoint) -> Iterator[EngineCalls]:
    """A channel for a few calls. Not kept: a forked worker must not inherit one."""
    with endpoint.open_channel() as channel:
        yield EngineCalls(endpoint, channel)
