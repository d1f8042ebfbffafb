"""The base models that this installation serves, and which hosts serve each.

The rows of `BaseModel` say which models are served, and only an operator changes them. A host is matched by what its
engine reports: a host that serves anything else is in quarantine and gets neither placements nor requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Protocol

from control_plane.fleet.base_models.models import BaseModel
from control_plane.fleet.hosts.models import EngineHost, HostService
from lora_engine.peft_format import BaseGeometry
from lora_engine.wire.versions import SUPPORTED, reject_version, upgrade_text

# Base models that an error message names before it only counts the rest.
MAX_NAMED = 3
# `EngineDescription` as JSON.
Description = Mapping[str, Any]


@dataclass(frozen=True)
class Quarantine:
    """The reason why a host gets neither placements nor requests."""

    code: str
    message: str
    fix: str

    def json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class ServedBase:
    """A base model that is served: what its hosts must report and what its adapters must fit."""

    pk: int
    # What callers put into `model`, unique among the served base models.
    name: str
    # The engines' name for it.
    model: str
    digest: str
    text_digest: str
    chat_template_digest: str
    # Base digests of the adapters that it serves: its own, and those that an operator declared to be the same model.
    adapters_of: tuple[str, ...]
    # Tokens that its tokenizer adds, such as `<|im_end|>`; empty if its engines do not report them.
    added_tokens: tuple[str, ...]
    geometry: BaseGeometry
    max_lora_rank: int
    max_context: int
    decided_at: datetime
    # Without requests it needs no host, and a request for it waits until it has one.
    may_sleep: bool

    def is_served_by(self, description: Description) -> bool:
        is_same = description.get("base_digest") == self.digest and not self._differs_in_text(description)
        return is_same and description.get("wire_version", 0) in SUPPORTED

    def _differs_in_text(self, description: Description) -> bool:
        """Compare the text digests, if both sides have one: older engines report none."""
        stated = description.get("text_digest", "")
        return bool(stated and self.text_digest and stated != self.text_digest)

    def __str__(self) -> str:
        return f"{self.name} ({short(self.digest)})"


@dataclass(frozen=True)
class ServedBases:
    """The base models that operators have approved, in order of approval. Empty while none is decided."""

    all: tuple[ServedBase, ...] = ()

    def __iter__(self) -> Iterator[ServedBase]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def only(self) -> ServedBase | None:
        """The default base model: the only one, or None if there are several."""
        return self.all[0] if len(self.all) == 1 else None

    @property
    def adapters_of(self) -> list[str]:
        """Base digests of all adapters that are served."""
        return [digest for base in self.all for digest in base.adapters_of]

    def named(self, name: str) -> ServedBase | None:
        return next((base for base in self.all if base.name == name), None)

    def for_adapters_of(self, base_digest: str) -> ServedBase | None:
        """Return the base model that runs adapters validated against this base digest."""
        return next((base for base in self.all if base_digest in base.adapters_of), None)

    def of_host(self, description: Description) -> ServedBase | None:
        return next((base for base in self.all if base.is_served_by(description)), None)

    def is_served_by(self, description: Description) -> bool:
        return self.of_host(description) is not None

    def __str__(self) -> str:
        named, more = self.all[:MAX_NAMED], len(self.all) - MAX_NAMED
        return ", ".join([*map(str, named), *([f"and {more} more"] if more > 0 else [])])


class Served(Protocol):
    """Anything that recognises its hosts: one base model, or all of them."""

    def is_served_by(self, description: Description) -> bool: ...


def served_bases() -> ServedBases:
    """Return the base models that are approved and not withdrawn."""
    rows = list(BaseModel.objects.filter(withdrawn_at=None))
    hosts = [host.description for host in described_hosts()] if rows else []
    owned = {row.digest for row in rows}
    bases = []
    for row in rows:
        # A digest that another base model serves itself belongs to that one; if two take it over, the first has it.
        others = tuple(digest for digest in row.adapters_of if digest not in owned)
        owned.update(others)
        bases.append(_read(row, _with_least_limits(row, hosts), others))
    return ServedBases(tuple(bases))


_LIMITS = ("max_lora_rank", "max_context")


def _with_least_limits(row: BaseModel, hosts: Sequence[Description]) -> Description:
    """Return the description with the lowest limits of its hosts: a version may be placed on any of them."""
    base = _read(row, row.description, ())
    reports = [description for description in hosts if base.is_served_by(description)]
    limits = {name: min(each.get(name, 0) for each in reports) for name in _LIMITS if reports}
    # The stored description may be older than this field of the engines' reports.
    added_tokens: list[str] = next((tokens for each in reports if (tokens := each.get("added_tokens"))), [])
    return {**row.description, "added_tokens": added_tokens, **limits}


def described_hosts() -> list[EngineHost]:
    """Return the active hosts that have been seen and are not revoked, without their last status."""
    seen = EngineHost.objects.filter(active=True, revoked_at=None).exclude(boot_id="")
    return list(seen.defer("last_status"))


def serving_hosts(served: Served | None) -> list[EngineHost]:
    """Return the hosts that may get placements and requests: of this base model, and not cordoned by an operator."""
    return [
        host
        for host in described_hosts()
        if served is not None and host.service == HostService.SERVING and served.is_served_by(host.description)
    ]


def host_quarantine(bases: ServedBases, host: EngineHost) -> Quarantine | None:
    """Return why this host is not used; None if it is used, or has never been seen."""
    if host.revoked_at is not None:
        return Quarantine(
            "revoked",
            f"The credential of this host was revoked on {host.revoked_at:%Y-%m-%d at %H:%M} UTC.",
            f'To use the machine again, make a join token for "{host.name}" and start its engine with it.',
        )
    return quarantine(bases, host.description)


_DECIDE = "an operator decides on the page All tenants, or with manage.py"
_APPROVE = "an operator approves it on the page Hosts & staging, or with manage.py"


def quarantine(bases: ServedBases, description: Description) -> Quarantine | None:
    """Return why a host with this description is not used; None if it is used, or has never been seen."""
    if not description or bases.is_served_by(description):
        return None
    version = description.get("wire_version", 0)
    if reason := reject_version("this host's engine", version):
        return Quarantine("unsupported_engine", reason, upgrade_text(version))
    model, digest = description.get("base_model", ""), description.get("base_digest", "")
    if not bases:
        return Quarantine(
            "base_model_undecided",
            "It is not decided yet which base model this installation serves.",
            "It will be that of the first host in LORIKEET_ENGINE_HOSTS, or else of the first that joins, once it "
            f"is seen. Otherwise {_DECIDE} set_base_model --host NAME.",
        )
    same = next((base for base in bases if base.digest == digest), None)
    if same is None:
        return Quarantine(
            "other_base_model",
            f"This host serves {model} ({short(digest)}); this installation serves {bases}.",
            f"Start the engine with the right model. To serve this one too, {_APPROVE} approve_base_model --host NAME; "
            f"to serve it instead, {_DECIDE} set_base_model --host NAME.",
        )
    return Quarantine(
        "other_tokenizer",
        f"This host has the weights of {same.name} with another tokenizer or chat template.",
        f"Copy the whole model folder to the host. To serve these files instead, {_DECIDE} set_base_model --host NAME.",
    )


def short(digest: str) -> str:
    """Return a digest's first characters, for messages."""
    return digest[:19] or "no digest"


def _read(row: BaseModel, description: Description, others: tuple[str, ...]) -> ServedBase:
    stored = description.get("geometry", {})
    sizes: dict[str, Any] = {
        field.name: str(stored.get(field.name, "")) if field.type == "str" else int(stored.get(field.name, 0))
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
