"""Branches that adapters follow: a branch that has moved is imported as a new version, at its commit.

The version does not become live by itself: an alias moves when a member promotes the version. Only an adapter without a
live version gets its first ready one live, as with every upload.
"""

from __future__ import annotations

import logging
import random
import time
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
from control_plane.adapters.uploads.actions import UNDECIDED, require_free_name
from control_plane.adapters.uploads.models import Upload
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
        if commit != follow.commit:
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
    """Create the upload and store the commit, in one transaction."""
    with transaction.atomic():
        locked = HubFollow.objects.select_for_update(of=("self",)).select_related("tenant", "created_by")
        current_follow = locked.filter(pk=follow.pk).first()
        if current_follow is None or current_follow.commit == commit:
            return  # ended, or imported by another worker
        last = Upload.objects.for_tenant(follow.tenant).filter(UNDECIDED, adapter_name=follow.adapter_name)
        if current_follow.commit and last.filter(source__revision=current_follow.commit).exists():
            return  # versions are numbered as their imports end: the next check takes up the move
        upload = import_for(
            follow.tenant,
            SYSTEM,
            name=follow.adapter_name,
            description=f"Follows {follow.source}.",
            source=f"{source.shown}@{commit}",
            created_by=current_follow.created_by,
        )
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
