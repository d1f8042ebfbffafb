"""Mails about changes of second factors: their owner should learn of one that somebody else made."""

from celery import shared_task

from control_plane.identity.accounts.mail import send
from control_plane.identity.accounts.models import User

RETRIES = 5


@shared_task(
    name="second_factor.mail_notice", autoretry_for=(OSError,), retry_backoff=10, max_retries=RETRIES, acks_late=True
)
def mail_notice(user_id: str, event: str) -> None:
    user = User.objects.filter(pk=user_id, is_active=True).first()
    if user is None:
        return
    send(
        user.email,
        "The second factor of your Lorikeet account changed",
        event,
        "If it was not you, change your password, and tell the operator of this installation.",
    )
