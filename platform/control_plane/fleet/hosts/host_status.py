"""Conversion of wire messages to the JSON that host rows keep."""

from __future__ import annotations

from typing import Any

from lora_engine.wire import engine_pb2 as pb

POOL_FIELDS = ("total", "free", "kv", "cached_prefix", "adapter", "reserved")
SHARE_FIELDS = ("tenant", "weight", "waiting", "running", "counter", "owed", "received", "reason")
# Loads that bring an adapter one tier nearer to the device, from the nearest.
LOADS = ("to_device", "from_disk", "download")
LOAD_FIELDS = ("loads", "fixed_s", "seconds_per_byte")
GAP_FIELDS = ("gap", "bound", "ahead", "behind")
LAST_END_FIELDS = ("reason", "unix_time")
GEOMETRY_FIELDS = (
    "num_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "fused_qkv",
    "fused_gate_up",
    "untied_head",
)
# Added tokens that are stored of one tokenizer; an engine with more reports none.
MAX_ADDED_TOKENS = 2048
DESCRIPTION_FIELDS = (
    "engine_version",
    "base_model",
    "base_digest",
    "model_family",
    "device",
    "dtype",
    "max_context",
    "max_running",
    "max_lora_rank",
    "page_tokens",
    "page_bytes",
    "pages_total",
    "host_arena_bytes",
    "chat_template_digest",
    "text_digest",
    "zone",
)


def description_json(description: pb.EngineDescription) -> dict[str, Any]:
    """Return an engine's description; adapters are validated against its ``geometry``."""
    data: dict[str, Any] = {name: getattr(description, name) for name in DESCRIPTION_FIELDS}
    data["policies"] = dict(description.policies)
    data["added_tokens"] = list(description.added_tokens[:MAX_ADDED_TOKENS])
    data["last_end"] = _fields(description.last_end, LAST_END_FIELDS) if description.HasField("last_end") else None
    data["geometry"] = {name: getattr(description.geometry, name) for name in GEOMETRY_FIELDS}
    return data


def status_json(status: pb.HostStatus) -> dict[str, Any]:
    """Return a heartbeat without its adapters, which have rows (`host_adapters.py`)."""
    return {
        "unix_time": status.unix_time,
        "steps": status.steps,
        "running": status.running,
        "waiting": status.waiting,
        "draining": status.draining,
        "restarting": status.restarting,
        "tokens_per_second": round(status.tokens_per_second, 1),
        "pool": {name: getattr(status.pool, name) for name in POOL_FIELDS},
        "host_arena_bytes_used": status.host_arena_bytes_used,
        "unacknowledged_usage": status.unacknowledged_usage,
        "adapter_readers": status.adapter_readers,
        "load_times": {name: _fields(getattr(status.load_times, name), LOAD_FIELDS) for name in LOADS},
        "service_gap": _fields(status.service_gap, GAP_FIELDS) if status.HasField("service_gap") else None,
        "tenants": [{name: getattr(share, name) for name in SHARE_FIELDS} for share in status.tenants],
    }


def _fields(message: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}
