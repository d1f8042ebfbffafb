"""Sends e-mail about accounts and deletes expired sessions. Tokens are made here, so that the queue never has one."""

from celery import shared_task
from django.core.management import call_command

from control_plane.core.jobs import clocks
from control_plane.identity.accounts.mail import link, send
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.passwords import reset_token
from control_plane.identity.accounts.sign_ins import forget_ended

RETRIES = 5


@shared_task(
    name="accounts.mail_reset_link", autoretry_for=(OSError,), retry_backoff=10, max_retries=RETRIES, acks_late=True
)
def mail_reset_link(email: str) -> None:
    user = User.objects.filter(email=email, is_active=True).first()
    if user is None:
        return
    send(
        user.email,
        "Choose a new password for Lorikeet",
        "Somebody, hopefully you, asked for a new password for this address. Open this link within an hour:",
        link("reset-password", reset_token(user)),
        "If it was not you, there is nothing to do: your password stays as it is.",
    )


@shared_task(
    name="accounts.mail_address_changed",
    autoretry_for=(OSError,),
    retry_backoff=10,
    max_retries=RETRIES,
    acks_late=True,
)
def mail_address_changed(before: str, email: str) -> None:
    """Mail the address that an account had before: its reader should learn of a change that somebody else made."""
    send(
        before,
        "The address of your Lorikeet account changed",
        f"Your organisation's provider says that your address is {email} now, so your account has that one.",
        "If it was not you, tell the operator of this installation.",
    )


@shared_task(name="accounts.clear_sessions")
def clear_sessions() -> None:
    """Delete expired sessions, which would otherwise stay for ever."""
    now = clocks.deletion_time()
    call_command("clearsessions")  # by this process's clock, which was compared with the database's
    forget_ended(now)
