"""Branches that adapters follow: a branch that has moved is imported as a new version, at its commit.

The version does not become live by itself: an alias moves when a member promotes the version. Only an adapter without a
live version gets its first ready one live, as with every upload.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from control_plane.adapters.imports import hub
from control_plane.adapters.imports.actions import import_for
from control_plane.adapters.imports.fetching import authorization
from control_plane.adapters.imports.hub_policy import full_name
from control_plane.adapters.imports.models import HubFollow
from control_plane.adapters.imports.problems import SourceProblemError
from control_plane.adapters.imports.sources import HubSource, SourceRefusedError, parse_source
from control_plane.adapters.uploads.actions import require_free_name
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.config import current
from control_plane.core.db import release_connections
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.http import egress
from control_plane.core.jobs import clocks
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant

logger = logging.getLogger(__name__)
# Maximum number of branches that adapters of one tenant follow.
MAX_FOLLOWS = 50
# Maximum seconds between two checks of a branch that fails.
LONGEST_REST_S = 86_400
# Maximum number of branches that one task checks, and maximum seconds for which it may take: other tasks wait.
MAX_BRANCHES_PER_TASK, MAX_TASK_S = 20, 20.0
JITTER = 0.2  # share of a rest by which it varies
# Codes of refused imports that are repeated, since their reason may pass. Any other reason lies in the files.
PASSING = frozenset(
    {
        "adapter_limit_reached",
        "source_answer",
        "source_forbidden",
        "source_not_found",
        "source_sealed",
        "source_unavailable",
        "storage_full",
        "storage_limit_reached",
        "storage_unavailable",
    }
)


class TooManyFollowsError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "too_many_follows",
            f"Adapters of this tenant follow {MAX_FOLLOWS} branches.",
            "Stop following a branch that is no longer needed.",
            status=409,
        )


class FollowedAlreadyError(LorikeetError):
    def __init__(self, follow: HubFollow) -> None:
        super().__init__(
            "followed_already",
            f'The adapter "{follow.adapter_name}" follows {follow.source}.',
            "End that first, or use another adapter name.",
            param="name",
            status=409,
        )


def follows_of(tenant: Tenant) -> QuerySet[HubFollow]:
    return HubFollow.objects.for_tenant(tenant)


def follows_with_problems(tenant: Tenant) -> list[HubFollow]:
    """Return a tenant's follows. The problem of one whose last check succeeded is that of its commit's import."""
    follows = list(follows_of(tenant))
    imports = _imports(follows)
    for follow in follows:
        last = imports[follow.pk][-1] if imports[follow.pk] else None
        if follow.problem is None and last is not None and last.state in (UploadState.REFUSED, UploadState.CANCELLED):
            follow.problem = last.reason
    return follows


def _imports(follows: Sequence[HubFollow]) -> Mapping[UUID, list[Upload]]:
    """Return the imports of each follow's commit, oldest first."""
    by_follow: dict[UUID, list[Upload]] = {follow.pk: [] for follow in follows}
    named = {(follow.tenant_id, follow.adapter_name, follow.commit): follow.pk for follow in follows if follow.commit}
    uploads = Upload.objects.filter(
        tenant__in={follow.tenant_id for follow in follows},
        adapter_name__in={follow.adapter_name for follow in follows},
        source__revision__in=sorted({commit for _, _, commit in named}),
    )
    for upload in uploads.defer("report").order_by("created_at"):
        revision = str((upload.source or {}).get("revision"))
        if (follow_id := named.get((upload.tenant_id, upload.adapter_name, revision))) is not None:
            by_follow[follow_id].append(upload)
    return by_follow


def add_follow(*, acting: Principal, name: str, source: str) -> HubFollow:
    """Follow a branch, checked soon. Raises SourceRefusedError, FollowedAlreadyError, TooManyFollowsError."""
    branch = _branch(source)
    require_free_name(name)
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)  # makes the count exact
        rows = follows_of(acting.tenant)
        if (known := rows.filter(adapter_name=name).first()) is not None:
            raise FollowedAlreadyError(known)
        if rows.count() >= MAX_FOLLOWS:
            raise TooManyFollowsError
        follow = HubFollow.objects.create(
            tenant=acting.tenant,
            adapter_name=name,
            source=full_name(branch),
            next_check_at=clocks.database_time(),
            created_by=acting.user,
        )
        audit.record(acting.actor, "follow.add", follow, tenant=acting.tenant, label=name, source=follow.source)
    return follow


def remove_follow(*, acting: Principal, follow_id: UUID) -> None:
    """Stop following a branch. Raises NotFoundError (404)."""
    with transaction.atomic():
        follow = follows_of(acting.tenant).filter(pk=follow_id).select_for_update().first()
        if follow is None:
            raise NotFoundError("This tenant follows no branch with that id.", "GET follows lists them.")
        audit.record(
            acting.actor, "follow.remove", follow, tenant=acting.tenant, label=follow.adapter_name, source=follow.source
        )
        follow.delete()


def _branch(text: str) -> HubSource:
    source = parse_source(text)
    if not isinstance(source, HubSource) or hub.is_commit(source.revision):
        raise SourceRefusedError(
            "Only a branch of the Hub can be followed.", "Write it like hub:org/name@main; a commit never changes."
        )
    return source


def poll_due() -> int:
    """Check the branches that are due, up to a limit. Returns how many."""
    until, checked = time.monotonic() + MAX_TASK_S, 0
    while checked < MAX_BRANCHES_PER_TASK and time.monotonic() < until and (follow := _claim()) is not None:
        checked += 1
        _check(follow)
    return checked


def _claim() -> HubFollow | None:
    """Take the branch that is due longest, and set its next check. Of two workers only one gets it."""
    now = clocks.database_time()
    longest = timedelta(seconds=max(LONGEST_REST_S, current().follow_poll_s) * (1 + JITTER))
    due = HubFollow.objects.filter(clocks.due("next_check_at", now, longest), tenant__suspended_at=None)
    due = due.select_related("tenant")
    for follow in due.order_by("next_check_at")[:MAX_BRANCHES_PER_TASK]:
        ahead = now + timedelta(seconds=_rest_s(follow.failures))
        same = HubFollow.objects.filter(pk=follow.pk, next_check_at=follow.next_check_at)
        if same.update(next_check_at=ahead):
            return follow
    return None


def _rest_s(failures: int) -> float:
    """Return the pause before the next check: longer after each failure, and varied, so that checks do not coincide."""
    rest_s = min(current().follow_poll_s * 2.0 ** min(failures, 10), max(LONGEST_REST_S, current().follow_poll_s))
    return rest_s * random.uniform(1 - JITTER, 1 + JITTER)


def _check(follow: HubFollow) -> None:
    source = _branch(follow.source)
    try:
        headers = authorization(follow.tenant)
        release_connections()
        commit = hub.commit_at(source.repository, source.revision, headers)
        _import(follow, source, commit)
    except SourceProblemError as error:
        _fail(follow, error.problem)
    except LorikeetError as error:  # a limit of the tenant, or a refused address
        _fail(follow, {"code": error.code, "message": error.message, "fix": error.fix})
    except egress.EgressError as error:
        _fail(
            follow, {"code": "source_unavailable", "message": str(error), "fix": "It is checked again automatically."}
        )
    else:
        _note(follow, failures=0, problem=None)


def _import(follow: HubFollow, source: HubSource, commit: str) -> None:
    """Create the upload and store the commit, in one transaction, if the branch has moved or its import is repeated."""
    with transaction.atomic():
        locked = HubFollow.objects.select_for_update(of=("self",)).select_related("tenant", "created_by")
        current_follow = locked.filter(pk=follow.pk).first()
        if current_follow is None:
            return  # ended
        imports, moved = _imports([current_follow])[current_follow.pk], current_follow.commit != commit
        if any(upload.state in (UploadState.RECEIVED, UploadState.VALIDATING) for upload in imports):
            return  # versions are numbered as their imports end: the next check takes up the move
        if not moved and not _is_repeated(imports):
            return
        upload = import_for(
            follow.tenant,
            SYSTEM,
            name=follow.adapter_name,
            description=f"Follows {follow.source}.",
            source=f"{source.shown}@{commit}",
            created_by=current_follow.created_by,
        )
        if not moved:
            return
        audit.record(
            SYSTEM,
            "follow.moved",
            current_follow,
            tenant=follow.tenant,
            label=follow.adapter_name,
            source=follow.source,
            before=current_follow.commit,
            commit=commit,
            upload=str(upload.pk),
        )
        current_follow.commit = commit
        current_follow.save(update_fields=["commit"])


def _is_repeated(imports: Sequence[Upload]) -> bool:
    """Return True if a commit's last import was refused for a reason that may pass, longer ago each time."""
    last = imports[-1] if imports else None
    if last is None or last.state != UploadState.REFUSED or (last.reason or {}).get("code") not in PASSING:
        return False
    ago_s = abs((clocks.database_time() - last.updated_at).total_seconds())  # negative after a clock stepped back
    return ago_s > _rest_s(len(imports) - 1)


def _fail(follow: HubFollow, problem: dict[str, Any]) -> None:
    logger.info("%s could not be followed: %s", follow, problem)
    _note(follow, failures=follow.failures + 1, problem=problem)


def _note(follow: HubFollow, *, failures: int, problem: dict[str, Any] | None) -> None:
    now = clocks.database_time()
    HubFollow.objects.filter(pk=follow.pk).update(
        failures=failures,
        problem=problem,
        checked_at=now,
        next_check_at=now + timedelta(seconds=_rest_s(failures)),
    )
