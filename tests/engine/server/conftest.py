"""A host around an engine that generates letters: everything of the server is real, the model is not."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lorikeet_testing.adapter_files import GEOMETRY
from lorikeet_testing.engine_client import EngineClient, connected
from lorikeet_testing.tiny_models import save_tokenizer

from lora_engine.adapters.device_tier import DeviceAdapter
from lora_engine.adapters.disk_tier import DiskTier
from lora_engine.adapters.host_arena import HostArena
from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import TargetShapes
from lora_engine.adapters.load_times import LoadTime
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.staging import AdapterTiers
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import RequestError
from lora_engine.memory import PageKind, PageMap, PageOwner, PoolStats
from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import TARGETS, AdapterLimits
from lora_engine.request import (
    GenerationRequest,
    PinnedPrefix,
    PinState,
    RequestFinished,
    RequestUsage,
    StepOutput,
    TokenDelta,
    TokenLogprob,
)
from lora_engine.scheduling.forecast import Accuracy
from lora_engine.scheduling.merge_policies import MergeReport
from lora_engine.scheduling.prefill_budget import PrefillBudgetReport
from lora_engine.scheduling.scheduler_stats import (
    Newcomer,
    QueueReport,
    Reason,
    ServiceGap,
    TenantShare,
    WaitingRequest,
)
from lora_engine.server.chat import ChatFormat
from lora_engine.server.host import HostServer
from lora_engine.server.input_processor import InputProcessor
from lora_engine.server.journal import UsageJournal
from lora_engine.server.listening import bind, make_server
from lora_engine.server.service import EngineService
from lora_engine.structured import Grammars
from lora_engine.text import ChatTemplate, Tokenizer
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'robot' %}{{ raise_exception('no robots') }}{% endif %}"
    "{{ m.content }}{% endfor %}"
)


class LetterEngine(Engine):
    """An engine without a model: every request gets one token "x" per step and choice, after ``gate`` opens."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.steps, self.least_pinned_tokens = 0, 16
        self.gate = threading.Event()
        self.gate.set()
        self.fail_next: list[Exception] = []
        self.prompts: dict[str, GenerationRequest] = {}
        self.dropped: list[str] = []
        self.pinned: list[str] = []
        self.prefixes: dict[str, PinnedPrefix] = {}
        self.threads: set[int] = set()
        self._step_s = step_s
        self._running: dict[str, tuple[GenerationRequest, RequestUsage]] = {}
        self._ended: list[RequestFinished] = []

    num_waiting = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    def add_request(self, request: GenerationRequest) -> None:
        self.threads.add(threading.get_ident())
        request.sampling.validate(512)
        if len(request.prompt_token_ids) > 10_000:
            raise RequestError("context_length_exceeded", "too long", "shorten it", param="prompt")
        self.prompts[request.request_id] = request
        usage = RequestUsage(request.request_id, request.tenant, request.adapter_digest,
                             prompt_tokens=len(request.prompt_token_ids), submitted_unix=time.time())  # fmt: skip
        self._running[request.request_id] = (request, usage)

    def abort(self, request_id: str) -> None:
        if request_id in self._running:
            self._end(request_id, "aborted")

    def has_work(self) -> bool:
        return bool(self._running or self._ended)

    def step(self) -> StepOutput:
        self.threads.add(threading.get_ident())
        self.steps += 1
        if self.fail_next:
            raise self.fail_next.pop()
        time.sleep(self._step_s)
        output = StepOutput(self.steps)
        if self.gate.is_set():
            for request, usage in list(self._running.values()):
                self._advance(request, usage, output)
        output.finished, self._ended = self._ended, []
        return output

    def _advance(self, request: GenerationRequest, usage: RequestUsage, output: StepOutput) -> None:
        sampling = request.sampling
        last = usage.completion_tokens // sampling.n + 1 == (sampling.max_tokens or 5)
        for choice in range(sampling.n):
            usage.completion_tokens += 1
            logprobs = [TokenLogprob(87, -0.5, ((87, -0.5), (88, -1.5)))] if sampling.logprobs else []
            output.deltas.append(TokenDelta(request.request_id, choice, "x", [87], logprobs, "length" if last else ""))
        if last:
            self._end(request.request_id, "finished")

    def _end(self, request_id: str, outcome: str) -> None:
        _, usage = self._running.pop(request_id)
        self._ended.append(RequestFinished(request_id, replace(usage, outcome=outcome, finished_unix=time.time())))

    failure = ""

    def use_idle_time(self) -> bool:
        return False

    def drop_adapter(self, digest: str) -> bool:
        self.dropped.append(digest)
        return False

    def pin_adapters(self, digests: Iterable[str]) -> list[str]:
        self.pinned = [*digests]
        return self.pinned

    def pinned_adapters(self) -> list[str]:
        return self.pinned

    def pin_prefixes(self, prefixes: Iterable[PinnedPrefix]) -> dict[str, PinState]:
        self.prefixes = {prefix.name: prefix for prefix in prefixes}
        return self.pinned_prefixes()

    def pinned_prefixes(self) -> dict[str, PinState]:
        computed = {request.pin for request in self.prompts.values()} - {
            request.pin for request, _ in self._running.values()
        }
        return {name: PinState.KEPT if name in computed else PinState.MISSING for name in self.prefixes}

    def pool_stats(self) -> PoolStats:
        return PoolStats(10, 9, 0, 0, 0, 1)

    cached_tokens: int | None = 16 * 100

    def prefix_tokens(self) -> int | None:
        return self.cached_tokens

    def queue_report(self) -> QueueReport:
        share = TenantShare("acme", 2.0, 3, 1, 40, 8, 56.0, 28.0, 0.5, 0.25, "own_quota", 0.75)
        return QueueReport(
            (share,), 7, Accuracy(12, 0.04, 0.11), ServiceGap(3.0, 8.0, "acme", "other"), Newcomer(0.25, 0.001)
        )

    def merge_report(self) -> MergeReport:
        return MergeReport("sha256:merged", 3, 90)

    def free_host_memory(self) -> bool:
        return False

    def expert_report(self) -> None:
        return None

    def prefill_budget_report(self) -> PrefillBudgetReport:
        return PrefillBudgetReport(25, 17)

    def waiting_requests(self, tenant: str, limit: int) -> list[WaitingRequest]:
        return [WaitingRequest("w1", tenant, "", 1.5, 0.25, Reason("own_queue", "behind 3 requests"))][:limit]

    def page_map(self) -> PageMap:
        owners = (PageOwner(PageKind.FREE), PageOwner(PageKind.KV, "acme", "", 1.5))
        return PageMap(owners, (1, 0), (3, 97))

    device_load_time = LoadTime(4, 0.001, 1e-9)

    def weight_norms(self, layer: int) -> list[float]:
        return [4.0, 4.0, 4.0, 4.0]

    def device_adapters(self) -> list[DeviceAdapter]:
        return []


def make_tiers(root: Path) -> AdapterTiers:
    pool = PoolGeometry(GEOMETRY.num_layers, 2, GEOMETRY.num_key_value_heads, GEOMETRY.head_dim)
    shapes = TargetShapes({target: GEOMETRY.features(target) for target in TARGETS})
    packer = PoolPacker(GEOMETRY, AdapterLimits(), pool, shapes, torch.float32, PageableMemory())
    return AdapterTiers(DiskTier(root / "disk", 1 << 24), HostArena(1 << 24), packer)


@pytest.fixture
def engine() -> LetterEngine:
    return LetterEngine()


@pytest.fixture
def config(tmp_path) -> EngineConfig:
    return EngineConfig(model=tmp_path, listen=f"unix:{tmp_path}/e.sock", data_dir=tmp_path / "data")


@pytest.fixture
async def host(tmp_path, engine, config) -> AsyncIterator[HostServer]:
    """Listens on ``config.listen`` until the test ends."""
    save_tokenizer(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    grammars = Grammars(Tokenizer.load(tmp_path), GEOMETRY.vocab_size)
    description = pb.EngineDescription(base_model="letters", page_tokens=16)
    host = HostServer(
        engine,
        InputProcessor(tokenizer, ChatFormat(ChatTemplate(TEMPLATE, {}), tokenizer), grammars, description),
        make_tiers(tmp_path),
        UsageJournal(config.data_dir / "usage.sqlite3"),
        description,
    )
    server = make_server(config)
    engine_pb2_grpc.add_EngineServicer_to_server(EngineService(host), server)
    host.address = bind(server, config)
    host.start()
    await server.start()
    yield host
    engine.gate.set()
    await server.stop(0)
    host.stop()


@pytest.fixture
async def client(host, config) -> AsyncIterator[EngineClient]:
    async with connected(host.address, config.host_token) as client:
        yield client
