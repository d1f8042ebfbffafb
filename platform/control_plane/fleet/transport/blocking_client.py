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

# Seconds for a unary call.
CALL_TIMEOUT_S = 10.0
# Seconds for one staging: an adapter may be downloaded over a slow line.
STAGE_TIMEOUT_S = 1800.0
# Runs of a page map. A map with more is implausible.
MAX_RUNS = 1 << 20
# Events of one staging. A host that sends more is implausible.
MAX_STAGE_EVENTS = 100_000


class EngineCalls:
    """The engine's unary and server-streaming calls. Every failed call raises ``HostError``."""

    def __init__(self, endpoint: HostEndpoint, channel: grpc.Channel) -> None:
        self._endpoint = endpoint
        self._stub: Any = engine_pb2_grpc.EngineStub(channel)  # type: ignore[no-untyped-call]

    def describe(self) -> pb.EngineDescription:
        description: pb.EngineDescription = self._unary("Describe", pb.DescribeRequest())
        require_plausible(self._endpoint.name, description)
        return description

    def drop(self, digest: str) -> bool:
        """Drop an adapter. Returns whether the host had it."""
        reply: pb.DropAdapterReply = self._unary("DropAdapter", pb.DropAdapterRequest(digest=digest))
        return reply.was_resident

    def pin(self, digests: Sequence[str], dtypes: Sequence[str] = ()) -> Sequence[str]:
        """Pin these adapters to the device, and no others. ``dtypes``: the setting of each one's version.

        Returns those that are on the device now.
        """
        reply: pb.PinAdaptersReply = self._unary("PinAdapters", pb.PinAdaptersRequest(digests=digests, dtypes=dtypes))
        return reply.digests

    def pin_prefixes(self, prefixes: Sequence[pb.PinnedPrefix]) -> Sequence[pb.PrefixState]:
        """Pin these prefixes in the KV cache, and no others. Returns the state of each."""
        reply: pb.PinPrefixesReply = self._unary("PinPrefixes", pb.PinPrefixesRequest(prefixes=prefixes))
        require_plausible(self._endpoint.name, reply)
        return reply.prefixes

    def tokenize(self, submit: pb.Submit) -> pb.TokenizeReply:
        """Return a prompt's tokens; the reply holds the error of an invalid prompt."""
        reply: pb.TokenizeReply = self._unary("Tokenize", submit)
        return reply

    def drain(self, *, undo: bool = False) -> pb.DrainReply:
        reply: pb.DrainReply = self._unary("Drain", pb.DrainRequest(undo=undo))
        return reply

    def restart(self, boot_id: str, wait_s: float) -> bool:
        """Drain the engine, then end it; a supervisor starts it anew. False if another process answers by now."""
        reply: pb.RestartReply = self._unary(
            "Restart", pb.RestartRequest(boot_id=boot_id, wait_ms=round(wait_s * 1000))
        )
        return reply.restarts

    def request_certificate(self) -> bytes:
        """Have a host that joined make a new key. Returns its certificate request (PKCS #10, PEM)."""
        reply: pb.CertificateRequest = self._unary("RequestCertificate", pb.RequestCertificateRequest())
        return reply.request

    def install_certificate(self, certificate: bytes, authority: bytes = b"") -> None:
        """Install the certificate (PEM) of the last requested key, for new connections.

        ``authority`` replaces the authorities (PEM) that the host trusts.
        """
        self._unary("InstallCertificate", pb.InstallCertificateRequest(certificate=certificate, authority=authority))

    def probe(self, digest: str, patience_s: float, template: pb.ChatTemplate | None = None) -> pb.AdapterEffect:
        """Return what an adapter changes in the answers to a few prompts, with its chat template if it has one.

        Raises ``HostError``: ``overloaded`` if there was no time for it.
        """
        request = pb.ProbeAdapterRequest(digest=digest, patience_ms=round(patience_s * 1000), own_template=template)
        reply: pb.ProbeAdapterReply = self._unary("ProbeAdapter", request)
        if reply.HasField("error"):
            raise errors.HostError.from_wire(reply.error)
        require_plausible(self._endpoint.name, reply.effect)
        return reply.effect

    def compare_dtypes(
        self, digest: str, setting: str, patience_s: float, template: pb.ChatTemplate | None = None
    ) -> pb.DtypeReport:
        """Return the dtype in which the host serves an adapter with a version's setting, and why."""
        request = pb.CompareAdapterDtypesRequest(
            digest=digest, adapter_dtype=setting, patience_ms=round(patience_s * 1000), own_template=template
        )
        reply: pb.CompareAdapterDtypesReply = self._unary("CompareAdapterDtypes", request)
        if reply.HasField("error"):
            raise errors.HostError.from_wire(reply.error)
        require_plausible(self._endpoint.name, reply.report)
        return reply.report

    def map_pages(self) -> pb.PageMap:
        """Return the map of the pool: the owner of each page."""
        page_map: pb.PageMap = self._unary("MapPages", pb.MapPagesRequest())
        require_plausible(self._endpoint.name, page_map)
        runs = len(page_map.lengths)
        if (
            runs > MAX_RUNS
            or runs != len(page_map.owner_of)
            or max(page_map.owner_of, default=-1) >= len(page_map.owners)
        ):
            raise implausible(
                self._endpoint.name, "its page map names an owner that it does not list, or has too many runs"
            )
        return page_map

    def pull_usage(self, after_seq: int, limit: int) -> Sequence[pb.UsageRecord]:
        """Return unacknowledged usage records beyond ``after_seq``, oldest first."""
        reply: pb.PullUsageReply = self._unary("PullUsage", pb.PullUsageRequest(after_seq=after_seq, limit=limit))
        return reply.records

    def acknowledge(self, request_ids: Sequence[str]) -> int:
        reply: pb.AckUsageReply = self._unary("AckUsage", pb.AckUsageRequest(request_ids=request_ids))
        return reply.acknowledged

    def stage(self, request: pb.StageAdapterRequest) -> Iterator[pb.StageEvent]:
        """Yield the phases of bringing an adapter into host memory; the last is READY or FAILED."""
        with self._failures():
            events = self._stub.StageAdapter(request, timeout=STAGE_TIMEOUT_S, metadata=self._endpoint.metadata)
            for count, event in enumerate(events):
                require_plausible(self._endpoint.name, event)
                if count >= MAX_STAGE_EVENTS:
                    raise implausible(self._endpoint.name, f"{count} events of one staging")
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
    """Open a channel for a few calls. It is not kept, as a forked worker must not inherit one."""
    with endpoint.open_channel() as channel:
        yield EngineCalls(endpoint, channel)
