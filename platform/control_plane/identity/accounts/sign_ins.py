"""Sessions by person and device: listing and ending them. Django keeps the sessions, this module their owners."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from datetime import datetime
from uuid import UUID

from django.contrib.sessions.models import Session
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from control_plane.core.errors import NotFoundError
from control_plane.core.events.recheck import recheck_user
from control_plane.core.jobs import clocks
from control_plane.core.names import without_refused
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.tenant_access import NotAuthenticatedError
from control_plane.identity.accounts.models import SignIn, User
from control_plane.identity.audit import actions as audit

NOTED_EVERY_S = 300.0  # between two updates of a session's last use
# Maximum number of sessions that one process remembers.
MAX_REMEMBERED = 20_000
LONGEST_AGENT = 300
MAX_LISTED = 100


class Recently:
    """A filter of this process that passes each key once per period. Thread-safe."""

    def __init__(self, every_s: float, most: int) -> None:
        self._every_s, self._most = every_s, most
        self._at: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def again(self, key: str) -> bool:
        """Return True, and begin a new period, if the key's last one is over."""
        now = time.monotonic()
        with self._lock:
            if now - self._at.get(key, -self._every_s) < self._every_s:
                return False
            self._at[key] = now
            self._at.move_to_end(key)
            while len(self._at) > self._most:
                self._at.popitem(last=False)
        return True


_noted = Recently(NOTED_EVERY_S, MAX_REMEMBERED)


def begin(request: HttpRequest, user: User) -> None:
    """Record the session that begins with this request."""
    if request.session.session_key is None:
        request.session.save()
    key = request.session.session_key
    assert key is not None
    SignIn.objects.filter(session_key=key).delete()
    SignIn.objects.create(user=user, session_key=key, last_seen_at=timezone.now(), **_device(request))
    _noted.again(key)


def seen(request: HttpRequest, user: User) -> None:
    """Record, at most every five minutes, that a session is used and from where."""
    key = request.session.session_key
    if key is None or not _noted.again(key):
        return
    now = timezone.now()
    if SignIn.objects.filter(session_key=key).update(last_seen_at=now, **_device(request)):
        return
    try:
        with transaction.atomic():
            SignIn.objects.create(user=user, session_key=key, last_seen_at=now, **_device(request))
    except IntegrityError:
        return  # another request of the same session recorded it first


def lock_session(request: HttpRequest) -> str:
    """Lock the session until the transaction ends. Returns its key.

    Raises NotAuthenticatedError if it was ended during this request: a new key would begin it again.
    """
    row = Session.objects.select_for_update().filter(session_key=request.session.session_key).first()
    if row is None:
        raise NotAuthenticatedError
    return row.session_key


def rename(request: HttpRequest, user: User, before: str) -> None:
    """Record the new key of a session."""
    if not SignIn.objects.filter(user=user, session_key=before).update(session_key=request.session.session_key):
        begin(request, user)


def forget(user: User, session_key: str | None) -> None:
    """Delete the record of a session that its browser ends."""
    SignIn.objects.filter(user=user, session_key=session_key).delete()


def of_person(user: User) -> QuerySet[SignIn]:
    """Return the sessions that have not ended, the last used first."""
    return SignIn.objects.filter(_alive(), user=user).order_by("-last_seen_at", "id")[:MAX_LISTED]


def end_one(user: User, sign_in_id: UUID) -> None:
    """Sign one device out; its websockets close. Raises NotFoundError."""
    with transaction.atomic():
        rows = SignIn.objects.filter(user=user, pk=sign_in_id)
        row = rows.select_for_update().first()
        if row is None:
            raise NotFoundError("You have no such session.", "Read the list again: it may have ended meanwhile.")
        _end(rows)
        audit.record(
            Actor.of(user),
            "session.end",
            user,
            tenant=None,
            label=user.email,
            address=row.address,
            device=row.user_agent,
        )
        recheck_user(user.pk)


def end_others(user: User, session_key: str | None) -> int:
    """Sign all other devices out. Returns how many there were."""
    with transaction.atomic():
        ended = end_all(user, but=session_key)
        audit.record(Actor.of(user), "session.end_others", user, tenant=None, label=user.email, sessions=ended)
        recheck_user(user.pk)
    return ended


def end_all(user: User, *, but: str | None = None) -> int:
    """End all sessions of a person, within a write that records the reason. Returns their number."""
    return _end(SignIn.objects.filter(user=user).exclude(session_key=but or ""))


def forget_ended(now: datetime) -> int:
    """Delete the records of sessions that expired. Returns their number."""
    return SignIn.objects.filter(~_alive(now)).delete()[0]


def _end(rows: QuerySet[SignIn]) -> int:
    keys = list(rows.values_list("session_key", flat=True))
    Session.objects.filter(session_key__in=keys).delete()
    return rows.filter(session_key__in=keys).delete()[0]


def _alive(now: datetime | None = None) -> Exists:
    sessions = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gt=now or clocks.now())
    return Exists(sessions)


def _device(request: HttpRequest) -> dict[str, str]:
    agent = without_refused(request.META.get("HTTP_USER_AGENT", "")[:LONGEST_AGENT]).strip()
    return {"address": str(request.META.get("REMOTE_ADDR") or "")[:64], "user_agent": agent}
