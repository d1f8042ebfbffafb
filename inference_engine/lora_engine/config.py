"""The settings of an engine process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Divisor of the process's memory for the default size of the host arena.
_HOST_SHARE = 4
# Maximum default size of the host arena on a CPU, in bytes.
_CPU_ARENA_BYTES = 1 << 30
# Default number of tokens in a step: the rows of the largest graph.
STEP_TOKENS = 1024

# Highest rank for which the LoRA kernels have launch configurations.
HIGHEST_LORA_RANK = 512


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The settings of the engine, with defaults for a laptop CPU.

    Sizes are in MiB. ``pool_mb`` 0 takes the memory that weights and activations leave on a GPU
    (``gpu_memory_fraction`` of the card), and 256 MiB on a CPU. ``host_arena_mb`` 0 takes a quarter of the memory that
    this process may use, on a CPU at most 1 GiB.
    """

    model: Path
    listen: str = "unix:/tmp/lora-engine.sock"
    data_dir: Path = Path("var/engine")
    model_name: str = ""  # "" = the model folder's name
    tool_format: str = "auto"  # format of the model's tool calls; "auto" = from its chat template
    reasoning_format: str = "auto"  # format of the model's reasoning; "auto" = from its chat template
    device: str = "cpu"  # "cpu" | "cuda" | "cuda:1"
    tensor_parallel: int = 1  # devices that share the model, from ``device`` on
    lora_sharding: str = "auto"  # "outer" | "full" (``adapters/targets.py``) | "auto" = outer
    fused_sum_mb: int = 64  # maximum size of a sum over ranks that a norm's kernel adds up; 0 = none
    small_sum_kb: int = 512  # maximum size of another sum through symmetric memory instead of NCCL; 0 = none
    dtype: str = "auto"  # "auto" = float32 on a CPU, bfloat16 on a GPU
    quantization: str = "auto"  # "auto" = weights as in the checkpoint | "fp8" = quantise plain weights too
    kv_cache_dtype: str = "auto"  # "auto" = dtype | "fp8" = E4M3, half the bytes
    adapter_dtype: str = "auto"  # "auto" = dtype | "fp8" = factors of LoRA in E4M3, half the bytes
    expert_residency: str = "full"  # experts of an adapter in the pool: "full" | "auto" = what fits | most, as a share
    backend: str = "auto"  # "auto" | "torch" | "triton" | "flashinfer" (Triton, with FlashInfer's kernels for prompts)
    deterministic: bool = False  # answers do not depend on other requests
    cuda_graphs: bool = True
    defer_graphs: bool = True  # capture most graphs after the start, if kernels were compiled ahead
    fast_start: bool = True  # compile kernels in processes during the load, and read weights by threads
    max_device_adapters: int = 4096  # rows of the kernels' adapter table
    threads: int = 0  # CPU threads for tensor work; 0 = torch's default
    pool_mb: int = 0
    gpu_memory_fraction: float = 0.92
    host_arena_mb: int = 0
    disk_tier_mb: int = 20_480
    page_tokens: int = 16
    max_context: int = 0  # 0 = the model's limit
    max_running: int = 256
    max_waiting: int = 10_000
    step_tokens: int = 0  # tokens a step may process; 0 = 1,024 (the largest graph's), or twice ``max_running``
    prefix_cache: bool = True
    prefetch: int = 16  # first waiting requests whose adapters are loaded ahead
    max_lora_rank: int = 256  # at most HIGHEST_LORA_RANK
    speculation: str = "off"  # "ngram" | "eagle3" | "mtp" = steps also compute guessed next tokens | "off"
    draft_model: Path | None = None  # folder of the draft head, with "eagle3"
    speculation_tokens: int = 4  # guesses of a sequence in a step at most
    speculation_max_running: int = 32  # running sequences beyond which nothing is guessed
    order: str = "fair"
    input_price: float = 1.0  # price of a prompt token in the service counters of the fair order
    output_price: float = 2.0  # price of a generated token there
    adapter_price: float = 0.005  # price increase of a token for each rank of its adapter, as a share
    fair_slack: float = 0.1  # allowed lead of a service counter, as a share of the pool's tokens at the output price
    guaranteed_share: float = 0.5  # part of a tenant's share of the batch for which it never waits; 0 = none
    starvation_s: float = 10.0
    tenant_max_running: int = 0  # 0 = no cap
    min_prefill_share: float = 0.0625  # share of a step's tokens that objectives leave to prefill; 1 = enforce none
    cluster_adapters: int = 8
    lorax_active: int = 1024
    lorax_cycle_s: float = 2.0
    early_abort_s: float = 6.0
    admission: str = "slo"
    mode: str = "unmerged"
    metrics_port: int = 0  # 0 = no metrics endpoint
    metrics_host: str = "127.0.0.1"
    metrics_token: str = ""  # "" = callers on this machine only
    insecure_metrics: bool = False  # metrics for callers on other machines without a token
    drain_seconds: float = 30.0
    step_timeout_s: float = 60.0  # time limit of a step on a GPU; a CPU is slow, but does not hang
    stage_parallelism: int = 4
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    insecure_tcp: bool = False  # TCP without TLS on other addresses than loopback
    host_token: str = ""
    join: str = ""  # address of the control plane to join; "" = none
    join_token: str = ""
    host_name: str = ""  # name of this host there; "" = the machine's name
    advertise: str = ""  # host:port for connections from the control plane; "" = ``listen``
    zone: str = ""  # location of this machine: a rack, a data centre; "" = unknown
    log_level: str = "INFO"

    @property
    def merges(self) -> bool:
        """True if the mode needs a second set of the model's matrices."""
        return self.mode != "unmerged"

    @property
    def drafting_sequences(self) -> int:
        """Maximum number of running sequences beside which tokens are drafted.

        A step has at most ``max_running`` rows that decode, so with more than half as many some would have no draft.
        """
        return min(self.speculation_max_running, self.max_running // 2)

    @property
    def resident_experts(self) -> float | None:
        """The share of an adapter's experts that lie in the pool at most; None: as many as fit, but none need to.

        Raises ``ValueError`` for another ``expert_residency`` than "full", "auto" and a share below 1.
        """
        if self.expert_residency in ("full", "auto"):
            return 1.0 if self.expert_residency == "full" else None
        try:
            share = float(self.expert_residency)
        except ValueError:
            share = -1.0
        if not 0.0 <= share < 1.0:
            raise ValueError(
                f"unknown expert_residency {self.expert_residency!r}; choose full, auto or a share below 1 like 0.25"
            )
        return share

    @property
    def max_step_tokens(self) -> int:
        """Maximum number of tokens in a step.

        Larger steps are hardly more efficient: an 8B model's products are compute-bound from about 300 rows on. They
        run without graphs, and all decoding sequences wait for them (docs/LOG.md).
        """
        return self.step_tokens or max(STEP_TOKENS, 2 * self.max_running)

    @property
    def most_rows(self) -> int:
        """Maximum number of rows of a step, the padding of a graph included (``graph_rows`` in `graph_shapes.py`)."""
        return max(STEP_TOKENS, self.max_step_tokens)

    @property
    def host_arena_bytes(self) -> int:
        """Size of the host memory for adapters, in bytes."""
        if self.host_arena_mb:
            return self.host_arena_mb << 20
        from lora_engine.memory.host_limits import memory_bytes  # its package loads torch

        share = memory_bytes() // _HOST_SHARE
        return min(share, _CPU_ARENA_BYTES) if self.device == "cpu" else share
