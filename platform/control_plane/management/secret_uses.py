"""Renews what was made with a secret under its new value, and counts what is still under the old one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.sessions.models import Session
from django.core import signing
from django.db.models import Model, Q

from control_plane.adapters.imports import sealed as imports
from control_plane.adapters.imports.models import BucketCredentials, HubToken
from control_plane.adapters.uploads.models import Upload
from control_plane.core import sealed
from control_plane.core.jobs import clocks
from control_plane.core.secrets import keys
from control_plane.core.secrets.following import follow_secret_key
from control_plane.core.secrets.keys import key_id
from control_plane.fleet.joining.joining import joined_hosts, renew
from control_plane.fleet.joining.models import JoinToken
from control_plane.fleet.transport.endpoint import endpoint_of
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.accounts.sessions import SessionStore
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.second_factor.actions import app_purpose
from control_plane.identity.second_factor.models import AuthenticatorApp, RecoveryCode
from control_plane.identity.second_factor.recovery_codes import purpose as code_purpose

# Rows that are read at once.
_PAGE = 500


def _nothing() -> None:
    """Renew nothing: what was made with the secret is renewed by its use, or ends by itself."""


def _none(_identifier: str) -> list[str]:
    return []


@dataclass(frozen=True)
class Uses:
    """The uses of a secret."""

    # Encrypts or signs again what was under another value than the one in use. It may be interrupted and repeated.
    renew: Callable[[], None] = _nothing
    # Returns a sentence for each kind of thing that still needs the value with an id.
    remaining: Callable[[str], list[str]] = _none
    # Returns a sentence for each thing that does not accept the value with an id yet.
    unprepared: Callable[[str], list[str]] = _none


def _pages(rows: Any) -> Iterator[Any]:
    """Yield rows by their primary key, with a query for each page: the caller changes the table meanwhile."""
    page = list(rows.order_by("pk")[:_PAGE])
    while page:
        yield from page
        page = list(rows.filter(pk__gt=page[-1].pk).order_by("pk")[:_PAGE])


# -- API keys ---------------------------------------------------------------------------------------------------------


def _keys_under(identifier: str) -> list[str]:
    now, start = clocks.database_time(), f"{identifier}$"
    valid = ApiKey.objects.filter(revoked_at=None).filter(Q(expires_at=None) | Q(expires_at__gt=now))
    api_keys = valid.filter(
        Q(secret_hash__startswith=start) | Q(previous_until__gt=now, previous_hash__startswith=start)
    ).count()
    tokens = JoinToken.objects.filter(
        secret_hash__startswith=start, used_at=None, withdrawn_at=None, expires_at__gt=now
    ).count()
    counts = {"API keys that were not used since": api_keys, "join tokens": tokens}
    return [f"{count} {what}" for what, count in counts.items() if count]


# -- sealed values ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SealedColumn:
    """A column, or a key of a JSON column, of sealed values."""

    label: str
    model: type[Model]
    field: str
    purpose: Callable[[Any], bytes]
    json_key: str = ""

    def under(self, identifier: str, *, but: bool = False) -> Any:
        lookup = f"{self.field}__{self.json_key}" if self.json_key else self.field
        rows = self.model._default_manager.exclude(**{f"{lookup}__isnull": True})
        matching = {f"{lookup}__startswith": f"{identifier}:"}
        return rows.exclude(**matching) if but else rows.filter(**matching)

    def text(self, row: Any) -> str:
        value = getattr(row, self.field)
        return str(value[self.json_key] if self.json_key else value)

    def renew(self) -> None:
        present = key_id(sealed.NAME, keys.in_use(sealed.NAME))
        for row in _pages(self.under(present, but=True)):
            old = self.text(row)
            if (plain := sealed.unseal(old, self.purpose(row))) is None:
                continue
            new = sealed.seal(plain, self.purpose(row))
            value = {**getattr(row, self.field), self.json_key: new} if self.json_key else new
            # Only if nobody has replaced it meanwhile.
            lookup = f"{self.field}__{self.json_key}" if self.json_key else self.field
            self.model._default_manager.filter(pk=row.pk, **{lookup: old}).update(**{self.field: value})


_COLUMNS = (
    _SealedColumn("authenticator apps", AuthenticatorApp, "sealed", lambda row: app_purpose(row.user_id)),
    _SealedColumn("recovery codes", RecoveryCode, "digest", lambda row: code_purpose(row.user_id)),
    _SealedColumn("tokens for the Hub", HubToken, "sealed", lambda _: imports.PURPOSE),
    _SealedColumn("credentials of buckets", BucketCredentials, "sealed", lambda _: imports.PURPOSE),
    _SealedColumn("sources of imports", Upload, "source", lambda _: imports.PURPOSE, json_key="sealed"),
)


def _renew_sealed() -> None:
    for column in _COLUMNS:
        column.renew()


def _sealed_under(identifier: str) -> list[str]:
    counts = ((column.label, column.under(identifier).count()) for column in _COLUMNS)
    return [f"{count} {label}" for label, count in counts if count]


# -- sessions ---------------------------------------------------------------------------------------------------------


def _renew_sessions() -> None:
    """Sign the contents of sessions under the secret key in use: each stays valid under its id."""
    follow_secret_key()
    store, present = SessionStore(), keys.in_use("secret-key")
    for session in _pages(Session.objects.filter(expire_date__gt=clocks.now())):
        old = session.session_data
        try:
            signing.loads(old, key=present, salt=store.key_salt, serializer=store.serializer, fallback_keys=[])
        except signing.BadSignature:
            if contents := store.decode(old):
                new = store.encode(contents)
                Session.objects.filter(pk=session.pk, session_data=old).update(session_data=new)


# -- hosts ------------------------------------------------------------------------------------------------------------


def _renew_hosts() -> None:
    """Renew the certificates of the hosts that answer. The reconciler does it for others when they are back."""
    expected = " ".join(keys.key_ids("authority-key"))
    for host in joined_hosts().exclude(authorities=expected):
        try:
            renew(endpoint_of(host.name))
        except HostError:
            continue


def _hosts(problem: Callable[[list[str]], bool], what: str) -> list[str]:
    names = [host.name for host in joined_hosts() if problem(host.authorities.split())]
    return [f"{what}: {', '.join(names)}"] if names else []


def _hosts_under(identifier: str) -> list[str]:
    return _hosts(lambda ids: ids[:1] == [identifier], "hosts with its certificates")


def _hosts_without(identifier: str) -> list[str]:
    return _hosts(lambda ids: identifier not in ids, "hosts that do not trust the new authority yet")


USES = {
    "secret-key": Uses(renew=_renew_sessions),
    "key-pepper": Uses(remaining=_keys_under),
    "sealing-key": Uses(renew=_renew_sealed, remaining=_sealed_under),
    "authority-key": Uses(renew=_renew_hosts, remaining=_hosts_under, unprepared=_hosts_without),
}


def uses_of(name: str) -> Uses:
    return USES.get(name, Uses())
