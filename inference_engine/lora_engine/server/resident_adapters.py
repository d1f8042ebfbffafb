"""The adapters of a host, for the control plane: probing, pinning and dropping them, and where each one is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from lora_engine.adapters.device_tier import DeviceAdapter
from lora_engine.adapters.dtypes import content_of, is_fp8, variants
from lora_engine.adapters.staging import AdapterTiers
from lora_engine.errors import RequestError
from lora_engine.peft_format import is_combined
from lora_engine.wire import engine_pb2 as pb

from .adapter_dtypes import AdapterDtypes
from .adapter_probes import AdapterProbes
from .engine_loop import EngineLoop
from .lifecycle import Lifecycle
from .messages import error_message

# Seconds that pinning waits for adapters that are being loaded, and between two checks.
_PIN_PATIENCE_S = 1.0
_PIN_POLL_S = 0.05


class ResidentAdapters:
    """The host's adapters in all tiers. It lives on the event loop."""

    def __init__(
        self,
        engine: EngineLoop,
        tiers: AdapterTiers,
        probes: AdapterProbes,
        dtypes: AdapterDtypes,
        lifecycle: Lifecycle,
    ) -> None:
        self.readers = 0  # number of other hosts that are reading an adapter from here
        self._engine = engine
        self._tiers = tiers
        self._probes = probes
        self._dtypes = dtypes
        self._pinned: list[tuple[str, str]] = []  # digests and settings
        dtypes.pin_again = self._pin_again
        self._lifecycle = lifecycle

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
                raise _not_here(digest)
            effect = await self._probes.probe(digest, patience_s, template)
            if self._tiers.dtypes.key(digest) != digest and digest not in self._pinned_keys():
                await self._dtypes.retire(digest)  # it was loaded for the probe alone
            return pb.ProbeAdapterReply(effect=effect)
        except RequestError as error:
            return pb.ProbeAdapterReply(error=error_message(error))

    async def compare_dtypes(
        self, digest: str, setting: str, patience_s: float, template: pb.ChatTemplate | None = None
    ) -> pb.CompareAdapterDtypesReply:
        """Return the dtype that serves an adapter with a version's setting, and how it was decided."""
        try:
            if error := self._lifecycle.refusal("compares no adapters", "Use another host."):
                raise error
            if not self._tiers.knows(digest):
                raise _not_here(digest)
            report = await self._dtypes.report(digest, setting, patience_s, template)
            return pb.CompareAdapterDtypesReply(report=report)
        except RequestError as error:
            return pb.CompareAdapterDtypesReply(error=error_message(error))

    async def drop(self, digest: str) -> bool:
        """Remove an adapter from every tier once no request uses it. Returns whether there was one."""
        self._dtypes.forget(digest)
        keys = variants(digest) if self._tiers.dtypes.fp8 else (digest,)
        below = self._tiers.drop(digest)
        on_device = await asyncio.wrap_future(
            self._engine.call(lambda engine: [engine.drop_adapter(key) for key in keys])
        )
        return below or any(on_device)

    async def pin(self, digests: Iterable[str], settings: Sequence[str] = ()) -> list[str]:
        """Pin these adapters, and no others, on the device and in host memory, each in the dtype of its version's
        setting ("" if there are none). Returns those on the device.

        Waits up to a second for adapters that are being loaded.
        """
        self._pinned = list(zip_longest(digests, settings, fillvalue=""))
        wanted = self._pinned_keys()
        self._tiers.arena.pin(wanted)
        until = time.monotonic() + _PIN_PATIENCE_S
        kept = await asyncio.wrap_future(self._engine.call(lambda engine: engine.pin_adapters(wanted)))
        while len(kept) < len(wanted) and time.monotonic() < until:
            await asyncio.sleep(_PIN_POLL_S)
            kept = await asyncio.wrap_future(self._engine.call(lambda engine: engine.pinned_adapters()))
        return list(dict.fromkeys(map(content_of, kept)))

    def _pinned_keys(self) -> list[str]:
        return list(dict.fromkeys(self._tiers.dtypes.key(digest, setting) for digest, setting in self._pinned))

    async def _pin_again(self) -> list[str]:
        """Pin the pinned adapters again, since the keys of some depend on a dtype that changed; return their keys."""
        keys = self._pinned_keys()
        if keys:
            self._tiers.arena.pin(keys)
            await asyncio.wrap_future(self._engine.call(lambda engine: engine.pin_adapters(keys)))
        return keys

    def residency(self, on_device: Iterable[DeviceAdapter]) -> list[pb.AdapterResidency]:
        """List every adapter once, at the tier nearest to the device, with the bytes and requests of both dtypes there;
        of combinations the control plane knows only the parts.
        """
        tiers = pb.AdapterResidency
        adapters = {d: tiers(digest=d, tier=tiers.DISK, bytes=size) for d, size in self._tiers.disk.contents().items()}
        for packed in self._tiers.arena.contents():
            if not is_combined(packed.digest):
                digest, dtype = content_of(packed.digest), self._dtypes.dtype_of(fp8=is_fp8(packed.digest))
                here = tiers(digest=digest, tier=tiers.HOST, bytes=packed.num_bytes, rank=packed.rank, dtype=dtype)
                _add(adapters, here)
        for adapter in on_device:
            if not is_combined(adapter.digest):
                digest, dtype = content_of(adapter.digest), self._dtypes.dtype_of(fp8=is_fp8(adapter.digest))
                here = tiers(
                    digest=digest,
                    tier=tiers.DEVICE,
                    running=adapter.running,
                    bytes=adapter.num_bytes,
                    rank=adapter.rank,
                    dtype=dtype,
                    experts_resident=adapter.experts_resident,
                    experts_total=adapter.experts_total,
                )
                _add(adapters, here)
        return list(adapters.values())


def _add(adapters: dict[str, pb.AdapterResidency], here: pb.AdapterResidency) -> None:
    """Put an adapter at a nearer tier, or add its second dtype to the first one at the same tier."""
    before = adapters.get(here.digest)
    if before is not None and before.tier == here.tier:
        here.running, here.bytes = here.running + before.running, here.bytes + before.bytes
        here.experts_resident += before.experts_resident
        here.experts_total += before.experts_total
        here.dtype = before.dtype if before.running > here.running - before.running else here.dtype
    adapters[here.digest] = here


def _not_here(digest: str) -> RequestError:
    message = f"The adapter {digest[:80]} is not on this host."
    return RequestError("adapter_not_found", message, "Stage it first.", retry_after_ms=1000)
