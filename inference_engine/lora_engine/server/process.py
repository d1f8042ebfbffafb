"""The engine process, from its command line to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc.aio
import torch

from lora_engine.adapters.disk_tier import DiskTier
from lora_engine.adapters.host_arena import HostArena
from lora_engine.adapters.host_memory import HostMemory, PageableMemory, PinnedSlabs
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.staging import AdapterTiers
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine, build_runner
from lora_engine.errors import StartupError, UnsupportedModel
from lora_engine.garbage import freeze_loaded_objects
from lora_engine.model.base_modules import base_modules
from lora_engine.model.config import ModelConfig
from lora_engine.model.digests import DigestMemory
from lora_engine.model.loading import LoadedModel, base_embedding_layers, load_model
from lora_engine.model.unquantised import unquantised_model
from lora_engine.peft_format import AdapterLimits, BaseGeometry
from lora_engine.start_progress import StartProgress, process_start
from lora_engine.tensor_parallel.leader import Leader
from lora_engine.tensor_parallel.supervisor import RankSupervisor
from lora_engine.text import ChatTemplate, Tokenizer, TokenizerError
from lora_engine.text.model_files import text_digest
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc

from . import arguments, logs
from .chat import ChatFormat
from .end_note import EndNote
from .host import HostServer
from .identity import HostIdentity
from .input_processor import InputProcessor
from .joining import joined
from .journal import JournalError, UsageJournal
from .listening import InstanceLock, bind, make_server, socket_path
from .messages import fill
from .metrics_server import MetricsServer, Pages
from .service import EngineService
from .watchdog import StepWatchdog

log = logging.getLogger(__name__)

# Limits of the added tokens that an engine reports: every host's database row must have room for them.
_MAX_ADDED_TOKENS, _MAX_TOKEN_CHARS = 2048, 256
# Seconds for aborted requests to end.
_LAST_WORDS_S = 3.0
# Seconds for open calls to end.
_CLOSING_S = 0.25
# Seconds between two refreshes of the metrics.
_METRICS_EVERY_S = 1.0
# Exit status after a requested restart: EX_TEMPFAIL. It is not 0, so that a supervisor that only restarts failed
# processes restarts this one too.
RESTART_STATUS = 75


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal and return the exit status: 2 if the engine could not start, 75 if a restart was requested."""
    config = arguments.parse(argv)
    try:
        logs.set_up(config.log_level)
    except ValueError as error:
        logs.fatal(str(error))
        return 2
    note = EndNote(config.data_dir)
    if config.tensor_parallel == 1:
        return _run(config, note, lambda: None, again=False)
    _import_all(config)
    return RankSupervisor(partial(_run, config, note), note.write).run()


def _import_all(config: EngineConfig) -> None:
    """Import and compute what ranks would import and compute while they start."""
    with contextlib.suppress(ImportError):  # an engine without it serves all requests but those with a schema
        import llguidance

        _ = llguidance
    if torch.device(config.device).type == "cuda" and config.backend != "torch":
        # These need triton, and none of them uses a device.
        from lora_engine.execution import compile_ahead, graph_runner
        from lora_engine.model import invariant_ops, triton_ops
        from lora_kernels.launches import compute_cache_keys

        _ = graph_runner, invariant_ops, triton_ops
        compute_cache_keys()
        if config.fast_start and compile_ahead.compute_capability(config.device):  # asked once, for all starts of ranks
            compile_ahead.use_cache(config.data_dir)


def _run(config: EngineConfig, note: EndNote, serves: Callable[[], None], again: bool) -> int:
    """Run the engine and return the exit status. ``serves`` is called when it serves requests.

    ``again``: streams of an engine that ended wait for this one.
    """
    try:
        with ExitStack() as stack:
            leader = None
            if config.tensor_parallel > 1:
                # First of all: the other ranks are forks, which must not have locks or threads.
                leader = Leader(config, partial(load_model, again=again), on_end=note.write, forks=True)
                stack.callback(leader.close)
            _take_locks(config, stack)
            identity = joined(config)  # before anything expensive, as it may be refused
            loaded, pages = _start(config, stack, leader, again=again)
            asyncio.run(_serve(leader.config if leader else config, loaded, pages, leader, identity, note, serves))
    except torch.OutOfMemoryError as error:
        logs.fatal(_no_memory(config, error))
        return 2
    except (StartupError, JournalError, UnsupportedModel, TokenizerError, ValueError, OSError) as error:
        log.debug("the engine cannot run", exc_info=True)
        logs.fatal(str(error))
        return 2
    except EngineFailed:
        return 1
    except RestartRequested:
        return RESTART_STATUS
    except KeyboardInterrupt:  # during the load of the model
        return 130
    return 0


def _start(config: EngineConfig, stack: ExitStack, leader: Leader | None, *, again: bool) -> tuple[LoadedModel, Pages]:
    """Load the model, on this rank's device if there are several. The metrics port shows the progress meanwhile."""
    progress = StartProgress(began=process_start())
    pages = Pages(progress, config.metrics_token, open_metrics=config.insecure_metrics)
    if config.metrics_port:
        stack.callback(_show(config, pages).stop)
    kernels = None
    if config.fast_start and torch.device(config.device).type == "cuda" and config.backend != "torch":
        # These modules need triton, which a CPU engine does not need.
        from lora_engine.execution.compile_ahead import compile_ahead
        from lora_kernels.launches import log_compilations

        log_compilations()
        if kernels := compile_ahead(config):
            stack.callback(kernels.stop)
    digests = DigestMemory(config.data_dir / "digests.json")
    if leader is None:
        return load_model(config, progress=progress, kernels=kernels, digests=digests), pages
    return load_model(leader.config, leader.begin_to_join(), progress, kernels, digests, again=again), pages


def _no_memory(config: EngineConfig, error: torch.OutOfMemoryError) -> str:
    smaller = "--pool-mb" if config.pool_mb else "--gpu-memory-fraction"
    return (
        f"{config.device} has too little free memory for {config.model} with --max-running {config.max_running} and "
        f"--step-tokens {config.max_step_tokens}; end what else uses the card, or lower {smaller}, --max-running or "
        f"--step-tokens, or take a smaller model. ({str(error).splitlines()[0]})"
    )


def _take_locks(config: EngineConfig, locks: ExitStack) -> None:
    """Lock the address and the data folder before anything expensive."""
    if path := socket_path(config.listen):
        taken = f"Another engine listens on {path}; stop it first, or choose another --listen."
        locks.callback(InstanceLock(path.with_name(path.name + ".lock"), taken).release)
    taken = f"Another engine uses the data folder {config.data_dir}; stop it first, or choose another --data-dir."
    locks.callback(InstanceLock(config.data_dir / "engine.lock", taken).release)


async def _serve(
    config: EngineConfig,
    loaded: LoadedModel,
    pages: Pages,
    leader: Leader | None,
    identity: HostIdentity | None,
    note: EndNote,
    serves: Callable[[], None],
) -> None:
    signals = StopSignals()
    signals.install()
    async with AsyncExitStack() as stack:
        host = build_host(config, loaded, leader)
        stack.callback(host.stop)
        server = make_server(config)
        engine_pb2_grpc.add_EngineServicer_to_server(EngineService(host, identity), server)  # type: ignore[no-untyped-call]
        address = bind(server, config, identity)
        if last := note.begin():
            host.description.last_end.CopyFrom(pb.LastEnd(reason=last.reason, unix_time=last.at))
            log.warning("the previous engine ended abnormally: %s", last.reason)
        freeze_loaded_objects()
        host.start()
        # A CPU is slow, but it does not hang unless it waits for another rank.
        if config.step_timeout_s and (config.device != "cpu" or leader is not None):
            watchdog = StepWatchdog(lambda: host.step_progress, config.step_timeout_s, on_end=note.write)
            watchdog.start()
            stack.callback(watchdog.stop)
        pages.stalled_s = lambda: host.stalled_s
        if config.metrics_port:
            await stack.enter_async_context(_metrics(pages, host))
        await server.start()
        loaded.progress.ready()
        serves()
        log.info("listening on %s", address, extra={"boot_id": host.lifecycle.boot_id, "model": loaded.name})
        await _first_of(signals.first, host.lifecycle.failed, host.lifecycle.restarts)
        restarts = await _requests_ended(host, signals)
        await _wind_down(host, server, signals, 0.0 if restarts else config.drain_seconds)
        if path := socket_path(config.listen):
            path.unlink(missing_ok=True)
    log.info("stopped")
    if host.lifecycle.failed.is_set():
        note.write(host.lifecycle.failure)
        raise EngineFailed
    note.clear()
    if restarts:
        raise RestartRequested


async def _first_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


class EngineFailed(Exception):
    """The engine reported a failure and must be restarted."""


class RestartRequested(Exception):
    """An operator requested a restart."""


@dataclass
class StopSignals:
    """The stop signals SIGTERM and SIGINT: the first starts draining, the second stops at once."""

    first: asyncio.Event = field(default_factory=asyncio.Event)
    second: asyncio.Event = field(default_factory=asyncio.Event)

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    def _received(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def _requests_ended(host: HostServer, signals: StopSignals) -> bool:
    """Wait for requests to end before a requested restart; False if none was requested or something else ends the
    engine.
    """
    if not host.lifecycle.restarts.is_set():
        return False
    log.info("draining before a restart", extra={"boot_id": host.lifecycle.boot_id})
    while not (host.may_restart or signals.first.is_set() or host.lifecycle.failed.is_set()):
        await asyncio.sleep(0.02)
    return host.may_restart and not (signals.first.is_set() or host.lifecycle.failed.is_set())


async def _wind_down(host: HostServer, server: grpc.aio.Server, signals: StopSignals, drain_s: float) -> None:
    """Let running requests end, abort the rest after ``drain_s``, and notify every client before closing."""
    host.lifecycle.drain()
    log.info("draining", extra={"seconds": drain_s})
    if not await _idle_within(host, drain_s, signals.second):
        log.warning("aborting requests that are still running")
        host.requests.abort_all()
        await _idle_within(host, _LAST_WORDS_S, asyncio.Event())
    await server.stop(_CLOSING_S)
    # Calls that were cut off end here; if the loop ended them, each would be logged as an error.
    if calls := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(calls, timeout=_CLOSING_S)


async def _idle_within(host: HostServer, seconds: float, interrupted: asyncio.Event) -> bool:
    deadline = time.monotonic() + seconds
    while not host.requests.idle and time.monotonic() < deadline and not interrupted.is_set():
        await asyncio.sleep(0.02)
    return host.requests.idle


def _show(config: EngineConfig, pages: Pages) -> MetricsServer:
    address, port = config.metrics_host, config.metrics_port
    try:
        server = MetricsServer(address, port, pages)
    except OSError as error:
        raise StartupError(
            f"The metrics port {port} of {address} cannot be opened: {error.strerror}. Choose another --metrics-port "
            "or --metrics-host."
        ) from None
    server.start()
    if config.insecure_metrics and not config.metrics_token:
        log.warning("the metrics, which name tenants and adapters, are shown without a token", extra={"port": port})
    return server


@asynccontextmanager
async def _metrics(pages: Pages, host: HostServer) -> AsyncIterator[None]:
    pages.metrics = host.metrics.text
    refresh = asyncio.create_task(_refresh_metrics(host))
    try:
        yield
    finally:
        refresh.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await refresh


async def _refresh_metrics(host: HostServer) -> None:
    while True:
        host.metrics.status = await host.status.read()
        host.metrics.adapters = host.requests.adapters()
        await asyncio.sleep(_METRICS_EVERY_S)


def build_host(config: EngineConfig, loaded: LoadedModel, leader: Leader | None = None) -> HostServer:
    """Build a host around a loaded model. ``leader`` leads its other ranks. Needs a running event loop."""
    runner = build_runner(config, loaded, leader)
    with loaded.progress.phase("digest"):  # most of it was computed during the load
        log.info("the base model's digest is %s", loaded.digest)
    tiers = _build_tiers(config, loaded, leader)
    engine = Engine(config, tiers, loaded, mirror=leader, runner=runner)
    template = ChatTemplate.load(config.model)
    chat_format = ChatFormat(
        template, loaded.tokenizer, tool_format=config.tool_format, reasoning_format=config.reasoning_format
    )
    log.info("tool calls are read as %s", chat_format.tools, extra={"reasoning": chat_format.reasoning is not None})
    description = describe(engine, config, template)
    return HostServer(
        engine,
        InputProcessor(loaded.tokenizer, chat_format, engine.grammars, description),
        tiers,
        UsageJournal(config.data_dir / "usage.sqlite3"),
        description,
        unquantised_model(config, loaded, base_geometry(loaded)),
    )


def _build_tiers(config: EngineConfig, loaded: LoadedModel, leader: Leader | None) -> AdapterTiers:
    memory: HostMemory = PinnedSlabs() if loaded.pool.data.is_cuda else PageableMemory()
    if leader is not None:
        memory = leader.host_memory(pinned=loaded.pool.data.is_cuda)
    return AdapterTiers(
        DiskTier(config.data_dir / "adapters", config.disk_tier_mb << 20),
        HostArena(config.host_arena_bytes),
        _packer(config, loaded, memory, fp8=False),
        fp8_packer=_packer(config, loaded, memory, fp8=True) if loaded.fp8_adapters else None,
        parallelism=config.stage_parallelism,
    )


def _packer(config: EngineConfig, loaded: LoadedModel, memory: HostMemory, *, fp8: bool) -> PoolPacker:
    geometry = base_geometry(loaded)
    return PoolPacker(
        geometry,
        AdapterLimits.of_base(geometry, config.max_lora_rank),
        loaded.pool.geometry,
        loaded.targets,
        loaded.pool.data.dtype,
        memory,
        base_embedding_layers(config, loaded),
        loaded.pool.num_pages,
        base_modules(config, loaded),
        fp8=fp8,
        partial=config.resident_experts != 1.0,
    )


def base_geometry(loaded: LoadedModel) -> BaseGeometry:
    """Return the geometry that adapters are validated against: the whole model's, also where this rank has a part."""
    model: ModelConfig = loaded.model.config
    return BaseGeometry(
        name=loaded.name,
        digest=loaded.digest,
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        num_attention_heads=model.num_heads,
        num_key_value_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        vocab_size=model.vocab_size,
        fused_qkv=int(model.family.fused_qkv),
        fused_gate_up=int(model.family.fused_gate_up),
        untied_head=int(loaded.model.weights.embedding is not loaded.model.weights.lm_head),
        gated_queries=int(model.family.gated_queries),
        layer_kinds=_layer_kinds(model),
        experts=model.experts.count if model.experts else 0,
        expert_features=model.experts.inner if model.experts else 0,
        interleaved_experts=int(bool(model.experts and model.family.experts and model.family.experts.interleaved)),
        shared_expert=int(bool(model.experts and model.experts.gated_shared)),
        shared_features=model.experts.shared if model.experts and not model.experts.gated_shared else 0,
        **_delta_sizes(model),
    )


def _layer_kinds(model: ModelConfig) -> str:
    """Return a letter for each layer, see ``BaseGeometry``; empty if no layer has another kind than attention's."""
    if not model.delta_layers and not model.sparse_layers:
        return ""
    kinds = {(False, False): "a", (True, False): "d", (False, True): "e", (True, True): "x"}
    layers = range(model.num_layers)
    return "".join(kinds[layer in model.delta_layers, layer in model.sparse_layers] for layer in layers)


def _delta_sizes(model: ModelConfig) -> dict[str, Any]:
    if (delta := model.delta) is None:
        return {}
    names = model.family.gated_delta
    return {
        "delta_channels": delta.channels,
        "delta_values": delta.heads * delta.value_dim,
        "delta_heads": delta.heads,
        "split_delta": int(names is not None and len(names.inputs) > 2),
        "fused_delta": int(names is not None and names.interleaved),
    }


def describe(engine: Engine, config: EngineConfig, template: ChatTemplate) -> pb.EngineDescription:
    facts = engine.describe()
    policies = {name: str(facts[name]) for name in ("order", "admission", "mode", "deterministic")}
    settings = {
        "host_arena_bytes": config.host_arena_bytes,
        "geometry": base_geometry(engine.loaded),
        "chat_template_digest": template.digest,
        "text_digest": text_digest(config.model),
        "zone": config.zone,
        "added_tokens": _added_tokens(engine.loaded.tokenizer),
    }
    return fill(pb.EngineDescription(policies=policies), facts | settings)


def _added_tokens(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the tokenizer's added tokens, or none if there are thousands, as in speech models."""
    tokens = tokenizer.added_tokens
    is_stated = len(tokens) <= _MAX_ADDED_TOKENS and all(len(token) <= _MAX_TOKEN_CHARS for token in tokens)
    return tokens if is_stated else ()
