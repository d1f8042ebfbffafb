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
from control_plane.fleet.base_models.models import BaseModel
from control_plane.fleet.hosts import host_status
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import known_endpoints
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.audit import actions as audit
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.versions import SUPPORTED

logger = logging.getLogger(__name__)
LONGEST_NAME = 200


class AdaptersDoNotFitError(LorikeetError):
    def __init__(self, name: str) -> None:
        super().__init__(
            "adapters_do_not_fit",
            f"{name} has other shapes than the base model that it replaces, so that one's adapters cannot run on it.",
            "Repeat without keep_adapters. The adapters' owners then upload adapters trained for the new base model.",
            param="keep_adapters",
            status=409,
        )


class HostNotConfiguredError(NotFoundError):
    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            f'There is no engine host "{name}".',
            f"Known hosts, from LORIKEET_ENGINE_HOSTS or joined: {', '.join(known) or 'none'}.",
            code="host_not_found",
            param="host",
        )


class HostAwayError(LorikeetError):
    def __init__(self, failure: HostError) -> None:
        super().__init__(failure.code, failure.message, failure.fix, param="host", status=503)


def describe_host(name: str) -> pb.EngineDescription:
    """Return what a host's engine reports that it serves now. Raises NotFoundError (404) or HostAwayError (503)."""
    endpoints = known_endpoints()
    if name not in endpoints:
        raise HostNotConfiguredError(name, list(endpoints))
    try:
        with engine_calls(endpoints[name]) as engine:
            return engine.describe()
    except HostError as failure:
        raise HostAwayError(failure) from failure


class BaseModelNotServedError(NotFoundError):
    def __init__(self, digest: str) -> None:
        super().__init__(
            f"No base model with the digest {json.dumps(digest[:LONGEST_NAME])} is served.",
            "GET /api/operator/base-models lists the base models that are served.",
            code="base_model_not_found",
            param="digest",
        )


class LastBaseModelError(LorikeetError):
    def __init__(self, row: BaseModel) -> None:
        super().__init__(
            "last_base_model",
            f"{row.name} is the only base model that is served.",
            "Approve another one first, or serve another one instead of it (PUT /api/operator/base-model).",
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
    """Serve the model of ``description``, an engine's own report, and no other base model.

    Hosts of another base model go into quarantine, and its adapters can no longer be called. ``keep_adapters``
    declares that adapters of the replaced base models fit this one too: the same model, saved anew.
    Raises AdaptersDoNotFitError (409). Idempotent.
    """
    with transaction.atomic():
        rows = _locked()
        served = [row for row in rows if row.withdrawn_at is None]
        replaced = [row for row in served if row.digest != description.base_digest]
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
            before=served[0].digest if served else None,
            adapters_of=row.adapters_of,
        )
        _apply()
    logger.warning("The base model is %s (%s) from now on, by %s.", row.name, row.digest, actor.label)
    return row


def approve_base_model(*, actor: Actor, description: pb.EngineDescription, name: str = "") -> BaseModel:
    """Serve the model of ``description`` beside the others.

    Its name is ``name``, or the one by which it was served before, or the host's name for it.
    Raises BaseNameTakenError, ServedWithOtherTokenizerError (409) or BadBaseNameError (400). Idempotent.
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
        audit.record(actor, "base_model.approve", row, tenant=None, label=row.name, digest=row.digest)
        _apply()
    logger.warning("The base model %s (%s) is served from now on, by %s.", row.name, row.digest, actor.label)
    return row


def rename_base_model(*, actor: Actor, digest: str, name: str) -> BaseModel:
    """Rename a served base model. Requests by its old name fail from now on.

    Raises BaseModelNotServedError (404), BaseNameTakenError (409) or BadBaseNameError (400).
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
    """Let a base model go without a host after ``after_s`` seconds without a request; 0 means that it never sleeps.

    Raises BaseModelNotServedError (404). An autoscaler reads from `/metrics` which base models need a host.
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
    """Stop serving a base model: its hosts go into quarantine, and its adapters cannot be called until it is approved
    again. Running requests are completed.

    Raises BaseModelNotServedError (404) or LastBaseModelError (409).
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
    """Adopt the base model of the first configured host, or of the first that joined, if none is decided yet.

    Later calls only complete a row that an earlier version stored without its text digest.
    """
    if host != next(iter(known_endpoints()), None) or description.wire_version not in SUPPORTED:
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
    """Return the served base model. Raises BaseModelNotServedError (404)."""
    return _find(list(BaseModel.objects.all()), digest)


def _locked() -> list[BaseModel]:
    """Lock and return all base models, so that concurrent decisions are serialised."""
    return list(BaseModel.objects.select_for_update().order_by("pk"))


def _find(rows: list[BaseModel], digest: str) -> BaseModel:
    for row in rows:
        if row.digest == digest and row.withdrawn_at is None:
            return row
    raise BaseModelNotServedError(digest)


def _described(known: BaseModel | None, description: pb.EngineDescription) -> BaseModel:
    """Return the unsaved row for a host's report: a new one, or a changed copy of ``known``."""
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
    enqueue("placements.reconcile")
    enqueue("uploads.validate_next")


def _require_name(row: BaseModel, rows: list[BaseModel]) -> None:
    name = row.name
    valid = name.isprintable() and name_problem(name) is None  # requests carry it as `model`, which is printable
    if not 0 < len(name) <= LONGEST_NAME or not valid or name != name.strip() or name.startswith("hub:"):
        raise BadBaseNameError
    if any(other.name == name and other.digest != row.digest and other.withdrawn_at is None for other in rows):
        raise BaseNameTakenError(name)


def _taken_over(row: BaseModel, replaced: list[BaseModel]) -> list[str]:
    """Return the base digests of the replaced models' adapters, which are to run on ``row``."""
    if any(_geometry(other) != _geometry(row) for other in replaced):
        raise AdaptersDoNotFitError(f"{row.name} ({short(row.digest)})")
    digests = [digest for other in replaced for digest in (other.digest, *other.adapters_of)]
    return [digest for digest in dict.fromkeys([*digests, *row.adapters_of]) if digest != row.digest]


def _geometry(row: BaseModel) -> dict[str, int]:
    """Return the sizes that adapters depend on. Zeros are dropped: rows older than a field do not have it."""
    sizes = row.description.get("geometry", {}).items()
    return {name: size for name, size in sizes if size and name != "untied_head"}


def _is_same(before: BaseModel, row: BaseModel) -> bool:
    names = ("name", "digest", "text_digest", "adapters_of", "withdrawn_at")
    return all(getattr(before, name) == getattr(row, name) for name in names)
