"""Notifies open websockets that the permissions of their caller changed.

A socket joins the group of its person or key. It is not told what changed: it looks again at the database, with the
same code that let it in. The message may be lost; every socket also looks again by itself (``RECHECK_S``).
"""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import transaction
from redis.exceptions import RedisError

from control_plane.core.events.publisher import send_to_group

RECHECK_S = 30.0
logger = logging.getLogger(__name__)


def user_group(user_id: UUID) -> str:
    return f"access.user.{user_id}"


def key_group(key_id: UUID) -> str:
    return f"access.key.{key_id}"


def recheck_user(user_id: UUID) -> None:
    """After commit, have all sockets of a person look again."""
    transaction.on_commit(lambda: _tell(user_group(user_id)), robust=True)


def recheck_key(key_id: UUID) -> None:
    """After commit, have all sockets of a key look again."""
    transaction.on_commit(lambda: _tell(key_group(key_id)), robust=True)


def _tell(group: str) -> None:
    try:
        send_to_group(group, {"type": "access.recheck"})
    except (OSError, RedisError):
        logger.warning("Sockets of %s were not told of a change; they look again by themselves.", group, exc_info=True)
