"""Every change to evaluation sets, evaluations and promotion rules.

An evaluation waits until its version is ready. Then it is a batch: its requests belong to a key, count in the key's
limits, run when no other requests wait, and survive any process. When the batch ends its files are scored. `tend` moves
each evaluation by one step, in a transaction that locks its row.
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
    VersionState,
)
from control_plane.adapters.registry.versions import label_of, record_score, tell_adapter
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.config import current
from control_plane.core.db import referable
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.jobs import clocks
from control_plane.core.storable import storable
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

# Maximum number of evaluation sets of a tenant.
MAX_SETS = 50
# Maximum number of evaluations of a tenant that have not ended.
MAX_OPEN = 50
# Evaluations in one run of `tend`.
AT_ONCE = 50
# Statuses of a refused batch after which the evaluation waits and tries again.
PASSING = (429, 503)


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
    """Create an evaluation set. Raises LorikeetError (400 for a damaged file, 409 for a name in use, 413, 429)."""
    items = read_items(content, metric)
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)  # makes the count exact
        rows = EvaluationSet.objects.for_tenant(tenant)
        if rows.filter(name=name).exists():
            raise LorikeetError(
                "evaluation_set_exists",
                f'An evaluation set "{name}" exists already, and sets cannot be changed.',
                "Choose another name, for example one with a date.",
                param="name",
                status=409,
            )
        if rows.count() >= MAX_SETS:
            raise LorikeetError(
                "too_many_evaluation_sets", f"The tenant has {MAX_SETS} sets, the maximum.",
                "Delete one that is no longer needed.", status=429,
            )  # fmt: skip
        made = rows.create(
            tenant=tenant, name=name, metric=metric, max_tokens=max_tokens, items=items, created_by=acting.user
        )
        audit.record(
            acting.actor, "evaluation_set.create", made, tenant=tenant, label=name, metric=metric, items=len(items)
        )
    return made


def get_set(tenant: Tenant, name: str) -> EvaluationSet:
    """Return a set of the tenant. Raises SetNotFoundError (404)."""
    match = EvaluationSet.objects.for_tenant(tenant).filter(name=name).first()
    if match is None:
        raise SetNotFoundError(name)
    return match


def _usable_set(tenant: Tenant, **which: Any) -> EvaluationSet | None:
    """Return a set of the tenant that cannot be deleted until the transaction ends."""
    return next(iter(referable(EvaluationSet.objects.for_tenant(tenant).filter(**which))), None)


def delete_set(*, acting: Principal, name: str) -> None:
    """Delete a set; scores stay. Raises SetNotFoundError (404), LorikeetError (409) while it is in use."""
    with transaction.atomic():
        pk = get_set(acting.tenant, name).pk
        locked = EvaluationSet.objects.for_tenant(acting.tenant).select_for_update(of=("self",)).filter(pk=pk).first()
        if locked is None:  # another request deleted it meanwhile
            raise SetNotFoundError(name)
        if Evaluation.objects.for_tenant(acting.tenant).filter(set=locked, state__in=OPEN).exists():
            raise _in_use("An evaluation with this set is running.", "Cancel it, or wait for its end.")
        ruled = Adapter.objects.for_tenant(acting.tenant).filter(promotion_rule__set_id=str(locked.pk))
        if adapter := ruled.filter(archived_at__isnull=True).first():
            raise _in_use(f"The promotion rule of {adapter.name} names this set.", "Change or delete that rule first.")
        audit.record(acting.actor, "evaluation_set.delete", locked, tenant=acting.tenant, label=name)
        locked.delete()


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
    """Set an adapter's promotion rule; new versions are then evaluated automatically.

    Raises LorikeetError (403, 404, 409).
    """
    key = _key(acting, key_id)
    with transaction.atomic():
        evaluation_set = _usable_set(acting.tenant, name=set_name)
        if evaluation_set is None:
            raise SetNotFoundError(set_name)
        adapter = _lock_adapter(acting, adapter)
        rule = {
            "set": evaluation_set.name,
            "set_id": str(evaluation_set.pk),
            "key": str(key.pk),
            "minimum": minimum,
            "not_worse_than_live": not_worse_than_live,
        }
        if adapter.promotion_rule != rule:
            adapter.promotion_rule = rule
            _save_rule(adapter, acting.actor, "adapter.set_promotion_rule", rule)
    return adapter


def remove_rule(*, acting: Principal, adapter: Adapter) -> Adapter:
    """Remove an adapter's promotion rule, if it has one."""
    with transaction.atomic():
        adapter = _lock_adapter(acting, adapter)
        if adapter.promotion_rule is not None:
            adapter.promotion_rule = None
            _save_rule(adapter, acting.actor, "adapter.remove_promotion_rule", {})
    return adapter


def _lock_adapter(acting: Principal, adapter: Adapter) -> Adapter:
    adapters = Adapter.objects.for_tenant(acting.tenant).select_for_update(of=("self",), no_key=True)
    return adapters.get(pk=adapter.pk)


def _save_rule(adapter: Adapter, actor: Actor, action: str, rule: Mapping[str, Any]) -> None:
    adapter.save(update_fields=["promotion_rule"])
    detail = {name: rule[name] for name in ("set", "minimum", "not_worse_than_live") if name in rule}
    audit.record(actor, action, adapter, tenant=adapter.tenant, label=adapter.name, **detail)
    tell_adapter(adapter)


# -- evaluations ---------------------------------------------------------------------------------------


def start_evaluation(
    *, acting: Principal, set_name: str, key_id: UUID | None, of: AdapterVersion | Upload
) -> Evaluation:
    """Start an evaluation of a version, or of the version that an upload becomes.

    Raises LorikeetError (403, 404, 409, 429).
    """
    key = _key(acting, key_id)
    with transaction.atomic():
        evaluation_set = _usable_set(acting.tenant, name=set_name)
        if evaluation_set is None:
            raise SetNotFoundError(set_name)
        made = _start(acting.tenant, evaluation_set, key, of, acting)
        audit.record(acting.actor, "evaluation.start", made, tenant=acting.tenant, label=_label(made), set=set_name)
    return made


def evaluate_by_rule(*, version: AdapterVersion, **_: Any) -> None:
    """Evaluate a new version of an adapter with a rule, unless it was evaluated with the rule's set before."""
    rule = version.adapter.promotion_rule
    if rule is None:
        return
    evaluations = Evaluation.objects.for_tenant(version.tenant)
    evaluation_set = _usable_set(version.tenant, pk=rule["set_id"])
    key = ApiKey.objects.for_tenant(version.tenant).filter(pk=rule["key"]).select_related("tenant").first()
    if evaluation_set is None or key is None or evaluations.filter(version=version, set=evaluation_set).exists():
        return
    made = _start(version.tenant, evaluation_set, key, version)
    audit.record(SYSTEM, "evaluation.start", made, tenant=version.tenant, label=_label(made), set=evaluation_set.name)


def _key(acting: Principal, key_id: UUID | None) -> ApiKey:
    key = batches.key_for(acting, key_id)
    Principal.of_key(key).require(Capability.INFER)
    return key


def _start(
    tenant: Tenant,
    evaluation_set: EvaluationSet,
    key: ApiKey,
    of: AdapterVersion | Upload,
    acting: Principal | None = None,
) -> Evaluation:
    if isinstance(of, AdapterVersion) and of.state in OUT_OF_USE:
        raise LorikeetError(
            "version_archived", f"Version {of.number} is archived.", "Restore it first.", param="version", status=409
        )
    rows = Evaluation.objects.for_tenant(tenant)
    if acting is not None and rows.filter(state__in=OPEN).count() >= MAX_OPEN:
        raise LorikeetError(
            "too_many_evaluations", f"{MAX_OPEN} evaluations run or wait already.", "Wait until one has ended.",
            status=429,
        )  # fmt: skip
    return rows.create(
        tenant=tenant,
        set=evaluation_set,
        set_name=evaluation_set.name,
        api_key=key,
        upload=of if isinstance(of, Upload) else None,
        version=of if isinstance(of, AdapterVersion) else None,
        created_by=acting.user if acting else None,
    )


def get_evaluation(tenant: Tenant, evaluation_id: UUID) -> Evaluation:
    """Return an evaluation of the tenant. Raises EvaluationNotFoundError (404)."""
    match = _with_rows(tenant).filter(pk=evaluation_id).first()
    if match is None:
        raise EvaluationNotFoundError(evaluation_id)
    return match


def _with_rows(tenant: Tenant) -> QuerySet[Evaluation]:
    rows = Evaluation.objects.for_tenant(tenant)
    return rows.select_related("set", "api_key", "upload", "version__adapter", "batch")


def find_evaluations(tenant: Tenant, search: str) -> QuerySet[Evaluation]:
    """Return a tenant's evaluations, newest first; `search` is a part of the adapter's name."""
    rows = _with_rows(tenant)
    named = Q(version__adapter__name__icontains=search) | Q(upload__adapter_name__icontains=search)
    return rows.filter(named) if search else rows


def cancel_evaluation(*, acting: Principal, evaluation_id: UUID) -> Evaluation:
    """Cancel an evaluation and its batch. Raises EvaluationNotFoundError (404), LorikeetError (409) if it has ended."""
    with transaction.atomic():
        pk = get_evaluation(acting.tenant, evaluation_id).pk
        evaluation = Evaluation.objects.for_tenant(acting.tenant).select_for_update(of=("self",)).get(pk=pk)
        if evaluation.state not in OPEN:
            raise LorikeetError(
                "evaluation_is_over",
                f"The evaluation is {evaluation.state}.",
                "There is nothing left to cancel.",
                status=409,
            )
        if evaluation.batch is not None and evaluation.batch.state in OPEN_BATCH:
            batches.cancel_batch(acting=acting, name=str(evaluation.batch))
        _end(evaluation, EvaluationState.CANCELLED, acting.actor)
    return evaluation


def cancel_of_deleted_tenants() -> None:
    """Cancel open evaluations of deleted tenants, also those that an upload started after the deletion."""
    with transaction.atomic():
        open_ones = Evaluation.objects.filter(state__in=OPEN, tenant__deleted_at__isnull=False)
        locked = open_ones.select_for_update(of=("self",), skip_locked=True)
        for evaluation in locked.select_related("tenant", "upload", "version__adapter"):
            _end(evaluation, EvaluationState.CANCELLED, SYSTEM)


def tend() -> int:
    """Move open evaluations by one step, if it is time. Returns how many were checked.

    Of more than it checks at once it draws them at random: the oldest may wait for a day, and must not keep others from
    being checked.
    """
    movable = Q(state=EvaluationState.WAITING) | ~Q(batch__state__in=OPEN_BATCH)
    open_ones = Evaluation.objects.filter(movable, state__in=OPEN, tenant__suspended_at=None)
    drawn = list(open_ones.order_by("?").values_list("created_at", "pk")[:AT_ONCE])
    for _, pk in sorted(drawn):
        try:
            _step(pk)
        except Exception:
            logger.exception("An evaluation failed to move on and is retried.", extra={"evaluation": str(pk)})
    return len(drawn)


def _step(pk: UUID) -> None:
    with transaction.atomic():
        locked = Evaluation.objects.select_for_update(of=("self",), skip_locked=True).filter(pk=pk)
        evaluation = locked.select_related("tenant", "set", "api_key__tenant", "upload", "batch").first()
        if evaluation is None or evaluation.state not in OPEN or evaluation.tenant.suspended_at is not None:
            return
        try:
            _score(evaluation) if evaluation.state == EvaluationState.RUNNING else _begin(evaluation)
        except LorikeetError as error:
            _fail(evaluation, error.code, str(error), error.fix)


def _begin(evaluation: Evaluation) -> None:
    """Send its requests once its version is ready. Raises LorikeetError if the version never will be."""
    version = _version_of(evaluation)
    if version is None or version.state not in (VersionState.READY, VersionState.FAILED, *OUT_OF_USE):
        _wait(
            evaluation, "version_not_ready", "The version is not ready yet.", "It is evaluated as soon as it is ready."
        )
        return
    if version.state != VersionState.READY:
        fix = "Restore it." if version.state == VersionState.ARCHIVED else "Evaluate one that is ready."
        raise LorikeetError("version_not_ready", f"Version {version.number} is {version.state}.", fix)
    base, evaluation_set = served_bases().for_adapters_of(version.base_digest), evaluation.set
    if not (evaluation.api_key.usable_at() and Principal.of_key(evaluation.api_key).may(Capability.INFER)):
        raise LorikeetError(
            "key_not_usable", f"The key {evaluation.api_key.name} is revoked, has expired or lacks the scope infer.",
            "Evaluate it again with another key.",
        )  # fmt: skip
    if base is None or evaluation_set is None:
        _wait(evaluation, "no_base_model", "Its base model is not served.", "It is evaluated as soon as the model is.")
        return
    live = (
        Alias.objects.for_tenant(evaluation.tenant).filter(adapter=version.adapter, name=LIVE).select_related("version")
    )
    alias = live.first()
    evaluation.live = alias.version if alias and alias.version_id != version.pk else None
    if evaluation.live is not None and evaluation.live.state != VersionState.READY:
        evaluation.live = None
    try:
        evaluation.batch = _send(
            evaluation,
            evaluation_set,
            {requests.BASE: base.name, **_named(evaluation.live, requests.LIVE)} | _named(version),
        )
    except LorikeetError as error:
        if error.status not in PASSING:
            raise
        _wait(evaluation, error.code, str(error), error.fix)
        return
    evaluation.version, evaluation.state, evaluation.problem = version, EvaluationState.RUNNING, None
    evaluation.save()
    audit.record(
        SYSTEM,
        "evaluation.run",
        evaluation,
        tenant=evaluation.tenant,
        label=_label(evaluation),
        batch=str(evaluation.batch),
    )


def _version_of(evaluation: Evaluation) -> AdapterVersion | None:
    """Return its version, None while there is none yet. Raises LorikeetError if there will be none."""
    upload = evaluation.upload
    version_id = evaluation.version_id or (upload.version_id if upload else None)
    if version_id is not None:
        return lock_version(
            AdapterVersion.objects.for_tenant(evaluation.tenant).select_related("tenant").get(pk=version_id)
        )
    assert upload is not None
    if upload.state in (UploadState.REFUSED, UploadState.CANCELLED, UploadState.ACCEPTED):
        raise LorikeetError("upload_refused", "Its upload did not become a version.", "Upload it again.")
    return None


def _named(version: AdapterVersion | None, who: str = requests.VERSION) -> dict[str, str]:
    return {who: label_of(version)} if version else {}


def _send(evaluation: Evaluation, evaluation_set: EvaluationSet, models: Mapping[str, str]) -> Batch:
    content = b"".join(requests.request_lines(evaluation_set, models))
    with transaction.atomic():
        return batches.upload_batch(
            acting=Principal.of_key(evaluation.api_key),
            key_id=None,
            endpoint=requests.endpoint_of(evaluation_set),
            name=f"{evaluation_set.name} on {models[requests.VERSION]}.jsonl",
            content=[content],
            size=len(content),
        )


def _wait(evaluation: Evaluation, code: str, message: str, fix: str) -> None:
    """Record why the evaluation waits, and fail it once it has waited too long."""
    waited_s = (clocks.database_time() - evaluation.created_at).total_seconds()
    if waited_s > current().evaluation_wait_s and clocks.is_trusted():
        _fail(evaluation, code, message, "It waited too long: start it again once the problem is solved.")
        return
    problem = {"code": code, "message": message, "fix": fix}
    if evaluation.problem != problem:
        evaluation.problem = problem
        evaluation.save(update_fields=["problem"])
        audit.record(
            SYSTEM, "evaluation.wait", evaluation, tenant=evaluation.tenant, label=_label(evaluation), problem=code
        )


def _score(evaluation: Evaluation) -> None:
    """Score an evaluation whose batch has ended. Raises LorikeetError if not all requests were answered."""
    batch, version, evaluation_set = evaluation.batch, evaluation.version, evaluation.set
    if batch is not None and batch.state in OPEN_BATCH:
        return
    if batch is None or version is None or evaluation_set is None:
        raise LorikeetError("evaluation_incomplete", "Its batch was deleted.", "Evaluate it again.")
    _require_completed(batch)
    if version.state in OUT_OF_USE:
        # Its name may be another adapter's by now, which then gave the answers.
        raise LorikeetError("version_archived", f"Version {version.number} was archived.", "Restore it, and try again.")
    answers = requests.Answers(evaluation_set, files.lines(batch.output_file) if batch.output_file else ())
    live = None
    if evaluation.live is not None:
        live = {"version": evaluation.live.number, "score": answers.score(requests.LIVE)}
    who = [requests.BASE, requests.VERSION, *([requests.LIVE] if live else [])]
    score = {
        "evaluation": str(evaluation.pk),
        "set": evaluation_set.name,
        "set_id": str(evaluation_set.pk),
        "metric": evaluation_set.metric,
        "items": evaluation_set.count,
        "base": answers.score(requests.BASE),
        "live": live,
        "score": answers.score(requests.VERSION),
        "worst": answers.worst(who),
        "at": timezone.now().isoformat(),
    }
    evaluation.score = storable(score)  # the worst answers are models' texts
    _end(evaluation, EvaluationState.COMPLETED, SYSTEM)
    record_score(version, evaluation.score)


def _require_completed(batch: Batch) -> None:
    if batch.errors:
        first = batch.errors[0]
        raise LorikeetError(first["code"], f"Request {first['line']}: {first['message']}", "Correct the set's items.")
    if batch.state != BatchState.COMPLETED:
        raise LorikeetError(f"batch_{batch.state}", f"Its batch is {batch.state}.", "Evaluate it again.")
    if batch.error_file is not None:
        raise _first_failure(files.lines(batch.error_file))
    if batch.output_file is None:
        raise LorikeetError("evaluation_incomplete", "The answers were deleted.", "Evaluate it again.")


def _first_failure(lines: Iterable[bytes]) -> LorikeetError:
    failed = json.loads(next(iter(lines)))
    who, _, line = failed["custom_id"].partition(":")
    problem = (failed["response"] or {}).get("body", {}).get("error") or failed["error"]
    fix = problem.get("fix") or "Correct the line, and evaluate again with a new set."
    return LorikeetError(
        problem["code"] or "request_failed",
        # The message of an answer ends with the fix, for clients that show nothing else.
        f"Line {line} of the set was not answered by the {who}: {problem['message'].removesuffix(fix).rstrip()}",
        fix,
    )


def _fail(evaluation: Evaluation, code: str, message: str, fix: str) -> None:
    evaluation.problem = {"code": code, "message": message, "fix": fix}
    _end(evaluation, EvaluationState.FAILED, SYSTEM)


def _end(evaluation: Evaluation, state: EvaluationState, actor: Actor) -> None:
    evaluation.state, evaluation.ended_at = state, timezone.now()
    evaluation.save()
    detail = (
        {"score": evaluation.score["score"]}
        if evaluation.score
        else {"problem": (evaluation.problem or {}).get("code")}
    )
    audit.record(
        actor, f"evaluation.{state.value}", evaluation, tenant=evaluation.tenant, label=_label(evaluation), **detail
    )


def _label(evaluation: Evaluation) -> str:
    return label_of(evaluation.version) if evaluation.version else evaluation.adapter_name
