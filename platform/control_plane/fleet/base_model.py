"""The base model that the hosts serve, as they described it when first seen."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from control_plane.fleet.models import EngineHost
from lora_engine.peft_format import BaseGeometry


@dataclass(frozen=True)
class ServedBase:
    """What an adapter must fit, and how large the engine lets it be."""

    name: str
    digest: str
    geometry: BaseGeometry
    max_lora_rank: int
    max_context: int


def served_base() -> ServedBase | None:
    """The base of the active hosts, or None while no host has ever been seen."""
    for description in EngineHost.objects.filter(active=True).exclude(boot_id="").values_list("description", flat=True):
        if description.get("geometry"):
            return _read(description)
    return None


def _read(description: dict[str, Any]) -> ServedBase:
    name, digest = str(description.get("base_model", "")), str(description.get("base_digest", ""))
    sizes = {
        field.name: int(description["geometry"].get(field.name, 0))
        for field in fields(BaseGeometry)
        if field.name not in ("name", "digest")
    }
    return ServedBase(
        name=name,
        digest=digest,
        geometry=BaseGeometry(name=name, digest=digest, **sizes),
        max_lora_rank=int(description.get("max_lora_rank", 0)) or 256,
        max_context=int(description.get("max_context", 0)),
    )
