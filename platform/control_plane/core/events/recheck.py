"""Notifies open websockets that the permissions of their caller changed.

A socket joins the group of its person or key. The message does not say what changed: the socket reads the database
again, with the code that admitted it. The message may be lost; every socket also rechecks every ``RECHECK_S``.
"""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import transaction
from redis.exceptions import RedisError

from control_plane.core.events.publisher import send_to_group

RECHECK_S = 30.0  # between two rechecks of a socket
logger = logging.getLogger(__name__)


def user_group(user_id: UUID) -> str:
    return f"access.user.{user_id}"


def key_group(key_id: UUID) -> str:
    return f"access.key.{key_id}"


def recheck_user(user_id: UUID) -> None:
    """Recheck all sockets of a person after commit."""
    transaction.on_commit(lambda: _tell(user_group(user_id)), robust=True)


def recheck_key(key_id: UUID) -> None:
    """Recheck all sockets of a key after commit."""
    transaction.on_commit(lambda: _tell(key_group(key_id)), robust=True)


def _tell(group: str) -> None:
    try:
        send_to_group(group, {"type": "access.recheck"})
    except (OSError, RedisError):
        logger.warning(
            "Sockets of %s were not notified of a change; they recheck within %d s.", group, RECHECK_S, exc_info=True
        )
