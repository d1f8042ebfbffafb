"""An adapter is served in FP8 where its answers agree with those in the pool's dtype.

On a host that was started with ``--adapter-dtype fp8``, the first call that asks for an adapter's report begins one
comparison: both dtypes are loaded, and read the probe's prompts with the answers in the pool's dtype, after all other
requests. Until it has ended, a version whose setting is "auto" is served in the pool's dtype. Then the dtype that does
not serve it leaves memory again. A restarted host compares again, as its kernels and its base may be others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from lora_engine.adapters.dtypes import POOL_DTYPE, variants
from lora_engine.adapters.staging import AdapterTiers
from lora_engine.errors import RequestError
from lora_engine.wire import engine_pb2 as pb

from .adapter_probes import AdapterProbes, DtypeReading
from .engine_loop import EngineLoop

log = logging.getLogger(__name__)

# Share of tokens after which both dtypes have the same most likely token, below which FP8 is not used. Any rounding
# turns near ties: the demo's adapters keep 0.97 or more.
LEAST_AGREEING = 0.9
# Mean distance of log-probabilities in nats, above which FP8 is not used. The demo's adapters, which change the base by
# 1 to 3, are at 0.03 to 0.06, or at 0.06 to 0.09 with a base in bfloat16, whose rounding is in both. Adapters whose
# factors cancel each other exceed it.
MOST_DISTANCE = 0.15
# Seconds after which a comparison ends without a result: the host has had no time for its requests.
_LIMIT_S = 120.0
_NO_FACTORS = "It has no factors of LoRA, which alone are kept in FP8."


class AdapterDtypes:
    """A keeper of the reports on FP8 of this host's adapters. It lives on the event loop."""

    def __init__(self, engine: EngineLoop, tiers: AdapterTiers, probes: AdapterProbes, pool_dtype: str) -> None:
        """Create the keeper. ``pool_dtype`` is the dtype of adapters that are not in FP8, such as "bfloat16"."""
        # Pins the same adapters again after a decision, and returns the keys that are to stay in memory.
        self.pin_again: Callable[[], Awaitable[Sequence[str]]] | None = None
        self._engine = engine
        self._tiers = tiers
        self._probes = probes
        self._pool_dtype = pool_dtype
        self._reports: dict[str, pb.DtypeReport] = {}  # by digest, without the served dtype
        self._running: dict[str, asyncio.Task[None]] = {}
        self._alone = asyncio.Lock()  # two comparisons at once would only take twice the memory

    def dtype_of(self, *, fp8: bool) -> str:
        return "fp8" if fp8 else self._pool_dtype

    async def report(
        self, digest: str, setting: str, patience_s: float, template: pb.ChatTemplate | None = None
    ) -> pb.DtypeReport:
        """Return the dtype in which the setting serves the adapter, and the comparison so far.

        Waits up to ``patience_s`` for the comparison, which goes on afterwards. Raises ``RequestError`` if it failed
        for a reason that passes.
        """
        if not self._tiers.dtypes.fp8:
            reason = f"This host serves adapters in {self._pool_dtype}: it was started without --adapter-dtype fp8."
            return self._served(digest, setting, _not_measured(reason))
        if setting == POOL_DTYPE:
            return self._served(digest, setting, _not_measured("The version's adapter_dtype is bf16."))
        if digest not in self._reports:
            task = self._running.get(digest)
            if task is None:
                task = self._running[digest] = asyncio.create_task(self._compare(digest, template))
            await asyncio.wait([task], timeout=patience_s)
            if task.done() and self._running.get(digest) is task:
                del self._running[digest]
                task.result()
        report = self._reports.get(digest, pb.DtypeReport(outcome=pb.DtypeReport.PENDING))
        return self._served(digest, setting, report)

    def forget(self, digest: str) -> None:
        """Forget the report on an adapter that is dropped."""
        self._reports.pop(digest, None)
        if task := self._running.pop(digest, None):
            task.cancel()

    def close(self) -> None:
        for task in self._running.values():
            task.cancel()

    def _served(self, digest: str, setting: str, report: pb.DtypeReport) -> pb.DtypeReport:
        served, key = pb.DtypeReport(), self._tiers.dtypes.key(digest, setting)
        served.CopyFrom(report)
        served.dtype = self.dtype_of(fp8=key != digest)
        packed = self._tiers.arena.peek(key)
        served.pool_pages = packed.num_pages if packed is not None else 0
        return served

    async def _compare(self, digest: str, template: pb.ChatTemplate | None) -> None:
        async with self._alone:
            began, keys = time.monotonic(), variants(digest)
            try:
                async with asyncio.timeout(_LIMIT_S):
                    readings = await self._probes.read_twice(keys.pool, keys.fp8, template)
                packed = self._tiers.arena.peek(keys.fp8)
                report = judge(readings) if packed is None or packed.layout.fp8_rows else _not_measured(_NO_FACTORS)
            except TimeoutError:
                raise RequestError(
                    "overloaded",
                    "The host had no time to compare the adapter in FP8: other requests come first.",
                    "No action is needed: the comparison is repeated automatically.",
                    retry_after_ms=5000,
                ) from None
            report.elapsed_ms = round(1000 * (time.monotonic() - began))
            if not self._tiers.knows(digest):
                return  # it was dropped meanwhile
            self._reports[digest] = report
            agrees = report.outcome == pb.DtypeReport.AGREES
            self._tiers.dtypes.decide(digest, agrees=agrees)
            log.info("%s is served in %s: %s", digest, self.dtype_of(fp8=agrees), report.reason or _figures(report))
            pinned = await self.pin_again() if self.pin_again is not None else ()
            unused = keys.pool if agrees else keys.fp8
            if unused not in pinned:
                await self.retire(unused)

    async def retire(self, key: str) -> None:
        """Free the memory of a dtype that was loaded for a probe; requests that use it keep it."""
        self._tiers.retire(key)
        await asyncio.wrap_future(self._engine.call(lambda engine: engine.drop_adapter(key)))


def judge(readings: list[DtypeReading]) -> pb.DtypeReport:
    """Return the report of an adapter's readings: FP8 agrees if both bounds are kept."""
    report = pb.DtypeReport(outcome=pb.DtypeReport.AGREES, least_agreeing=LEAST_AGREEING, most_distance=MOST_DISTANCE)
    if any(reading.overflows for reading in readings):
        report.outcome, report.reason = pb.DtypeReport.DIFFERS, "In FP8 the model's numbers overflow with it."
        return report
    distances = [distance for reading in readings for distance in reading.distances]
    if not distances:
        return _not_measured("It acts on no token of the probe's prompts.")
    report.tokens = sum(reading.tokens for reading in readings)
    report.agreeing = sum(reading.agreeing for reading in readings)
    report.mean_distance = mean = sum(distances) / len(distances)
    report.largest_distance = max(distances)
    reasons = []
    if report.agreeing < LEAST_AGREEING * report.tokens:
        reasons.append(
            f"In FP8 it has the same most likely token after {report.agreeing} of {report.tokens} tokens; "
            f"{LEAST_AGREEING:.0%} are needed."
        )
    if mean > MOST_DISTANCE:
        reasons.append(
            f"In FP8 log-probabilities move by {mean:.3f} on average; at most {MOST_DISTANCE:.2f} is accepted."
        )
    if reasons:
        report.outcome, report.reason = pb.DtypeReport.DIFFERS, " ".join(reasons)
    return report


def _figures(report: pb.DtypeReport) -> str:
    return f"{report.agreeing} of {report.tokens} tokens agree, at a mean distance of {report.mean_distance:.3f}"


def _not_measured(reason: str) -> pb.DtypeReport:
    return pb.DtypeReport(outcome=pb.DtypeReport.NOT_MEASURED, reason=reason)
