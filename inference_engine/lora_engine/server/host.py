"""The engine host as its clients see it: its open requests, its adapters and its status.

All of it lives on the event loop; the engine runs in ``EngineLoop``'s thread.
"""

from __future__ import annotations

from lora_engine.adapters.staging import AdapterTiers
from lora_engine.engine import Engine
from lora_engine.model.unquantised import UnquantisedModel
from lora_engine.request import StepOutput
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.prompt_prefixes import RecentPrefixes

from .adapter_dtypes import AdapterDtypes
from .adapter_probes import AdapterProbes
from .base_agreement import BaseAgreement
from .engine_loop import EngineLoop, on_event_loop
from .input_processor import InputProcessor
from .journal import UsageJournal
from .lifecycle import Lifecycle
from .metrics import HostMetrics
from .open_requests import OpenRequests
from .prefix_pins import PrefixPins
from .resident_adapters import ResidentAdapters
from .status import StatusReader


class HostServer:
    """The parts of one engine process that serve its clients."""

    def __init__(
        self,
        engine: Engine,
        inputs: InputProcessor,
        tiers: AdapterTiers,
        journal: UsageJournal,
        description: pb.EngineDescription,
        unquantised: UnquantisedModel | None = None,
    ) -> None:
        """Create the parts. ``unquantised`` is the model to compare answers with, where the model is quantised."""
        self.description = description
        self.inputs = inputs
        self.journal = journal
        self.metrics = HostMetrics(description)
        self.prefixes = RecentPrefixes()
        self.lifecycle = lifecycle = Lifecycle()
        description.boot_id = lifecycle.boot_id
        self.tiers = tiers
        self._engine = EngineLoop(
            engine,
            on_event_loop(self._take),
            on_event_loop(lifecycle.fail),
        )
        self._agreement = (
            BaseAgreement(unquantised, tiers, inputs.tokenizer, lambda: self._engine.progress[1])
            if unquantised
            else None
        )
        self._probes = AdapterProbes(self._engine, tiers, inputs, self._agreement)
        self._dtypes = AdapterDtypes(self._engine, tiers, self._probes, description.dtype)
        self.prefix_pins = PrefixPins(self._engine, tiers, inputs, description.page_tokens, self.prefixes)
        self.requests = OpenRequests(self._engine, inputs, tiers, journal, lifecycle, self.metrics, self.prefixes)
        self.resident_adapters = ResidentAdapters(self._engine, tiers, self._probes, self._dtypes, lifecycle)
        self.status = StatusReader(
            self._engine, tiers, journal, lifecycle, self.prefixes, self.requests, self.resident_adapters
        )
        tiers.on_change = self._engine.wake

    def start(self) -> None:
        self._engine.start()
        self.inputs.start()

    @property
    def step_progress(self) -> tuple[int, bool]:
        """The step thread's progress, for ``StepWatchdog``."""
        return self._engine.progress

    @property
    def stalled_s(self) -> float:
        """Seconds for which work has waited for a step, for health checks."""
        return self._engine.stalled_s

    @property
    def may_restart(self) -> bool:
        """True once a requested restart no longer waits for requests."""
        return self.requests.idle or self.lifecycle.restart_is_due

    def stop(self) -> None:
        """End the step thread and write what is left in the journal."""
        if self._agreement is not None:
            self._agreement.close()
        self._dtypes.close()
        self.prefix_pins.close()
        self._engine.stop()
        self.inputs.close()
        self.tiers.close()
        self.journal.close()

    def _take(self, output: StepOutput) -> None:
        """Pass on a step's output; each part takes that of its requests."""
        self._probes.take(output)
        self.prefix_pins.take(output)
        self.requests.take(output)
