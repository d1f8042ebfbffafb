"""Mails of the platform: short, plain text, with one link."""

from __future__ import annotations

from typing import Any

from django.core.mail import EmailMessage
from django.core.mail.backends.filebased import EmailBackend

from control_plane.core.config import current
from control_plane.core.names import without_refused


class FolderBackend(EmailBackend):
    """A backend that writes one file per mail, in a folder that only this account may read: the links are secrets."""

    def __init__(self, **options: Any) -> None:
        folder = current().var_dir / "mail"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(**{**options, "file_path": str(folder)})


def link(page: str, token: str) -> str:
    """Return a console page's URL with a secret.

    Behind "#" it is never sent to a server, so no log or referrer has it.
    """
    return f"{current().address}/{page}#{token}"


def is_configured() -> bool:
    """Return whether mails are sent. Without a mail server they are only written to a folder of the platform."""
    return bool(current().mail_url)


def send(to: str, subject: str, *paragraphs: str) -> None:
    """Send a mail. Raises OSError or smtplib's errors: for tasks, which retry."""
    # A name from before the check of names may contain a line break, which a header cannot.
    EmailMessage(without_refused(subject), "\n\n".join(paragraphs) + "\n", to=[to]).send()
