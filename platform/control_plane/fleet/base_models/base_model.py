"""The base models that this installation serves, and which hosts serve each.

Which models these are is written in rows (`BaseModel`), and only an operator changes them. A host is matched by what it
says of itself: one that serves anything else is in quarantine and gets neither placements nor requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Protocol

from control_plane.fleet.hosts.models import BaseModel, EngineHost, HostService
from lora_engine.peft_format import BaseGeometry

MOST_NAMED = 3
"""Of several, in a sentence."""
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

    pk: int
    name: str
    """What callers put into `model`, unique among those that are served."""
    model: str
    """As its engines call it."""
    digest: str
    text_digest: str
    chat_template_digest: str
    adapters_of: tuple[str, ...]
    """Base digests of the adapters that are served: its own, and those that an operator declared to be the same."""
    added_tokens: tuple[str, ...]
    """Of its tokenizer, such as `<|im_end|>`; empty where its engines do not state them."""
    geometry: BaseGeometry
    max_lora_rank: int
    max_context: int
    decided_at: datetime
    may_sleep: bool
    """Without requests it needs no host, and one for it waits until it has one."""

    def is_served_by(self, description: Description) -> bool:
        return description.get("base_digest") == self.digest and not self._differs_in_text(description)

    def _differs_in_text(self, description: Description) -> bool:
        """An engine of an earlier version does not state it."""
        stated = description.get("text_digest", "")
        return bool(stated and self.text_digest and stated != self.text_digest)

    def __str__(self) -> str:
        return f"{self.name} ({short(self.digest)})"


@dataclass(frozen=True)
class ServedBases:
    """The base models that operators have admitted, in that order. Empty while none is decided."""

    all: tuple[ServedBase, ...] = ()

    def __iter__(self) -> Iterator[ServedBase]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def only(self) -> ServedBase | None:
        """The one that needs no name, if there is just one."""
        return self.all[0] if len(self.all) == 1 else None

    @property
    def adapters_of(self) -> list[str]:
        """Base digests of all adapters that are served."""
        return [digest for base in self.all for digest in base.adapters_of]

    def named(self, name: str) -> ServedBase | None:
        return next((base for base in self.all if base.name == name), None)

    def for_adapters_of(self, base_digest: str) -> ServedBase | None:
        """On which adapters run that were validated against this base digest."""
        return next((base for base in self.all if base_digest in base.adapters_of), None)

    def of_host(self, description: Description) -> ServedBase | None:
        return next((base for base in self.all if base.is_served_by(description)), None)

    def is_served_by(self, description: Description) -> bool:
        return self.of_host(description) is not None

    def __str__(self) -> str:
        named, more = self.all[:MOST_NAMED], len(self.all) - MOST_NAMED
        return ", ".join([*map(str, named), *([f"and {more} more"] if more > 0 else [])])


class Served(Protocol):
    """One base model, or all of them."""

    def is_served_by(self, description: Description) -> bool: ...


def served_bases() -> ServedBases:
    """Those that are admitted and not withdrawn."""
    rows = list(BaseModel.objects.filter(withdrawn_at=None))
    hosts = [host.description for host in described_hosts()] if rows else []
    owned = {row.digest for row in rows}
    found = []
    for row in rows:
        # What another one serves as its own is that one's; what two would take over is the first one's.
        others = tuple(digest for digest in row.adapters_of if digest not in owned)
        owned.update(others)
        found.append(_read(row, _with_least_limits(row, hosts), others))
    return ServedBases(tuple(found))


_LIMITS = ("max_lora_rank", "max_context")


def _with_least_limits(row: BaseModel, hosts: Sequence[Description]) -> Description:
    """A version may come to any host of the base model, so the least of them counts."""
    base = _read(row, row.description, ())
    own = [description for description in hosts if base.is_served_by(description)]
    limits = {name: min(each.get(name, 0) for each in own) for name in _LIMITS if own}
    # The row may be of before engines stated them.
    added_tokens: list[str] = next((tokens for each in own if (tokens := each.get("added_tokens"))), [])
    return {**row.description, "added_tokens": added_tokens, **limits}


def described_hosts() -> list[EngineHost]:
    """Active hosts that have been seen and are not revoked, without their last status."""
    seen = EngineHost.objects.filter(active=True, revoked_at=None).exclude(boot_id="")
    return list(seen.defer("last_status"))


def serving_hosts(served: Served | None) -> list[EngineHost]:
    """The hosts that may get placements and requests: of this base model, and not cordoned by an operator."""
    return [
        host
        for host in described_hosts()
        if served is not None and host.service == HostService.SERVING and served.is_served_by(host.description)
    ]


def host_quarantine(bases: ServedBases, host: EngineHost) -> Quarantine | None:
    """Why this host is not used; None if it is, or if it has never been seen."""
    if host.revoked_at is not None:
        return Quarantine(
            "revoked",
            f"The credential of this host was revoked on {host.revoked_at:%Y-%m-%d at %H:%M} UTC.",
            f'To use the machine again, make a join token for "{host.name}" and start its engine with it.',
        )
    return quarantine(bases, host.description)


_DECIDE = "an operator decides on the page All tenants, or with manage.py"
_ADMIT = "an operator admits it on the page Hosts & staging, or with manage.py"


def quarantine(bases: ServedBases, description: Description) -> Quarantine | None:
    """Why a host of this description is not used; None if it is, or if it has never been seen."""
    if not description or bases.is_served_by(description):
        return None
    model, digest = description.get("base_model", ""), description.get("base_digest", "")
    if not bases:
        return Quarantine(
            "base_model_undecided",
            "It is not decided yet which base model this installation serves.",
            "It is that of the first host in LORIKEET_ENGINE_HOSTS, or else of the first that joined, as soon as it is "
            f"seen. Or {_DECIDE} set_base_model --host NAME.",
        )
    same = next((base for base in bases if base.digest == digest), None)
    if same is None:
        return Quarantine(
            "other_base_model",
            f"This host serves {model} ({short(digest)}); this installation serves {bases}.",
            f"Start the engine with the right model. To serve this one too, {_ADMIT} admit_base_model --host NAME; to "
            f"serve it instead, {_DECIDE} set_base_model --host NAME.",
        )
    return Quarantine(
        "other_tokenizer",
        f"This host has the weights of {same.name} with another tokenizer or chat template.",
        f"Copy the whole model folder to the host. To serve these files instead, {_DECIDE} set_base_model --host NAME.",
    )


def short(digest: str) -> str:
    """For people."""
    return digest[:19] or "no digest"


def _read(row: BaseModel, description: Description, others: tuple[str, ...]) -> ServedBase:
    sizes = {
        field.name: int(description.get("geometry", {}).get(field.name, 0))
        for field in fields(BaseGeometry)
        if field.name not in ("name", "digest")
    }
    return ServedBase(
        pk=row.pk,
        name=row.name,
        model=description.get("base_model", ""),
        digest=row.digest,
        text_digest=row.text_digest,
        chat_template_digest=description.get("chat_template_digest", ""),
        adapters_of=(row.digest, *others),
        added_tokens=tuple(description.get("added_tokens", ())),
        geometry=BaseGeometry(name=row.name, digest=row.digest, **sizes),
        max_lora_rank=int(description.get("max_lora_rank", 0)) or 256,
        max_context=int(description.get("max_context", 0)),
        decided_at=row.decided_at,
        may_sleep=row.sleeps_after_s > 0,
    )
