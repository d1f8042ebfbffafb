"""Deciding which base models this installation serves."""

from __future__ import annotations

import json
import logging
from copy import copy

from django.db import transaction
from django.utils import timezone

from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.jobs import clocks
from control_plane.core.names import name_problem
from control_plane.core.writes import enqueue
from control_plane.fleet.base_models.base_model import short
from control_plane.fleet.hosts import host_status
from control_plane.fleet.hosts.models import BaseModel
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import known_endpoints
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.audit import actions as audit
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)
LONGEST_NAME = 200


class AdaptersDoNotFitError(LorikeetError):
    def __init__(self, name: str) -> None:
        super().__init__(
            "adapters_do_not_fit",
            f"{name} has other shapes than the base model so far, so adapters of that cannot run on it.",
            "Decide without keeping the adapters; their owners upload adapters that were trained for it.",
            param="keep_adapters",
            status=409,
        )


class HostNotConfiguredError(NotFoundError):
    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            f'There is no engine host "{name}".',
            f"Those of LORIKEET_ENGINE_HOSTS and those that joined: {', '.join(known) or 'none'}.",
            code="host_not_found",
            param="host",
        )


class HostAwayError(LorikeetError):
    def __init__(self, failure: HostError) -> None:
        super().__init__(failure.code, failure.message, failure.fix, param="host", status=503)


def describe_host(name: str) -> pb.EngineDescription:
    """What a host serves at this moment, by its own word. Raises NotFoundError (404) or HostAwayError (503)."""
    endpoints = known_endpoints()
    if name not in endpoints:
        raise HostNotConfiguredError(name, list(endpoints))
    try:
        with engine_calls(endpoints[name]) as engine:
            return engine.describe()
    except HostError as failure:
        raise HostAwayError(failure) from failure


class BaseModelNotFoundError(NotFoundError):
    def __init__(self, digest: str) -> None:
        super().__init__(
            f"No base model with the digest {json.dumps(digest[:LONGEST_NAME])} is served.",
            "GET /api/operator/base-models lists those that are.",
            code="base_model_not_found",
            param="digest",
        )


class LastBaseModelError(LorikeetError):
    def __init__(self, row: BaseModel) -> None:
        super().__init__(
            "last_base_model",
            f"{row.name} is the only base model that is served.",
            "Admit another one first, or serve another one instead of it (PUT /api/operator/base-model).",
            param="digest",
            status=409,
        )


class BaseNameTakenError(LorikeetError):
    def __init__(self, name: str) -> None:
        super().__init__(
            "base_model_name_taken",
            f"Another model is called {json.dumps(name, ensure_ascii=False)}.",
            "Give this one another name.",
            param="name",
            status=409,
        )


class BadBaseNameError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "invalid_value",
            "That cannot be the name of a base model.",
            f'Use 1-{LONGEST_NAME} printable characters without spaces at the ends, which do not begin with "hub:".',
            param="name",
        )


class ServedWithOtherTokenizerError(LorikeetError):
    def __init__(self, row: BaseModel) -> None:
        super().__init__(
            "other_tokenizer",
            f"{row.name} is served already, with another tokenizer or chat template.",
            "Copy the whole model folder to the host, or serve these files instead (PUT /api/operator/base-model).",
            param="host",
            status=409,
        )


def set_base_model(*, actor: Actor, description: pb.EngineDescription, keep_adapters: bool = False) -> BaseModel:
    """From now on this installation serves the model of ``description``, as a host gave it, and no other.

    Hosts of another model go into quarantine, and adapters of another one are no longer called. ``keep_adapters``
    declares that adapters of the base models so far are right for this one too: the same model, saved anew.
    Raises AdaptersDoNotFitError (409). To say it again changes nothing.
    """
    with transaction.atomic():
        rows = _locked()
        so_far = [row for row in rows if row.withdrawn_at is None]
        replaced = [row for row in so_far if row.digest != description.base_digest]
        same = next((row for row in rows if row.digest == description.base_digest), None)
        row = _described(same, description)
        if same is None or same.withdrawn_at is not None:
            row.adapters_of = []
        if keep_adapters:
            row.adapters_of = _taken_over(row, replaced)
        row.withdrawn_at = None
        if same is not None and not replaced and _is_same(same, row):
            return same
        for other in replaced:
            _withdraw(other)
        _decide(row, actor)
        audit.record(
            actor,
            "base_model.set",
            row,
            tenant=None,
            label=row.name,
            digest=row.digest,
            before=so_far[0].digest if so_far else None,
            adapters_of=row.adapters_of,
        )
        _apply()
    logger.warning("The base model is %s (%s) from now on, by %s.", row.name, row.digest, actor.label)
    return row


def admit_base_model(*, actor: Actor, description: pb.EngineDescription, name: str = "") -> BaseModel:
    """From now on this installation serves the model of ``description`` too, by ``name`` or else by the host's name
    for it, or the one by which it was served before.

    Raises BaseNameTakenError, ServedWithOtherTokenizerError (409) or BadBaseNameError (400). To say it again changes
    nothing.
    """
    with transaction.atomic():
        rows = _locked()
        same = next((row for row in rows if row.digest == description.base_digest), None)
        if same is not None and same.withdrawn_at is None:
            if same.text_digest and description.text_digest and same.text_digest != description.text_digest:
                raise ServedWithOtherTokenizerError(same)
            return rename_base_model(actor=actor, digest=same.digest, name=name) if name else same
        row = _described(same, description)
        row.name, row.withdrawn_at = name or row.name, None
        _require_name(row, rows)
        _decide(row, actor)
        audit.record(actor, "base_model.admit", row, tenant=None, label=row.name, digest=row.digest)
        _apply()
    logger.warning("The base model %s (%s) is served from now on, by %s.", row.name, row.digest, actor.label)
    return row


def rename_base_model(*, actor: Actor, digest: str, name: str) -> BaseModel:
    """Callers name it so from now on, and not as before.

    Raises BaseModelNotFoundError (404), BaseNameTakenError (409) or BadBaseNameError (400).
    """
    with transaction.atomic():
        rows = _locked()
        row = _find(rows, digest)
        if row.name == name:
            return row
        before, row.name = row.name, name
        _require_name(row, rows)
        row.save(update_fields=["name"])
        audit.record(actor, "base_model.rename", row, tenant=None, label=name, digest=digest, before=before)
        _apply()
    return row


def set_sleep(*, actor: Actor, digest: str, after_s: int) -> BaseModel:
    """Let it go without a host once nobody has asked for it for so many seconds; 0: it is always to have one.

    Raises BaseModelNotFoundError (404). Who starts and stops hosts reads which base models are wanted from `/metrics`.
    """
    with transaction.atomic():
        row = _find(_locked(), digest)
        if row.sleeps_after_s == after_s:
            return row
        before, row.sleeps_after_s = row.sleeps_after_s, after_s
        row.asked_at = clocks.database_time() if after_s else None  # it may be in use at this moment
        row.save(update_fields=["sleeps_after_s", "asked_at"])
        audit.record(
            actor, "base_model.sleep", row, tenant=None, label=row.name, digest=digest, after_s=after_s, before=before
        )
    return row


def withdraw_base_model(*, actor: Actor, digest: str) -> None:
    """It is not served any more: its hosts go into quarantine, and its adapters are not called until it is admitted
    again. Requests that run go on to their end.

    Raises BaseModelNotFoundError (404) or LastBaseModelError (409).
    """
    with transaction.atomic():
        rows = _locked()
        row = _find(rows, digest)
        if sum(each.withdrawn_at is None for each in rows) == 1:
            raise LastBaseModelError(row)
        _withdraw(row)
        audit.record(actor, "base_model.withdraw", row, tenant=None, label=row.name, digest=digest)
        _apply()
    logger.warning("The base model %s (%s) is not served any more, by %s.", row.name, row.digest, actor.label)


def adopt_first(host: str, description: pb.EngineDescription) -> None:
    """At the very first start, the base model is that of the host which LORIKEET_ENGINE_HOSTS names first, or
    else of the one that joined first.

    After that a host changes it no more; it only completes what an earlier version did not write down.
    """
    if host != next(iter(known_endpoints()), None):
        return
    rows = _locked()
    if not rows:
        set_base_model(actor=SYSTEM, description=description)
    for row in rows:
        if row.digest == description.base_digest and description.text_digest and not row.text_digest:
            row.text_digest = description.text_digest
            row.save(update_fields=["text_digest"])
            audit.record(
                SYSTEM, "base_model.set", row, tenant=None, label=row.name, digest=row.digest, before=row.digest
            )


def require_served(digest: str) -> BaseModel:
    """Raises BaseModelNotFoundError (404)."""
    return _find(list(BaseModel.objects.all()), digest)


def _locked() -> list[BaseModel]:
    """All of them, so that who decides sees what others decided."""
    return list(BaseModel.objects.select_for_update().order_by("pk"))


def _find(rows: list[BaseModel], digest: str) -> BaseModel:
    for row in rows:
        if row.digest == digest and row.withdrawn_at is None:
            return row
    raise BaseModelNotFoundError(digest)


def _described(known: BaseModel | None, description: pb.EngineDescription) -> BaseModel:
    """The row of what a host serves, not saved: a new one, or a copy of the one there is."""
    row = BaseModel() if known is None else copy(known)
    if known is None or known.name == known.description.get("base_model"):  # not renamed by an operator
        row.name = description.base_model
    row.digest, row.text_digest = description.base_digest, description.text_digest
    row.description = host_status.description_json(description)
    return row


def _decide(row: BaseModel, actor: Actor) -> None:
    row.decided_by, row.decided_at = actor.label, timezone.now()
    row.save()


def _withdraw(row: BaseModel) -> None:
    row.withdrawn_at = timezone.now()
    row.save(update_fields=["withdrawn_at"])


def _apply() -> None:
    enqueue("fleet.reconcile")
    enqueue("adapters.validate_next")


def _require_name(row: BaseModel, rows: list[BaseModel]) -> None:
    name = row.name
    known = name.isprintable() and name_problem(name) is None  # requests name it, and those are printable
    if not 0 < len(name) <= LONGEST_NAME or not known or name != name.strip() or name.startswith("hub:"):
        raise BadBaseNameError
    if any(other.name == name and other.digest != row.digest and other.withdrawn_at is None for other in rows):
        raise BaseNameTakenError(name)


def _taken_over(row: BaseModel, replaced: list[BaseModel]) -> list[str]:
    """Base digests of the adapters that are to run on it."""
    if any(_geometry(other) != _geometry(row) for other in replaced):
        raise AdaptersDoNotFitError(f"{row.name} ({short(row.digest)})")
    digests = [digest for other in replaced for digest in (other.digest, *other.adapters_of)]
    return [digest for digest in dict.fromkeys([*digests, *row.adapters_of]) if digest != row.digest]


def _geometry(row: BaseModel) -> dict[str, int]:
    """Without zeros: rows of before a field was added do not have it. Tying changes no shape."""
    sizes = row.description.get("geometry", {}).items()
    return {name: size for name, size in sizes if size and name != "untied_head"}


def _is_same(before: BaseModel, row: BaseModel) -> bool:
    names = ("name", "digest", "text_digest", "adapters_of", "withdrawn_at")
    return all(getattr(before, name) == getattr(row, name) for name in names)
