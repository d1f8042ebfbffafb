"""The gRPC service: each method calls ``HostServer``."""

# ruff: noqa: N802  (the method names are those of the wire contract)

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from lora_engine.adapters.staging import is_last
from lora_engine.errors import StageError
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc
from lora_engine.wire.adapter_list import AdapterChanges
from lora_engine.wire.versions import reject_version, upgrade_text

from .host import HostServer
from .identity import BadCertificateError, HostIdentity
from .interceptors import granted_digest
from .messages import error_message
from .session import ClientSession

log = logging.getLogger(__name__)

# Milliseconds between two heartbeats, by default and at least.
_DEFAULT_INTERVAL_MS = 2000
_MIN_INTERVAL_MS = 100
# Waiting requests in a list, by default and at most.
_WAITING_SHOWN, _MAX_WAITING = 100, 1000
# Number of hosts that may read adapters at once: requests use the same network.
_MAX_READERS = 4
# Bytes in one message of an adapter's file.
_BLOCK_BYTES = 1 << 20


class EngineService(engine_pb2_grpc.EngineServicer):
    """The servicer of ``lorikeet.engine.v1.Engine``."""

    def __init__(self, host: HostServer, identity: HostIdentity | None = None) -> None:
        self._host, self._identity = host, identity

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.EngineDescription:
        return self._host.description

    async def Session(self, request_iterator: AsyncIterator[pb.ClientMessage], context: Any) -> None:
        session = ClientSession()
        reader = asyncio.create_task(self._read(session, request_iterator))
        try:
            await session.send_all(context.write)
            if session.refusal:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, session.refusal)
        finally:
            reader.cancel()
            self._host.requests.close_session(session)
            log.info("session of %s ended", session.client_id or "an unnamed client")

    async def StageAdapter(self, request: pb.StageAdapterRequest, context: Any) -> AsyncIterator[pb.StageEvent]:
        if error := self._host.inputs.reject_base(request.base_digest):
            self._host.metrics.stages.add(1, result="failed")
            yield pb.StageEvent(phase=pb.StageEvent.FAILED, error=error_message(error))
            return
        async for event in self._host.tiers.stage(request):
            if is_last(event):
                self._host.metrics.stages.add(1, result=pb.StageEvent.Phase.Name(event.phase).lower())
            yield event

    async def ReadAdapter(self, request: pb.ReadAdapterRequest, context: Any) -> AsyncIterator[pb.AdapterBytes]:
        if granted_digest(context) not in (None, request.digest):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this certificate is for reading another adapter")
        if request.file not in (CONFIG_FILE, WEIGHTS_FILE):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "an adapter has no such file")
        if self._host.resident_adapters.readers >= _MAX_READERS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "too many hosts read from this host; use another source"
            )
        self._host.resident_adapters.readers += 1
        try:
            with self._host.tiers.disk.reading(request.digest) as folder, (folder / request.file).open("rb") as file:
                total = os.fstat(file.fileno()).st_size
                while block := await asyncio.to_thread(file.read, _BLOCK_BYTES):
                    yield pb.AdapterBytes(data=block, total=total)
        except StageError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, error.message)
        finally:
            self._host.resident_adapters.readers -= 1

    async def DropAdapter(self, request: pb.DropAdapterRequest, context: Any) -> pb.DropAdapterReply:
        return pb.DropAdapterReply(was_resident=await self._host.resident_adapters.drop(request.digest))

    async def PinAdapters(self, request: pb.PinAdaptersRequest, context: Any) -> pb.PinAdaptersReply:
        return pb.PinAdaptersReply(digests=await self._host.resident_adapters.pin(request.digests, request.dtypes))

    async def PinPrefixes(self, request: pb.PinPrefixesRequest, context: Any) -> pb.PinPrefixesReply:
        return await self._host.prefix_pins.set(request.prefixes)

    async def ProbeAdapter(self, request: pb.ProbeAdapterRequest, context: Any) -> pb.ProbeAdapterReply:
        return await self._host.resident_adapters.probe(
            request.digest,
            request.patience_ms / 1000,
            request.own_template if request.HasField("own_template") else None,
        )

    async def CompareAdapterDtypes(
        self, request: pb.CompareAdapterDtypesRequest, context: Any
    ) -> pb.CompareAdapterDtypesReply:
        return await self._host.resident_adapters.compare_dtypes(
            request.digest,
            request.adapter_dtype,
            request.patience_ms / 1000,
            request.own_template if request.HasField("own_template") else None,
        )

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.DrainReply:
        self._host.lifecycle.drain(undo=request.undo)
        status = await self._host.status.read()
        return pb.DrainReply(running=status.running, waiting=status.waiting)

    async def Restart(self, request: pb.RestartRequest, context: Any) -> pb.RestartReply:
        restarts = self._host.lifecycle.restart(request.boot_id, request.wait_ms / 1000)
        status = await self._host.status.read()
        return pb.RestartReply(restarts=restarts, running=status.running, waiting=status.waiting)

    async def RequestCertificate(self, request: pb.RequestCertificateRequest, context: Any) -> pb.CertificateRequest:
        return pb.CertificateRequest(request=(await self._joined(context)).request())

    async def InstallCertificate(
        self, request: pb.InstallCertificateRequest, context: Any
    ) -> pb.InstallCertificateReply:
        try:
            (await self._joined(context)).install(request.certificate, request.authority)
        except BadCertificateError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.InstallCertificateReply()

    async def _joined(self, context: Any) -> HostIdentity:
        if self._identity is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this host has not joined a fleet (--join)")
        assert self._identity is not None
        return self._identity

    async def PullUsage(self, request: pb.PullUsageRequest, context: Any) -> pb.PullUsageReply:
        records = await asyncio.wrap_future(self._host.journal.pull(request.after_seq, request.limit))
        return pb.PullUsageReply(records=records)

    async def AckUsage(self, request: pb.AckUsageRequest, context: Any) -> pb.AckUsageReply:
        gone = await asyncio.wrap_future(self._host.journal.acknowledge(request.request_ids))
        return pb.AckUsageReply(acknowledged=gone)

    async def Tokenize(self, request: pb.Submit, context: Any) -> pb.TokenizeReply:
        return await self._host.inputs.tokenize(request)

    async def Detokenize(self, request: pb.TokenIds, context: Any) -> pb.DetokenizeReply:
        return await self._host.inputs.detokenize(request)

    async def ListWaiting(self, request: pb.ListWaitingRequest, context: Any) -> pb.ListWaitingReply:
        limit = min(request.limit or _WAITING_SHOWN, _MAX_WAITING)
        return pb.ListWaitingReply(requests=await self._host.status.waiting(request.tenant, limit))

    async def MapPages(self, request: pb.MapPagesRequest, context: Any) -> pb.PageMap:
        return await self._host.status.page_map()

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.HostStatus]:
        interval_ms = max(request.interval_ms or _DEFAULT_INTERVAL_MS, _MIN_INTERVAL_MS)
        load_every_ms = max(request.load_every_ms, _MIN_INTERVAL_MS) if request.load_every_ms else interval_ms
        changes = AdapterChanges() if request.adapter_changes else None
        version = 0

        def with_prefixes(status: pb.HostStatus) -> pb.HostStatus:
            nonlocal version
            if request.prefixes:
                version = self._host.prefixes.report(status, version)
            return status

        while True:
            if changes is None:
                yield with_prefixes(await self._host.status.read())
            else:
                yield with_prefixes(changes.message(await self._host.status.heartbeat()))
            for _ in range(load_every_ms, interval_ms, load_every_ms):
                await asyncio.sleep(load_every_ms / 1000)
                if (load := await self._host.status.load()) is not None:
                    copy = pb.HostStatus()
                    copy.CopyFrom(load)  # the load is shared with other streams
                    yield with_prefixes(copy)
            await asyncio.sleep(min(load_every_ms, interval_ms) / 1000)

    async def _read(self, session: ClientSession, messages: AsyncIterator[pb.ClientMessage]) -> None:
        async for message in messages:
            kind = message.WhichOneof("kind")
            if kind == "submit":
                self._host.requests.submit(session, message.submit)
            elif kind == "abort":
                self._host.requests.abort(session, message.abort.request_id)
            elif kind == "hello":
                if reason := reject_version("this control plane", message.hello.wire_version):
                    session.refuse(f"{reason} {upgrade_text(message.hello.wire_version)}")
                    return
                session.client_id = message.hello.client_id
                session.welcome(self._host.lifecycle.boot_id, self._host.description.base_digest)
                log.info("session of %s began", session.client_id)
        session.end_when_idle()
