"""The base model that this installation serves, and which hosts serve it.

Which model that is, is written in one row (`BaseModel`), and only an operator changes it. A host is matched by what it
says of itself: one that serves anything else is in quarantine and gets neither placements nor requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from control_plane.fleet.models import BaseModel, EngineHost, HostService
from lora_engine.peft_format import BaseGeometry

Description = Mapping[str, Any]
"""`EngineDescription` as JSON."""


@dataclass(frozen=True)
class Quarantine:
    """Why a host gets neither placements nor requests."""

    code: str
    message: str
    fix: str

    def json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class ServedBase:
    """What a host must serve, what an adapter must fit, and how large the engine lets it be."""

    name: str
    digest: str
    text_digest: str
    adapters_of: tuple[str, ...]
    """Base digests of the adapters that are served: its own, and those that an operator declared to be the same."""
    geometry: BaseGeometry
    max_lora_rank: int
    max_context: int
    decided_at: datetime

    def is_served_by(self, description: Description) -> bool:
        return description.get("base_digest") == self.digest and not self._differs_in_text(description)

    def _differs_in_text(self, description: Description) -> bool:
        """An engine of an earlier version does not state it."""
        stated = description.get("text_digest", "")
        return bool(stated and self.text_digest and stated != self.text_digest)


def served_base() -> ServedBase | None:
    """None while it is not decided."""
    row = BaseModel.objects.first()
    if row is None:
        return None
    base = _read(row, row.description)
    descriptions = [host.description for host in described_hosts() if base.is_served_by(host.description)]
    if not descriptions:
        return base
    # Every version is wanted on every host, so the least of them counts.
    return _read(row, {**row.description, **{name: min(d.get(name, 0) for d in descriptions) for name in _LIMITS}})


_LIMITS = ("max_lora_rank", "max_context")


def described_hosts() -> list[EngineHost]:
    """Active hosts that have been seen and are not revoked, without their last status."""
    seen = EngineHost.objects.filter(active=True, revoked_at=None).exclude(boot_id="")
    return list(seen.defer("last_status"))


def serving_hosts(base: ServedBase | None) -> list[EngineHost]:
    """The hosts that may get placements and requests: of this base model, and not cordoned by an operator."""
    return [
        host
        for host in described_hosts()
        if base is not None and host.service == HostService.SERVING and base.is_served_by(host.description)
    ]


def host_quarantine(base: ServedBase | None, host: EngineHost) -> Quarantine | None:
    """Why this host is not used; None if it is, or if it has never been seen."""
    if host.revoked_at is not None:
        return Quarantine(
            "revoked",
            f"The credential of this host was revoked on {host.revoked_at:%Y-%m-%d at %H:%M} UTC.",
            f'To use the machine again, make a join token for "{host.name}" and start its engine with it.',
        )
    return quarantine(base, host.description)


_DECIDE = "an operator decides on the page All tenants, or with manage.py set_base_model --host NAME."


def quarantine(base: ServedBase | None, description: Description) -> Quarantine | None:
    """Why a host of this description is not used; None if it is, or if it has never been seen."""
    if not description or (base is not None and base.is_served_by(description)):
        return None
    model, digest = description.get("base_model", ""), description.get("base_digest", "")
    if base is None:
        return Quarantine(
            "base_model_undecided",
            "It is not decided yet which base model this installation serves.",
            "It is that of the first host in LORIKEET_ENGINE_HOSTS, or else of the first that joined, as soon as it is "
            f"seen. Or {_DECIDE}",
        )
    if digest != base.digest:
        return Quarantine(
            "other_base_model",
            f"This host serves {model} ({short(digest)}); this installation serves {base.name} ({short(base.digest)}).",
            f"Start the engine with the right model. To serve this one instead, {_DECIDE}",
        )
    return Quarantine(
        "other_tokenizer",
        f"This host has the weights of {base.name} with another tokenizer or chat template.",
        f"Copy the whole model folder to the host. To serve these files instead, {_DECIDE}",
    )


def short(digest: str) -> str:
    """For people."""
    return digest[:19] or "no digest"


def _read(row: BaseModel, description: Description) -> ServedBase:
    sizes = {
        field.name: int(description.get("geometry", {}).get(field.name, 0))
        for field in fields(BaseGeometry)
        if field.name not in ("name", "digest")
    }
    return ServedBase(
        name=row.name,
        digest=row.digest,
        text_digest=row.text_digest,
        adapters_of=(row.digest, *row.adapters_of),
        geometry=BaseGeometry(name=row.name, digest=row.digest, **sizes),
        max_lora_rank=int(description.get("max_lora_rank", 0)) or 256,
        max_context=int(description.get("max_context", 0)),
        decided_at=row.decided_at,
    )
