"""Deciding which base model this installation serves."""

from __future__ import annotations

import logging

from django.db import transaction
from django.utils import timezone

from control_plane.access.actor import SYSTEM, Actor
from control_plane.audit import actions as audit
from control_plane.errors import LorikeetError, NotFoundError
from control_plane.fleet import host_status
from control_plane.fleet.base_model import short
from control_plane.fleet.blocking_client import engine_calls
from control_plane.fleet.endpoint import known_endpoints
from control_plane.fleet.errors import HostError
from control_plane.fleet.models import BaseModel
from control_plane.writes import enqueue
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)
ONLY = 1
"""The key of the one row."""


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


def set_base_model(*, actor: Actor, description: pb.EngineDescription, keep_adapters: bool = False) -> BaseModel:
    """From now on this installation serves the model of ``description``, as a host gave it.

    Hosts of another model go into quarantine, and adapters of another one are no longer called. ``keep_adapters``
    declares that adapters of the base model so far are right for this one too: the same model, saved anew.
    Raises AdaptersDoNotFitError (409). To say it again changes nothing.
    """
    with transaction.atomic():
        before = BaseModel.objects.select_for_update().filter(pk=ONLY).first()
        row = _described(description)
        row.decided_by, row.adapters_of = actor.label, _adapters_of(before, row, keep=keep_adapters)
        if before is not None and _is_same(before, row):
            return before
        row.save()
        audit.record(
            actor,
            "base_model.set",
            row,
            tenant=None,
            label=row.name,
            digest=row.digest,
            before=before.digest if before else None,
            adapters_of=row.adapters_of,
        )
        enqueue("fleet.reconcile")
        enqueue("adapters.validate_next")
    logger.warning("The base model is %s (%s) from now on, by %s.", row.name, row.digest, actor.label)
    return row


def adopt_first(host: str, description: pb.EngineDescription) -> None:
    """At the very first start, the base model is that of the host which LORIKEET_ENGINE_HOSTS names first, or
    else of the one that joined first.

    After that a host changes it no more; it only completes what an earlier version did not write down.
    """
    if host != next(iter(known_endpoints()), None):
        return
    row = BaseModel.objects.select_for_update().filter(pk=ONLY).first()
    if row is None or (not row.text_digest and description.text_digest and row.digest == description.base_digest):
        set_base_model(actor=SYSTEM, description=description)


def _described(description: pb.EngineDescription) -> BaseModel:
    return BaseModel(
        pk=ONLY,
        name=description.base_model,
        digest=description.base_digest,
        text_digest=description.text_digest,
        description=host_status.description_json(description),
        decided_at=timezone.now(),
    )


def _adapters_of(before: BaseModel | None, row: BaseModel, *, keep: bool) -> list[str]:
    if before is None:
        return []
    if before.digest == row.digest:
        return list(before.adapters_of)
    if not keep:
        return []
    if _geometry(before) != _geometry(row):
        raise AdaptersDoNotFitError(f"{row.name} ({short(row.digest)})")
    return [digest for digest in dict.fromkeys([before.digest, *before.adapters_of]) if digest != row.digest]


def _geometry(row: BaseModel) -> dict[str, int]:
    """Without zeros: rows of before a field was added do not have it."""
    return {name: size for name, size in row.description.get("geometry", {}).items() if size}


def _is_same(before: BaseModel, row: BaseModel) -> bool:
    names = ("name", "digest", "text_digest", "adapters_of")
    return all(getattr(before, name) == getattr(row, name) for name in names)
