"""Mails about invitations, and the periodic task that deletes old ones."""

from celery import shared_task

from control_plane.core.jobs import clocks
from control_plane.identity.accounts.mail import send
from control_plane.identity.members.invitations import forget as forget_invitations
from control_plane.identity.members.invitations import invitation_link
from control_plane.identity.tenants.models import Invitation

RETRIES = 5


@shared_task(
    name="members.mail_invitation", autoretry_for=(OSError,), retry_backoff=10, max_retries=RETRIES, acks_late=True
)
def mail_invitation(invitation_id: str) -> None:
    invitation = Invitation.objects.select_related("tenant", "invited_by").filter(pk=invitation_id).first()
    if invitation is None or not invitation.is_open_at(clocks.database_time()):
        return
    inviter = invitation.invited_by.email if invitation.invited_by else "An administrator"
    name = invitation.tenant.name
    send(
        invitation.email,
        f"Join {name} on Lorikeet",
        f"{inviter} invites you to {name} as {invitation.role}. Open this link within a week:",
        invitation_link(invitation),
        "If you do not know them, there is nothing to do.",
    )


@shared_task(name="members.forget_invitations")
def forget() -> None:
    """Delete invitations that expired long ago."""
    forget_invitations()
