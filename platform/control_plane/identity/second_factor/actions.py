"""Setting up, showing and removing second factors. Each write locks the person's row first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.events.recheck import recheck_user
from control_plane.core.http.metrics import SIGN_INS
from control_plane.core.jobs import clocks
from control_plane.core.sealed import seal, unseal
from control_plane.core.writes import enqueue
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.sign_ins import end_all
from control_plane.identity.audit import actions as audit
from control_plane.identity.second_factor import recovery_codes, totp
from control_plane.identity.second_factor.attempts import WrongCodeError, count_code
from control_plane.identity.second_factor.models import AuthenticatorApp, Passkey, RecoveryCode
from control_plane.identity.second_factor.passkeys import (
    Challenge,
    PasskeyRefusedError,
    RelyingParty,
    verify_assertion,
    verify_registration,
)
from control_plane.identity.second_factor.queries import requiring_tenants

MAX_PASSKEYS = 20
_APP_CODE = re.compile(rf"[0-9]{{{totp.DIGITS}}}")
_IGNORED = re.compile(r"[\s-]+")


class NotSetUpError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "not_set_up",
            "The set-up of the authenticator app was not begun, or was begun again elsewhere.",
            "Start again: scan the new QR code, then enter the code of the app.",
            status=409,
        )


class StillRequiredError(LorikeetError):
    def __init__(self, tenants: list[str]) -> None:
        super().__init__(
            "second_factor_still_required",
            f"This is your only second factor, and {', '.join(tenants)} requires one.",
            "Add another one first: a passkey or an authenticator app.",
            status=409,
        )


class TooManyPasskeysError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "too_many_passkeys", f"You have {MAX_PASSKEYS} passkeys.", "Remove one that you no longer use.", status=409
        )


class NoSecondFactorError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "no_second_factor",
            "There is no second factor.",
            "Set up an authenticator app or a passkey first.",
            status=409,
        )


@dataclass(frozen=True)
class AppSetup:
    secret: str
    uri: str


def begin_app(*, user: User) -> AppSetup:
    """Make the secret of an authenticator app. It counts once `confirm_app` has seen a code of it."""
    secret = totp.new_secret()
    with transaction.atomic():
        _lock(user)
        AuthenticatorApp.objects.filter(user=user, confirmed_at=None).delete()
        app = AuthenticatorApp.objects.create(user=user, sealed=seal(secret, app_purpose(user.pk)))
        _audit(user, "second-factor.begin", kind="app", app=app.pk)
    return AppSetup(secret, totp.setup_uri(secret, user.email))


def confirm_app(request: HttpRequest, *, user: User, code: str) -> list[str]:
    """Put the new app in use, in place of an earlier one.

    Returns recovery codes if this is the person's first second factor. Raises NotSetUpError, WrongCodeError.
    """
    count_code(user)
    with transaction.atomic():
        _lock(user)
        app = AuthenticatorApp.objects.filter(user=user, confirmed_at=None).first()
        if app is None:
            raise NotSetUpError
        step = _step_of(app, user, _plain(code))
        if step is None:
            raise WrongCodeError
        AuthenticatorApp.objects.filter(user=user).exclude(pk=app.pk).delete()
        app.last_step, app.confirmed_at = step, timezone.now()
        app.save(update_fields=["last_step", "confirmed_at"])
        return _added(request, user, "app", "Authenticator app")


def remove_app(*, user: User) -> None:
    """Remove the authenticator app. Raises NotFoundError, StillRequiredError."""
    with transaction.atomic():
        _lock(user)
        rows = AuthenticatorApp.objects.filter(user=user, confirmed_at__isnull=False)
        if not rows.exists():
            raise NotFoundError("You have no authenticator app.", "Read the list again: it may have been removed.")
        rows.delete()
        _removed(user, "app", "Authenticator app")


def add_passkey(
    request: HttpRequest,
    *,
    user: User,
    name: str,
    credential: dict[str, object],
    challenge: Challenge,
    rp: RelyingParty,
) -> tuple[Passkey, list[str]]:
    """Add a passkey. Returns recovery codes too if this is the person's first second factor.

    Raises PasskeyRefusedError, TooManyPasskeysError.
    """
    made = verify_registration(rp, challenge, credential)
    with transaction.atomic():
        _lock(user)
        if Passkey.objects.filter(user=user).count() >= MAX_PASSKEYS:
            raise TooManyPasskeysError
        if Passkey.objects.filter(credential_id=made.credential_id).exists():
            raise PasskeyRefusedError("This passkey is registered already.")
        passkey = Passkey.objects.create(
            user=user,
            name=name,
            credential_id=made.credential_id,
            attested=made.attested,
            rp_id=rp.id,
            sign_count=made.sign_count,
        )
        return passkey, _added(request, user, "passkey", name)


def remove_passkey(*, user: User, passkey_id: UUID) -> None:
    """Remove a passkey. Raises NotFoundError, StillRequiredError."""
    with transaction.atomic():
        _lock(user)
        row = Passkey.objects.filter(user=user, pk=passkey_id).first()
        if row is None:
            raise NotFoundError("You have no such passkey.", "Read the list again: it may have been removed.")
        row.delete()
        _removed(user, "passkey", row.name)


def replace_recovery_codes(*, user: User) -> list[str]:
    """Give a person new recovery codes; earlier ones end. Raises NoSecondFactorError."""
    with transaction.atomic():
        if not _lock(user).has_second_factor:
            raise NoSecondFactorError
        codes = recovery_codes.replace(user)
        _audit(user, "recovery-codes.create", codes=len(codes))
        _notify(user, "New recovery codes were made.")
    return codes


def use_code(user: User, code: str) -> str:
    """Use up a code of the app or a recovery code. Returns its kind: "app" or "recovery code".

    Raises WrongCodeError, TooManyAttemptsError.
    """
    count_code(user)
    with transaction.atomic():
        _lock(user)
        kind = _use(user, _plain(code))
        if kind is None:
            audit.record(SYSTEM, "second-factor.refuse", user, tenant=None, label=user.email, kind="code")
    if kind is None:
        SIGN_INS.labels("wrong_code").inc()
        raise WrongCodeError
    return kind


def use_passkey(user: User, credential: dict[str, object], challenge: Challenge, rp: RelyingParty) -> str:
    """Check the answer of a passkey to a challenge. Returns "passkey". Raises PasskeyRefusedError."""
    try:
        with transaction.atomic():
            _lock(user)
            # A passkey of another domain cannot answer, and one of another person is not accepted.
            rows = Passkey.objects.filter(user=user, rp_id=rp.id)
            used, sign_count = verify_assertion(rp, challenge, user, list(rows), credential)
            Passkey.objects.filter(pk=used.pk).update(sign_count=sign_count, last_used_at=timezone.now())
            _audit(user, "passkey.use", passkey=used.name)
    except PasskeyRefusedError:
        SIGN_INS.labels("wrong_passkey").inc()
        with transaction.atomic():
            audit.record(SYSTEM, "second-factor.refuse", user, tenant=None, label=user.email, kind="passkey")
        raise
    return "passkey"


def reset(*, actor: Actor, user: User) -> bool:
    """Remove all second factors of a person who lost them, and end their sessions.

    Returns False if there were none. Then the password alone signs them in.
    """
    with transaction.atomic():
        had = _lock(user).has_second_factor
        _remove_all(user)
        ended = end_all(user)
        audit.record(
            actor, "second-factor.reset", user, tenant=None, label=user.email, had_one=had, sessions_ended=ended
        )
        recheck_user(user.pk)
        if had:
            _notify(user, "An operator removed your second factors.")
    return had


def forget_unproven(*, user: User, **_: object) -> None:
    """Remove the second factors that were set up before the address was proven (a receiver of `address_proven`).

    Somebody who only knew the invitation's link may have set them up, and would lock the owner of the address out.
    """
    if _lock(user).has_second_factor:
        _remove_all(user)
        user.second_factor_since = None
        _audit(user, "second-factor.drop")


def _remove_all(user: User) -> None:
    AuthenticatorApp.objects.filter(user=user).delete()
    Passkey.objects.filter(user=user).delete()
    RecoveryCode.objects.filter(user=user).delete()
    User.objects.filter(pk=user.pk).update(second_factor_since=None)


def _lock(user: User) -> User:
    return User.objects.select_for_update().get(pk=user.pk)


def _use(user: User, code: str) -> str | None:
    if _APP_CODE.fullmatch(code):
        app = AuthenticatorApp.objects.filter(user=user, confirmed_at__isnull=False).first()
        step = _step_of(app, user, code) if app else None
        if app is None or step is None:
            return None
        AuthenticatorApp.objects.filter(pk=app.pk).update(last_step=step, last_used_at=timezone.now())
        _audit(user, "authenticator-app.use")
        return "app"
    if not recovery_codes.use(user, code):
        return None
    left = recovery_codes.left(user)
    _audit(user, "recovery-codes.use", left=left)
    _notify(user, f"A recovery code was used. {left} are left.")
    return "recovery code"


def _step_of(app: AuthenticatorApp, user: User, code: str) -> int | None:
    """Return the period of a code that the app may show now and that was not used. None under another key."""
    secret = unseal(app.sealed, app_purpose(user.pk))
    moment = clocks.database_time().timestamp()
    return totp.matching_step(secret, code, moment, app.last_step) if secret else None


def _added(request: HttpRequest, user: User, kind: str, name: str) -> list[str]:
    """Record a new second factor. With the first one, other sessions end: they began without it."""
    is_first = User.objects.filter(pk=user.pk, second_factor_since=None).update(second_factor_since=timezone.now()) == 1
    codes, ended = [], 0
    if is_first:
        codes = recovery_codes.replace(user)
        ended = end_all(user, but=request.session.session_key)
    _audit(user, "second-factor.add", kind=kind, name=name, sessions_ended=ended)
    _notify(user, f"A second factor was added: {name}.")
    recheck_user(user.pk)
    user.refresh_from_db(fields=["second_factor_since"])
    return codes


def _removed(user: User, kind: str, name: str) -> None:
    """Record a removal. Without a second factor the recovery codes go too. Raises StillRequiredError."""
    apps = AuthenticatorApp.objects.filter(user=user, confirmed_at__isnull=False)
    remains = apps.exists() or Passkey.objects.filter(user=user).exists()
    if not remains:
        if tenants := requiring_tenants(user):
            raise StillRequiredError(tenants)
        RecoveryCode.objects.filter(user=user).delete()
        User.objects.filter(pk=user.pk).update(second_factor_since=None)
        user.second_factor_since = None
    _audit(user, "second-factor.remove", kind=kind, name=name, last=not remains)
    _notify(user, f"A second factor was removed: {name}.")
    recheck_user(user.pk)


def _notify(user: User, event: str) -> None:
    enqueue("second_factor.mail_notice", str(user.pk), event)


def _audit(user: User, action: str, **detail: object) -> None:
    audit.record(Actor.of(user), action, user, tenant=None, label=user.email, **detail)


def _plain(code: str) -> str:
    """Return a code as it was made: people type spaces, hyphens and capitals."""
    return _IGNORED.sub("", code).lower()


def app_purpose(user_id: UUID) -> bytes:
    return b"second factor: authenticator app." + user_id.bytes
