"""Settings of one engine process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lora_engine.memory.host_limits import memory_bytes

_HOST_SHARE = 4
_CPU_ARENA_BYTES = 1 << 30
_STEP_TOKENS = 1024

HIGHEST_LORA_RANK = 512  # that the kernels' launches are made for


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Every setting of the engine, with the defaults of a laptop CPU.

    Sizes are in MiB. ``pool_mb`` 0 takes what weights and activations leave on a GPU
    (``gpu_memory_fraction`` of the card), and 256 MiB on a CPU. ``host_arena_mb`` 0 takes a quarter of the memory
    that this process may use, on a CPU at most 1 GiB.
    """

    model: Path
    listen: str = "unix:/tmp/lora-engine.sock"
    data_dir: Path = Path("var/engine")
    model_name: str = ""  # "" = the model folder's own name
    tool_format: str = "auto"  # how the model writes tool calls; "auto" = as its chat template shows
    reasoning_format: str = "auto"  # how it writes its reasoning
    device: str = "cpu"  # "cpu" | "cuda" | "cuda:1"
    tensor_parallel: int = 1  # devices that share the model, from ``device`` on
    lora_sharding: str = "auto"  # of adapters over them: "outer" | "full" (``adapters/targets.py``) | "auto" = outer
    small_sum_kb: int = 512  # of sums over them that go through symmetric memory, not NCCL; 0 = none
    dtype: str = "auto"  # "auto" = float32 on a CPU, bfloat16 on a GPU
    quantization: str = "auto"  # "auto" = as the checkpoint has its weights | "fp8" = plain ones too
    kv_cache_dtype: str = "auto"  # of keys and values: "auto" = dtype | "fp8" = E4M3, half the bytes
    backend: str = "auto"  # "auto" | "torch" | "triton" | "flashinfer" (Triton, with FlashInfer's kernels for prompts)
    deterministic: bool = False  # the same answer whoever is beside it
    cuda_graphs: bool = True
    defer_graphs: bool = True  # where kernels were compiled ahead
    fast_start: bool = True  # kernels compiled in processes beside the load, weights read by threads
    max_device_adapters: int = 4096  # rows of the kernels' adapter table
    threads: int = 0  # CPU threads for tensor work; 0 = torch's default
    pool_mb: int = 0
    gpu_memory_fraction: float = 0.92
    host_arena_mb: int = 0
    disk_tier_mb: int = 20_480
    page_tokens: int = 16
    max_context: int = 0  # 0 = the model's own limit
    max_running: int = 256
    max_waiting: int = 10_000
    step_tokens: int = 0  # tokens a step may process; 0 = 1,024 (the largest graph's), or twice ``max_running``
    prefix_cache: bool = True
    prefetch: int = 16  # waiting requests whose adapters are brought to the device ahead of their turn
    max_lora_rank: int = 256  # at most HIGHEST_LORA_RANK
    order: str = "fair"
    input_price: float = 1.0  # of a token, in the fair order's counters
    output_price: float = 2.0
    adapter_price: float = 0.005  # for each rank of its adapter, a token costs this share more
    fair_slack: float = 0.1  # share of the pool's tokens, priced as output
    guaranteed_share: float = 0.5  # part of its share of the batch that a tenant need not wait for; 0 = none
    starvation_s: float = 10.0
    tenant_max_running: int = 0  # 0 = no cap
    min_prefill_share: float = 0.0625  # of a step's tokens, whatever the objectives between tokens; 1 = enforce none
    cluster_adapters: int = 8
    lorax_active: int = 1024
    lorax_cycle_s: float = 2.0
    early_abort_s: float = 6.0
    admission: str = "slo"
    mode: str = "unmerged"
    metrics_port: int = 0  # 0 = no metrics endpoint
    metrics_host: str = "127.0.0.1"
    drain_seconds: float = 30.0
    step_timeout_s: float = 60.0  # of one step on a GPU; a CPU is slow, but it does not hang
    stage_parallelism: int = 4
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    insecure_tcp: bool = False  # TCP without TLS on other addresses than loopback
    host_token: str = ""
    join: str = ""  # address of the control plane whose host this is to be; "" = it joins none
    join_token: str = ""
    host_name: str = ""  # to join by; "" = the machine's own
    advertise: str = ""  # host:port at which the control plane reaches it; "" = as ``listen`` says
    zone: str = ""  # where this machine is: a rack, a data centre; "" = not stated
    log_level: str = "INFO"

    @property
    def merges(self) -> bool:
        """Whether the mode needs a second set of the model's matrices."""
        return self.mode != "unmerged"

    @property
    def max_step_tokens(self) -> int:
        """Tokens that a step may process.

        Larger steps are little more efficient: an 8B model's products are bound by computing from some 300 rows on.
        They run without graphs, and everybody who decodes waits for them (docs/LOG.md).
        """
        return self.step_tokens or max(_STEP_TOKENS, 2 * self.max_running)

    @property
    def host_arena_bytes(self) -> int:
        """Host memory for adapters."""
        if self.host_arena_mb:
            return self.host_arena_mb << 20
        share = memory_bytes() // _HOST_SHARE
        return min(share, _CPU_ARENA_BYTES) if self.device == "cpu" else share
