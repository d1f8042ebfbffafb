"""Every change to evaluation sets, evaluations and promotion rules.

An evaluation waits until its version is ready, then it is a batch: whose requests are a key's, by its limits, run when
nobody else's wait, and survive any process. Once that is over its files are scored. `tend` moves each one step, in a
transaction that holds its row.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from control_plane.adapters.evaluations import requests
from control_plane.adapters.evaluations.item_files import read_items
from control_plane.adapters.evaluations.models import OPEN, Evaluation, EvaluationSet, EvaluationState
from control_plane.adapters.registry.locks import lock_version
from control_plane.adapters.registry.models import (
    LIVE,
    OUT_OF_USE,
    Adapter,
    AdapterVersion,
    Alias,
    EvaluationMetric,
    Upload,
    UploadState,
    VersionState,
)
from control_plane.adapters.registry.versions import label_of, record_score, tell_adapter
from control_plane.core.config import current
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.jobs import clocks
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.gateway.batches import actions as batches
from control_plane.gateway.batches import files
from control_plane.gateway.batches.models import OPEN as OPEN_BATCH
from control_plane.gateway.batches.models import Batch, BatchState
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant
from control_plane.identity.tenants.roles import Capability

logger = logging.getLogger(__name__)

MOST_SETS = 50
MOST_OPEN = 50
"""Evaluations of a tenant that are not over."""
AT_ONCE = 50
"""That one run of `tend` looks at."""
PASSING = (429, 503)
"""What a batch that is refused so waits for."""


class SetNotFoundError(NotFoundError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f'There is no evaluation set "{name[:64]}" in this tenant.',
            "GET evaluation-sets lists them.",
            code="evaluation_set_not_found",
            param="set",
        )


class EvaluationNotFoundError(NotFoundError):
    def __init__(self, name: UUID) -> None:
        super().__init__(
            f"There is no evaluation {name} in this tenant.",
            "GET evaluations lists them.",
            code="evaluation_not_found",
            param="evaluation_id",
        )


# -- sets ----------------------------------------------------------------------------------------------


def create_set(
    *, acting: Principal, name: str, metric: EvaluationMetric, max_tokens: int, content: bytes
) -> EvaluationSet:
    """Raises LorikeetError (400 for a damaged file, 409 for a name that is taken, 413, 429)."""
    items = read_items(content, metric)
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)  # so that the count holds
        own = EvaluationSet.objects.for_tenant(tenant)
        if own.filter(name=name).exists():
            raise LorikeetError(
                "evaluation_set_exists",
                f'There is an evaluation set "{name}" already, and a set never changes.',
                "Give this one another name, like one with a date.",
                param="name",
                status=409,
            )
        if own.count() >= MOST_SETS:
            raise LorikeetError(
                "too_many_evaluation_sets", f"The tenant has {MOST_SETS} sets, which is the most.",
                "Delete one that is no longer needed.", status=429,
            )  # fmt: skip
        made = own.create(
            tenant=tenant, name=name, metric=metric, max_tokens=max_tokens, items=items, created_by=acting.user
        )
        audit.record(
            acting.actor, "evaluation_set.create", made, tenant=tenant, label=name, metric=metric, items=len(items)
        )
    return made


def get_set(tenant: Tenant, name: str) -> EvaluationSet:
    """Raises SetNotFoundError (404)."""
    found = EvaluationSet.objects.for_tenant(tenant).filter(name=name).first()
    if found is None:
        raise SetNotFoundError(name)
    return found


def delete_set(*, acting: Principal, name: str) -> None:
    """Scores stay. Raises SetNotFoundError (404), LorikeetError (409) while an evaluation or a rule needs it."""
    with transaction.atomic():
        pk = get_set(acting.tenant, name).pk
        own = EvaluationSet.objects.for_tenant(acting.tenant).select_for_update(of=("self",)).get(pk=pk)
        if Evaluation.objects.for_tenant(acting.tenant).filter(set=own, state__in=OPEN).exists():
            raise _in_use("An evaluation with this set runs.", "Cancel it, or wait for its end.")
        ruled = Adapter.objects.for_tenant(acting.tenant).filter(promotion_rule__set_id=str(own.pk))
        if adapter := ruled.filter(archived_at__isnull=True).first():
            raise _in_use(f"The promotion rule of {adapter.name} names this set.", "Change or delete that rule first.")
        audit.record(acting.actor, "evaluation_set.delete", own, tenant=acting.tenant, label=name)
        own.delete()


def _in_use(message: str, fix: str) -> LorikeetError:
    return LorikeetError("evaluation_set_in_use", message, fix, status=409)


# -- rules ---------------------------------------------------------------------------------------------


def set_rule(
    *,
    acting: Principal,
    adapter: Adapter,
    set_name: str,
    key_id: UUID | None,
    minimum: float | None,
    not_worse_than_live: bool,
) -> Adapter:
    """New versions are evaluated by themselves from now on. Raises LorikeetError (403, 404, 409)."""
    key = _key(acting, key_id)
    with transaction.atomic():
        pk = get_set(acting.tenant, set_name).pk
        asked = EvaluationSet.objects.for_tenant(acting.tenant).select_for_update(of=("self",)).get(pk=pk)
        adapter = Adapter.objects.for_tenant(acting.tenant).select_for_update(of=("self",)).get(pk=adapter.pk)
        adapter.promotion_rule = {
            "set": asked.name,
            "set_id": str(asked.pk),
            "key": str(key.pk),
            "minimum": minimum,
            "not_worse_than_live": not_worse_than_live,
        }
        _save_rule(adapter, acting.actor, "adapter.set_promotion_rule", adapter.promotion_rule)
    return adapter


def remove_rule(*, acting: Principal, adapter: Adapter) -> Adapter:
    """Does nothing without one."""
    with transaction.atomic():
        adapter = Adapter.objects.for_tenant(acting.tenant).select_for_update(of=("self",)).get(pk=adapter.pk)
        if adapter.promotion_rule is not None:
            adapter.promotion_rule = None
            _save_rule(adapter, acting.actor, "adapter.remove_promotion_rule", {})
    return adapter


def _save_rule(adapter: Adapter, actor: Actor, action: str, rule: Mapping[str, Any]) -> None:
    adapter.save(update_fields=["promotion_rule"])
    told = {name: rule[name] for name in ("set", "minimum", "not_worse_than_live") if name in rule}
    audit.record(actor, action, adapter, tenant=adapter.tenant, label=adapter.name, **told)
    tell_adapter(adapter)


# -- evaluations ---------------------------------------------------------------------------------------


def start_evaluation(
    *, acting: Principal, set_name: str, key_id: UUID | None, of: AdapterVersion | Upload
) -> Evaluation:
    """Of a version, or of what an upload becomes. Raises LorikeetError (403, 404, 409, 429)."""
    key = _key(acting, key_id)
    with transaction.atomic():
        asked = get_set(acting.tenant, set_name)
        made = _start(acting.tenant, asked, key, of, acting)
        audit.record(acting.actor, "evaluation.start", made, tenant=acting.tenant, label=_label(made), set=set_name)
    return made


def evaluate_by_rule(version: AdapterVersion) -> None:
    """A version that came to an adapter with a rule, unless it was evaluated so before."""
    rule = version.adapter.promotion_rule
    if rule is None:
        return
    own = Evaluation.objects.for_tenant(version.tenant)
    asked = EvaluationSet.objects.for_tenant(version.tenant).filter(pk=rule["set_id"]).first()
    key = ApiKey.objects.for_tenant(version.tenant).filter(pk=rule["key"]).select_related("tenant").first()
    if asked is None or key is None or own.filter(version=version, set=asked).exists():
        return
    made = _start(version.tenant, asked, key, version)
    audit.record(SYSTEM, "evaluation.start", made, tenant=version.tenant, label=_label(made), set=asked.name)


def _key(acting: Principal, key_id: UUID | None) -> ApiKey:
    key = batches.key_for(acting, key_id)
    Principal.of_key(key).require(Capability.INFER)
    return key


def _start(
    tenant: Tenant, asked: EvaluationSet, key: ApiKey, of: AdapterVersion | Upload, acting: Principal | None = None
) -> Evaluation:
    if isinstance(of, AdapterVersion) and of.state in OUT_OF_USE:
        raise LorikeetError(
            "version_archived", f"Version {of.number} is archived.", "Restore it first.", param="version", status=409
        )
    own = Evaluation.objects.for_tenant(tenant)
    if acting is not None and own.filter(state__in=OPEN).count() >= MOST_OPEN:
        raise LorikeetError(
            "too_many_evaluations", f"{MOST_OPEN} evaluations run or wait already.", "Wait until one is over.",
            status=429,
        )  # fmt: skip
    return own.create(
        tenant=tenant,
        set=asked,
        set_name=asked.name,
        api_key=key,
        upload=of if isinstance(of, Upload) else None,
        version=of if isinstance(of, AdapterVersion) else None,
        created_by=acting.user if acting else None,
    )


def get_evaluation(tenant: Tenant, evaluation_id: UUID) -> Evaluation:
    """Raises EvaluationNotFoundError (404)."""
    found = _with_rows(tenant).filter(pk=evaluation_id).first()
    if found is None:
        raise EvaluationNotFoundError(evaluation_id)
    return found


def _with_rows(tenant: Tenant) -> QuerySet[Evaluation]:
    own = Evaluation.objects.for_tenant(tenant)
    return own.select_related("set", "api_key", "upload", "version__adapter", "batch")


def find_evaluations(tenant: Tenant, search: str) -> QuerySet[Evaluation]:
    """Newest first; `search` is a part of the adapter's name."""
    found = _with_rows(tenant)
    named = Q(version__adapter__name__icontains=search) | Q(upload__adapter_name__icontains=search)
    return found.filter(named) if search else found


def cancel_evaluation(*, acting: Principal, evaluation_id: UUID) -> Evaluation:
    """With its batch. Raises EvaluationNotFoundError (404), LorikeetError (409) if it is over."""
    with transaction.atomic():
        pk = get_evaluation(acting.tenant, evaluation_id).pk
        own = Evaluation.objects.for_tenant(acting.tenant).select_for_update(of=("self",)).get(pk=pk)
        if own.state not in OPEN:
            raise LorikeetError(
                "evaluation_is_over", f"The evaluation is {own.state}.", "There is nothing left to cancel.", status=409
            )
        if own.batch is not None and own.batch.state in OPEN_BATCH:
            batches.cancel_batch(acting=acting, name=str(own.batch))
        _end(own, EvaluationState.CANCELLED, acting.actor)
    return own


def tend() -> int:
    """Move every evaluation that is not over one step, if it is time. How many were looked at."""
    found = Evaluation.objects.filter(state__in=OPEN, tenant__suspended_at=None).order_by("created_at")
    pks = list(found.values_list("pk", flat=True)[:AT_ONCE])
    for pk in pks:
        try:
            _step(pk)
        except Exception:
            logger.exception("An evaluation is tried again.", extra={"evaluation": str(pk)})
    return len(pks)


def _step(pk: UUID) -> None:
    with transaction.atomic():
        locked = Evaluation.objects.select_for_update(of=("self",), skip_locked=True).filter(pk=pk)
        own = locked.select_related("tenant", "set", "api_key__tenant", "upload", "batch").first()
        if own is None or own.state not in OPEN:
            return
        try:
            _score(own) if own.state == EvaluationState.RUNNING else _begin(own)
        except LorikeetError as error:
            _fail(own, error.code, str(error), error.fix)


def _begin(own: Evaluation) -> None:
    """Send its requests once its version is ready. Raises LorikeetError if that cannot be."""
    version = _version_of(own)
    if version is None or version.state not in (VersionState.READY, VersionState.FAILED, *OUT_OF_USE):
        _wait(own, "version_not_ready", "The version is not ready yet.", "It is evaluated once it is.")
        return
    if version.state != VersionState.READY:
        raise LorikeetError("version_not_ready", f"Version {version.number} is {version.state}.", "Stage it again.")
    base, asked = served_bases().for_adapters_of(version.base_digest), own.set
    if not (own.api_key.usable_at() and Principal.of_key(own.api_key).may(Capability.INFER)):
        raise LorikeetError(
            "key_not_usable", f"The key {own.api_key.name} is revoked, has expired or may not infer.",
            "Evaluate it again with another key.",
        )  # fmt: skip
    if base is None or asked is None:
        _wait(own, "no_base_model", "Its base model is not served.", "It is evaluated once that is.")
        return
    live = Alias.objects.for_tenant(own.tenant).filter(adapter=version.adapter, name=LIVE).select_related("version")
    alias = live.first()
    own.live = alias.version if alias and alias.version_id != version.pk else None
    if own.live is not None and own.live.state != VersionState.READY:
        own.live = None
    try:
        own.batch = _send(own, asked, {requests.BASE: base.name, **_named(own.live, requests.LIVE)} | _named(version))
    except LorikeetError as error:
        if error.status not in PASSING:
            raise
        _wait(own, error.code, str(error), error.fix)
        return
    own.version, own.state, own.problem = version, EvaluationState.RUNNING, None
    own.save()
    audit.record(SYSTEM, "evaluation.run", own, tenant=own.tenant, label=_label(own), batch=str(own.batch))


def _version_of(own: Evaluation) -> AdapterVersion | None:
    """None while there is none yet. Raises LorikeetError if there will be none."""
    upload = own.upload
    found = own.version_id or (upload.version_id if upload else None)
    if found is not None:
        return lock_version(AdapterVersion.objects.for_tenant(own.tenant).select_related("tenant").get(pk=found))
    assert upload is not None
    if upload.state in (UploadState.REFUSED, UploadState.CANCELLED, UploadState.ACCEPTED):
        raise LorikeetError("upload_refused", "Its upload made no version.", "Upload it again.")
    return None


def _named(version: AdapterVersion | None, who: str = requests.VERSION) -> dict[str, str]:
    return {who: label_of(version)} if version else {}


def _send(own: Evaluation, asked: EvaluationSet, models: Mapping[str, str]) -> Batch:
    content = b"".join(requests.request_lines(asked, models))
    with transaction.atomic():
        return batches.upload_batch(
            acting=Principal.of_key(own.api_key),
            key_id=None,
            endpoint=requests.endpoint_of(asked),
            name=f"{asked.name} on {models[requests.VERSION]}.jsonl",
            content=[content],
            size=len(content),
        )


def _wait(own: Evaluation, code: str, message: str, fix: str) -> None:
    """It is looked at again, until it has waited too long."""
    waited_s = (clocks.database_time() - own.created_at).total_seconds()
    if waited_s > current().evaluation_wait_s and clocks.is_trusted():
        _fail(own, code, message, "It waited too long: start it again once that is mended.")
        return
    problem = {"code": code, "message": message, "fix": fix}
    if own.problem != problem:
        own.problem = problem
        own.save(update_fields=["problem"])
        audit.record(SYSTEM, "evaluation.wait", own, tenant=own.tenant, label=_label(own), problem=code)


def _score(own: Evaluation) -> None:
    """Once its batch is over. Raises LorikeetError if that was not answered as a whole."""
    batch, version, asked = own.batch, own.version, own.set
    if batch is not None and batch.state in OPEN_BATCH:
        return
    if batch is None or version is None or asked is None:
        raise LorikeetError("evaluation_incomplete", "Its batch is gone.", "Evaluate it again.")
    _require_completed(batch)
    answers = requests.Answers(asked, files.lines(batch.output_file) if batch.output_file else ())
    live = None
    if own.live is not None:
        live = {"version": own.live.number, "score": answers.score(requests.LIVE)}
    who = [requests.BASE, requests.VERSION, *([requests.LIVE] if live else [])]
    own.score = {
        "evaluation": str(own.pk),
        "set": asked.name,
        "set_id": str(asked.pk),
        "metric": asked.metric,
        "items": asked.count,
        "base": answers.score(requests.BASE),
        "live": live,
        "score": answers.score(requests.VERSION),
        "worst": answers.worst(who),
        "at": timezone.now().isoformat(),
    }
    _end(own, EvaluationState.COMPLETED, SYSTEM)
    record_score(version, own.score)


def _require_completed(batch: Batch) -> None:
    if batch.errors:
        first = batch.errors[0]
        raise LorikeetError(first["code"], f"Request {first['line']}: {first['message']}", "Mend the set's items.")
    if batch.state != BatchState.COMPLETED:
        raise LorikeetError(f"batch_{batch.state}", f"Its batch is {batch.state}.", "Evaluate it again.")
    if batch.error_file is not None:
        raise _first_failure(files.lines(batch.error_file))
    if batch.output_file is None:
        raise LorikeetError("evaluation_incomplete", "The answers are gone.", "Evaluate it again.")


def _first_failure(lines: Iterable[bytes]) -> LorikeetError:
    failed = json.loads(next(iter(lines)))
    who, _, line = failed["custom_id"].partition(":")
    told = (failed["response"] or {}).get("body", {}).get("error") or failed["error"]
    fix = told.get("fix") or "Mend the line, and evaluate again with a new set."
    return LorikeetError(
        told["code"] or "request_failed",
        # In an answer the message ends with what to do, for clients that show nothing else.
        f"Line {line} of the set was not answered by the {who}: {told['message'].removesuffix(fix).rstrip()}",
        fix,
    )


def _fail(own: Evaluation, code: str, message: str, fix: str) -> None:
    own.problem = {"code": code, "message": message, "fix": fix}
    _end(own, EvaluationState.FAILED, SYSTEM)


def _end(own: Evaluation, state: EvaluationState, actor: Actor) -> None:
    own.state, own.ended_at = state, timezone.now()
    own.save()
    told = {"score": own.score["score"]} if own.score else {"problem": (own.problem or {}).get("code")}
    audit.record(actor, f"evaluation.{state.value}", own, tenant=own.tenant, label=_label(own), **told)


def _label(own: Evaluation) -> str:
    return label_of(own.version) if own.version else own.adapter_name
