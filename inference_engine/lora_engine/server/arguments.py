"""Command-line options: one per field of ``EngineConfig``, with its default and its type."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import get_type_hints

from lora_engine.config import HIGHEST_LORA_RANK, EngineConfig
from lora_engine.text.output.formats import REASONING_SETTINGS, TOOL_FORMATS
from lorikeet_version import build_version

TOKEN_VARIABLE = "LORA_ENGINE_HOST_TOKEN"
JOIN_TOKEN_VARIABLE = "LORA_ENGINE_JOIN_TOKEN"
METRICS_TOKEN_VARIABLE = "LORA_ENGINE_METRICS_TOKEN"
_SECRETS = {
    "host_token": TOKEN_VARIABLE,
    "join_token": JOIN_TOKEN_VARIABLE,
    "metrics_token": METRICS_TOKEN_VARIABLE,
}
_FLAGS = {"join_token": "--token"}
_HELP = {
    "model": "folder of the base model in Hugging Face format",
    "listen": "unix:/path.sock, or host:port (for other machines with a host token and TLS)",
    "data_dir": "folder for the disk tier of adapters and the usage journal",
    "model_name": "name that clients see; the folder's name if empty",
    "tool_format": "how the model writes tool calls; auto follows its chat template",
    "reasoning_format": "how the model marks its reasoning; auto follows its chat template",
    "device": "cpu, cuda or cuda:N",
    "tensor_parallel": "GPUs of this host that share the model, from --device on; each has a process of its own",
    "lora_sharding": "how adapters are split over them: outer (one of the two factors), full (both: less memory, more "
    "exchanges) or auto (outer so far)",
    "fused_sum_mb": "MiB up to which the kernels of norms add up these GPUs' outputs of layers; NCCL does that for "
    "larger ones; 0 is none",
    "small_sum_kb": "KiB up to which their other sums go through symmetric memory instead of NCCL; 0 is none",
    "dtype": "float32, bfloat16, float16 or auto",
    "quantization": "auto (weights as the checkpoint has them) or fp8 (quantise plain weights when they are loaded)",
    "kv_cache_dtype": "auto (keys and values in the dtype of the rest) or fp8 (half the memory, coarser)",
    "adapter_dtype": "auto (adapters in the dtype of the rest) or fp8 (LoRA's factors in half the memory, coarser)",
    "expert_residency": "experts of an adapter in the page pool: full (all), auto (as many as fit, the most used ones) "
    "or at most a share like 0.25; the others are read from host memory",
    "backend": "torch, triton, flashinfer (triton, with FlashInfer's attention for prompts) or auto (triton on a GPU)",
    "deterministic": "the same tokens and logits alone, in any batch and after any interruption; slower",
    "cuda_graphs": "capture decode steps as CUDA graphs (--no-cuda-graphs to run them eagerly)",
    "fast_start": "compile kernels in processes beside the load, read weights by threads (--no-fast-start to not)",
    "defer_graphs": "be ready with the few decode graphs that cover the others, and capture those while nothing runs",
    "max_device_adapters": "adapters that may be in the page pool at the same time",
    "threads": "CPU threads for tensor work; 0 leaves it to torch",
    "pool_mb": "MiB of the page pool; 0 takes what a GPU has left",
    "gpu_memory_fraction": "share of the GPU's memory that this process may use",
    "host_arena_mb": "MiB of host memory for adapters; 0 takes a quarter of what there is, on a CPU at most 1024",
    "disk_tier_mb": "MiB of disk for adapters",
    "page_tokens": "tokens per page",
    "max_context": "longest prompt plus output in tokens; 0 is the model's limit",
    "max_running": "sequences in one batch",
    "max_waiting": "sequences in the queue before requests are refused",
    "step_tokens": "tokens that one step may process; 0 = 1,024, or twice --max-running",
    "prefix_cache": "keep keys and values of prompts for requests that begin alike (--no-prefix-cache to not)",
    "prefetch": "waiting requests whose adapters are loaded to the device before they are scheduled",
    "max_lora_rank": f"highest adapter rank that is accepted, up to {HIGHEST_LORA_RANK}",
    "speculation": "ngram (steps also compute guessed next tokens, looked up in the same text; same output), eagle3 "
    "(the same, guessed by a draft head that all adapters share), mtp (the same, by the model's own layer for that, "
    "which GLM-4.5, Qwen3-Next and Qwen3.5 have) or off",
    "draft_model": "folder of the EAGLE-3 head for --speculation eagle3, in Hugging Face format",
    "speculation_tokens": "guessed tokens of a sequence in a step at most",
    "speculation_max_running": "running sequences beyond which nothing is guessed",
    "order": "queue policy: which request runs next",
    "input_price": "what an input token costs its tenant under the fair policy",
    "output_price": "what an output token costs its tenant",
    "adapter_price": "share that each rank of an adapter adds to the price of its tokens",
    "fair_slack": "lead another tenant may gain on one whose request does not fit, as a share of the pool",
    "guaranteed_share": "part of a tenant's share of the batch for which others are pre-empted, so that it need not "
    "wait; 0 is none",
    "starvation_s": "seconds a request may be passed by others before none may pass it",
    "tenant_max_running": "sequences of one tenant in a batch, where the request names no other cap; 0 has none",
    "min_prefill_share": "share of a step's tokens left to prefill by objectives between tokens; 1 enforces none",
    "cluster_adapters": "adapters in a batch from which the clustered policy prefers those",
    "lorax_active": "adapters that the lorax policy serves at a time",
    "lorax_cycle_s": "seconds after which the lorax policy lets another adapter in",
    "early_abort_s": "first-token target of requests that name none, under the early_abort admission",
    "admission": "admission policy: which requests may wait",
    "mode": "merge policy: how adapters are applied; merged and auto need memory for the weights once more",
    "metrics_port": "port of the Prometheus endpoint; 0 has none",
    "metrics_host": "address of the Prometheus endpoint; other machines than this one need the token of metrics",
    "metrics_token": f"secret that readers of the metrics must send; better set by {METRICS_TOKEN_VARIABLE}",
    "insecure_metrics": "show the metrics to other machines without a token, within a network that is closed to others",
    "drain_seconds": "how long running requests may go on after SIGTERM",
    "step_timeout_s": "seconds after which a step on a GPU counts as hung and the engine ends itself (of several "
    "ranks, after a sixth of them once all their devices have the step); 0 has no limit",
    "stage_parallelism": "adapters staged at the same time",
    "tls_certificate": "PEM certificate chain for TCP",
    "tls_key": "PEM key of the certificate",
    "insecure_tcp": "listen for other machines without TLS: token, prompts and answers can be read on the way",
    "host_token": f"secret that callers must send; better set by {TOKEN_VARIABLE}",
    "join": "address of the control plane whose host this is to be, like https://lorikeet.example.org",
    "join_token": f"join token, for the first start; better set by {JOIN_TOKEN_VARIABLE}",
    "host_name": "name to join by; the machine's host name if empty",
    "advertise": "host:port at which the control plane reaches this engine; by default as --listen says",
    "zone": "where this machine is (a rack, a data centre): adapters are read from hosts of the same zone first",
    "log_level": "DEBUG, INFO, WARNING or ERROR",
}
# Characters and length that a Kubernetes label value may have.
_ZONE = re.compile(r"[A-Za-z0-9._-]{0,63}")
_CHOICES = {
    "lora_sharding": ["auto", "outer", "full"],
    "tool_format": [str(name) for name in TOOL_FORMATS],
    "reasoning_format": list(REASONING_SETTINGS),
    "speculation": ["off", "ngram", "eagle3", "mtp"],
}
_MAY_BE_ZERO = frozenset(
    {"threads", "pool_mb", "host_arena_mb", "max_context", "metrics_port", "drain_seconds", "step_timeout_s"}
    | {"adapter_price", "fused_sum_mb", "small_sum_kb", "step_tokens", "fair_slack", "guaranteed_share", "starvation_s"}
    | {"tenant_max_running"}
)


def parse(arguments: Sequence[str] | None = None) -> EngineConfig:
    """Read the command line; print a message and exit if it is wrong."""
    parser = _parser()
    values = vars(parser.parse_args(arguments))
    for name, value in values.items():
        is_size = isinstance(value, int | float) and not isinstance(value, bool)
        if is_size and not (value > 0 or (value == 0 and name in _MAY_BE_ZERO)):
            parser.error(f"--{name.replace('_', '-')} is {value}; it must be above 0")
    config = EngineConfig(**values)
    if config.max_lora_rank > HIGHEST_LORA_RANK:
        parser.error(f"--max-lora-rank is {config.max_lora_rank}; the highest is {HIGHEST_LORA_RANK}")
    try:
        config.resident_experts  # noqa: B018
    except ValueError as error:
        parser.error(f"--expert-residency: {error}")
    if (config.tls_certificate is None) != (config.tls_key is None):
        parser.error("--tls-certificate and --tls-key go together")
    if (config.draft_model is None) == (config.speculation == "eagle3"):
        parser.error("--speculation eagle3 and --draft-model go together")
    if config.join and config.tls_certificate:
        parser.error("--join brings a certificate of its own; leave --tls-certificate and --tls-key out")
    if (config.host_name and not config.join) or (config.advertise and not config.join):
        parser.error("--host-name and --advertise are for --join")
    if not _ZONE.fullmatch(config.zone):
        parser.error(f'--zone is "{config.zone}"; it may have letters, digits, ".", "_" and "-", 63 at most')
    return config


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lora_engine",
        description="Serves many LoRA adapters of one base model over gRPC.",
        epilog="python -m lora_engine --plan --help: what a model needs of a GPU, and how much fits. "
        "python -m lora_engine --healthcheck PORT: whether an engine is ready and makes steps.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=build_version())
    kinds = get_type_hints(EngineConfig)
    for field in fields(EngineConfig):
        _add(parser, field, kinds[field.name])
    return parser


def _add(parser: argparse.ArgumentParser, field: Field[object], kind: object) -> None:
    flag = _FLAGS.get(field.name) or f"--{field.name.replace('_', '-')}"
    text = _HELP.get(field.name, "see EngineConfig")
    if kind is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=field.default, help=text)
        return
    convert = kind if kind in (str, int, float) else Path
    if field.name in _CHOICES:
        parser.add_argument(flag, choices=_CHOICES[field.name], default=field.default, help=text)
    elif field.default is MISSING:
        parser.add_argument(flag, type=convert, required=True, default=argparse.SUPPRESS, help=text)
    elif field.name in _SECRETS:
        # Do not print a secret from the environment in --help.
        secret = os.environ.get(_SECRETS[field.name], "")
        parser.add_argument(flag, dest=field.name, default=secret, help=text + " (default: none)")
    else:
        parser.add_argument(flag, type=convert, default=field.default, help=text)
