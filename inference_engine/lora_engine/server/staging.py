"""The adapters of a host, for the control plane: staging, probing, pinning and dropping them, and where each one is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from lora_engine.adapters.device_tier import DeviceAdapter
from lora_engine.adapters.download import Artifact
from lora_engine.adapters.peers import Peer
from lora_engine.adapters.staging import AdapterTiers, Phase
from lora_engine.errors import RequestError
from lora_engine.peft_format import is_combined
from lora_engine.wire import engine_pb2 as pb

from .adapter_probes import AdapterProbes
from .engine_loop import EngineLoop
from .input_processor import InputProcessor
from .lifecycle import Lifecycle
from .messages import error_message, fill
from .metrics import HostMetrics

# Seconds that pinning waits for adapters that are being loaded, and between two checks.
_PIN_PATIENCE_S = 1.0
_PIN_POLL_S = 0.05


class AdapterStaging:
    """The host's adapters in all tiers. It lives on the event loop."""

    def __init__(
        self,
        engine: EngineLoop,
        inputs: InputProcessor,
        tiers: AdapterTiers,
        probes: AdapterProbes,
        lifecycle: Lifecycle,
        metrics: HostMetrics,
    ) -> None:
        self.readers = 0  # number of other hosts that are reading an adapter from here
        self._engine = engine
        self._inputs = inputs
        self._tiers = tiers
        self._probes = probes
        self._lifecycle = lifecycle
        self._metrics = metrics

    async def stage(self, request: pb.StageAdapterRequest) -> AsyncIterator[pb.StageEvent]:
        if error := self._inputs.reject_base(request.base_digest):
            self._metrics.stages.add(1, result=Phase.FAILED.value)
            yield pb.StageEvent(phase=pb.StageEvent.FAILED, error=error_message(error))
            return
        artifact = Artifact(
            request.digest,
            request.source_uri,
            dict(request.file_digests),
            dict(request.source_headers),
            dict(request.file_uris),
            tuple(
                Peer(peer.address, peer.server_name, peer.authority, peer.certificate, peer.key)
                for peer in request.peers
            ),
        )
        async for event in self._tiers.stage(artifact):
            if event.is_last:
                self._metrics.stages.add(1, result=event.phase.value)
            yield fill(pb.StageEvent(), event)

    async def probe(
        self, digest: str, patience_s: float, template: pb.ChatTemplate | None = None
    ) -> pb.ProbeAdapterReply:
        """Probe an adapter in the background, with ``template`` for its chats. Fails if it takes longer than
        ``patience_s``.
        """
        try:
            if error := self._lifecycle.refusal("probes no adapters", "Use another host."):
                raise error
            if not self._tiers.knows(digest):
                message = f"The adapter {digest[:80]} is not on this host."
                raise RequestError("adapter_not_found", message, "Stage it first.", retry_after_ms=1000)
            return pb.ProbeAdapterReply(effect=await self._probes.probe(digest, patience_s, template))
        except RequestError as error:
            return pb.ProbeAdapterReply(error=error_message(error))

    def folder(self, digest: str) -> AbstractContextManager[Path]:
        """Return a context with the folder of an adapter's files, which stay until it ends. Raises ``StageError``."""
        return self._tiers.disk.reading(digest)

    async def drop(self, digest: str) -> bool:
        """Remove an adapter from every tier once no request uses it. Returns whether there was one."""
        below = self._tiers.drop(digest)
        on_device = await asyncio.wrap_future(self._engine.call(lambda engine: engine.drop_adapter(digest)))
        return below or on_device

    async def pin(self, digests: Iterable[str]) -> list[str]:
        """Pin these adapters, and no others, on the device and in host memory. Returns those on the device.

        Waits up to a second for adapters that are being loaded.
        """
        wanted = list(dict.fromkeys(digests))
        self._tiers.arena.pin(wanted)
        until = time.monotonic() + _PIN_PATIENCE_S
        kept = await asyncio.wrap_future(self._engine.call(lambda engine: engine.pin_adapters(wanted)))
        while len(kept) < len(wanted) and time.monotonic() < until:
            await asyncio.sleep(_PIN_POLL_S)
            kept = await asyncio.wrap_future(self._engine.call(lambda engine: engine.pinned_adapters()))
        return kept

    def residency(self, on_device: Iterable[DeviceAdapter]) -> list[pb.AdapterResidency]:
        """List every adapter once, at the tier nearest to the device; of combinations the control plane knows only the
        parts.
        """
        tiers = pb.AdapterResidency
        adapters = {d: tiers(digest=d, tier=tiers.DISK, bytes=size) for d, size in self._tiers.disk.contents().items()}
        for packed in self._tiers.arena.contents():
            if not is_combined(packed.digest):
                adapters[packed.digest] = tiers(
                    digest=packed.digest, tier=tiers.HOST, bytes=packed.num_bytes, rank=packed.rank
                )
        for adapter in on_device:
            if not is_combined(adapter.digest):
                adapters[adapter.digest] = tiers(
                    digest=adapter.digest,
                    tier=tiers.DEVICE,
                    running=adapter.running,
                    bytes=adapter.num_bytes,
                    rank=adapter.rank,
                )
        return list(adapters.values())
