"""Updates of `last_used_at` in batches, instead of a write per request."""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime
from uuid import UUID

from django.db import DatabaseError, InterfaceError
from django.db.models import Q
from django.utils import timezone

from control_plane.identity.keys.models import ApiKey

logger = logging.getLogger(__name__)
FLUSH_EVERY_S = 30.0  # between two batches


class LastUsed:
    """The last uses of keys in memory. A killed process loses at most `FLUSH_EVERY_S` of them. Thread-safe."""

    def __init__(self, flush_every_s: float = FLUSH_EVERY_S) -> None:
        self._flush_every_s = flush_every_s
        self._lock = threading.Lock()
        self._seen: dict[UUID, datetime] = {}
        self._flushed_at = float("-inf")

    def note(self, key: ApiKey) -> None:
        """Record a use; write the batch if the last one is old enough.

        Call it on a thread that may use the database.
        """
        with self._lock:
            self._seen[key.pk] = timezone.now()
            if time.monotonic() - self._flushed_at < self._flush_every_s:
                return
            batch = self._take()
        self._write(batch)

    def seen(self, key: ApiKey) -> None:
        """Record a use without writing: for threads that must not wait."""
        with self._lock:
            self._seen[key.pk] = timezone.now()

    def flush(self) -> None:
        """Write the batch now."""
        with self._lock:
            batch = self._take()
        self._write(batch)

    def _take(self) -> dict[UUID, datetime]:
        batch, self._seen = self._seen, {}
        self._flushed_at = time.monotonic()
        return batch

    def _write(self, batch: dict[UUID, datetime]) -> None:
        """Write a batch. Errors are logged only: a failed write here must not refuse a request."""
        try:
            for key_id, moment in batch.items():
                older = Q(last_used_at__isnull=True) | Q(last_used_at__lt=moment)
                ApiKey.objects.filter(older, pk=key_id).update(last_used_at=moment)
        except (DatabaseError, InterfaceError) as error:
            logger.warning(
                "The last use of %d keys was not stored; it is written with the next batch: %s", len(batch), error
            )
            with self._lock:
                self._seen = {**batch, **self._seen}


last_used = LastUsed()
