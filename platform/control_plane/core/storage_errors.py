"""Errors of a full or broken disk, as callers see them."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from control_plane.core.errors import LorikeetError

logger = logging.getLogger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_BROKEN = frozenset({errno.EIO, errno.EROFS, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EFBIG})
_NOT_THERE = frozenset({errno.EACCES, errno.EPERM, errno.ENOTDIR})


class StorageError(LorikeetError):
    """The disk of uploads and adapters is unavailable. Acknowledged data is not lost."""

    retry_after_s: float


class StorageFullError(StorageError):
    retry_after_s = 60.0

    def __init__(self) -> None:
        super().__init__(
            "storage_full",
            "The server has no room for this upload now.",
            "Send it again later: a resumable upload continues where it stopped. The operator must free space in the "
            "artifact folder.",
            status=507,
        )


class StorageUnavailableError(StorageError):
    retry_after_s = 15.0

    def __init__(self) -> None:
        super().__init__(
            "storage_unavailable",
            "The server's storage for uploads cannot be used now.",
            "Send it again later: a resumable upload continues where it stopped. The operator must check the disk of "
            "the artifact folder.",
            status=503,
        )


def as_storage_error(error: BaseException) -> StorageError | None:
    """Return the error for the caller; None if the error is of another kind."""
    if isinstance(error, StorageError):
        return error
    if not isinstance(error, OSError):
        return None
    if error.errno in _FULL:
        return StorageFullError()
    return StorageUnavailableError() if error.errno in _BROKEN | _NOT_THERE else None


@contextmanager
def telling_storage_errors() -> Iterator[None]:
    """Raise errors of a disk within the block as StorageError."""
    try:
        yield
    except OSError as error:
        refusal = as_storage_error(error)
        if refusal is None:
            raise
        logger.error("The artifact folder cannot be used: %s", error)
        raise refusal from error
