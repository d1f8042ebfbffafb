"""Files of batches: storing, reading and deleting them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from control_plane.core.config import current
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.jobs import clocks
from control_plane.core.names import name_problem
from control_plane.gateway.batches.models import OPEN, Batch, FilePart, Purpose, StoredFile
from control_plane.identity.access.principal import Principal, TenantSuspendedError
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant

# Bytes of one row of a stored file; reading a file holds one part in memory.
PART_BYTES = 1 << 20
# Characters of a file's name; of a longer one the end is kept.
LONGEST_NAME = 255


class NoSuchFileError(NotFoundError):
    """No such file of this tenant; the file of another tenant gives the same answer."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"No such File object: {name[:64]}.", "GET /v1/files lists the files that exist.", code="file_not_found",
            param="file_id",
        )  # fmt: skip


def upload_file(
    *, acting: Principal, name: str, content: Iterable[bytes], size: int, keep_s: int | None = None
) -> StoredFile:
    """Store a file of requests, for `keep_s` seconds. Raises LorikeetError (400, 413, 429)."""
    if (problem := name_problem(name)) is not None:
        raise LorikeetError("bad_file_name", problem, "Rename the file.", param="file")
    if size > current().batch_file_max_bytes:
        raise too_large()
    with transaction.atomic():
        tenant = lock_tenant(acting)  # serializes the sum below
        stored = StoredFile.objects.for_tenant(tenant).aggregate(sum=Sum("bytes", default=0))["sum"]
        if stored + size > current().batch_tenant_bytes:
            raise LorikeetError(
                "file_storage_full",
                f"The tenant's files have {stored} bytes; the limit is {current().batch_tenant_bytes}.",
                "Delete files that you no longer need, or wait until they expire.",
                param="file",
                status=429,
            )
        file = store(tenant, name[-LONGEST_NAME:], Purpose.BATCH, content, keep_s)
        audit.record(acting.actor, "file.create", file, tenant=tenant, name=name, bytes=file.bytes)
    return file


def lock_tenant(acting: Principal) -> Tenant:
    """Return the tenant, locked. Raises TenantSuspendedError if it was deleted while the request was on its way."""
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)
    if tenant.deleted_at is not None:
        raise TenantSuspendedError(tenant)
    return tenant


def too_large() -> LorikeetError:
    most = current().batch_file_max_bytes
    return LorikeetError(
        "file_too_large",
        f"The file is larger than {most} bytes.",
        "Split it into several files.",
        param="file",
        status=413,
    )


def store(
    tenant: Tenant, name: str, purpose: Purpose, content: Iterable[bytes], keep_s: int | None = None
) -> StoredFile:
    """Store a file within the caller's transaction; it expires after `keep_s` seconds (None: the setting)."""
    now = clocks.database_time()
    expires = now + timedelta(seconds=current().batch_file_expire_s if keep_s is None else keep_s)
    file = StoredFile.objects.create(
        tenant=tenant, name=name, purpose=purpose, bytes=0, created_at=now, expires_at=expires
    )
    for number, part in enumerate(_parts(content)):
        FilePart.objects.create(file=file, number=number, data=part)
        file.bytes += len(part)
    file.save(update_fields=["bytes"])
    return file


def _parts(content: Iterable[bytes]) -> Iterator[bytes]:
    gathered = bytearray()
    for piece in content:
        gathered += piece
        while len(gathered) >= PART_BYTES:
            yield bytes(gathered[:PART_BYTES])
            del gathered[:PART_BYTES]
    if gathered:
        yield bytes(gathered)


def ids(name: str, prefix: str = "file-") -> list[UUID]:
    """Return the id in a public name as a list of one; an empty list if the name is malformed."""
    try:
        return [UUID(hex=name.removeprefix(prefix))] if name.startswith(prefix) and len(name) < 64 else []
    except ValueError:
        return []


def get_file(tenant: Tenant, name: str) -> StoredFile:
    """Return the tenant's file. Raises NoSuchFileError (404)."""
    file = StoredFile.objects.for_tenant(tenant).filter(pk__in=ids(name), expires_at__gt=timezone.now()).first()
    if file is None:
        raise NoSuchFileError(name)
    return file


def part(file: StoredFile, number: int) -> bytes:
    """Return one part of a file; b"" after the last."""
    data = FilePart.objects.filter(file=file, number=number).values_list("data", flat=True).first()
    return bytes(data) if data is not None else b""


async def parts_of(file: StoredFile) -> AsyncIterator[bytes]:
    """Yield a file's parts, each by its own query, with one in memory at a time."""
    number = 0
    while data := await run_db(part, file, number):
        number += 1
        yield data


def lines(file: StoredFile) -> Iterator[bytes]:
    """Yield a file's lines without line ends, with one part in memory at a time."""
    rest, number = b"", 0
    while data := part(file, number):
        number += 1
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
    if rest:
        yield rest


def delete_file(*, acting: Principal, name: str) -> StoredFile:
    """Delete a file. Raises NoSuchFileError (404), LorikeetError (409) while a batch reads it."""
    with transaction.atomic():
        lock_tenant(acting)  # no batch of the file begins meanwhile
        file = get_file(acting.tenant, name)
        if Batch.objects.for_tenant(acting.tenant).filter(input_file=file, state__in=OPEN).exists():
            raise LorikeetError(
                "file_in_use", "A batch reads this file.", "Cancel the batch, or wait for its end.", status=409
            )
        audit.record(acting.actor, "file.delete", file, tenant=acting.tenant, name=file.name)
        pk = file.pk
        file.delete()
        file.pk = pk
    return file


def forget() -> int:
    """Delete expired files that no batch reads. Returns the number of files. Raises DeletionPausedError."""
    used = Batch.objects.filter(state__in=OPEN, input_file__isnull=False).values("input_file")
    return (
        StoredFile.objects.filter(expires_at__lt=clocks.deletion_time())
        .exclude(pk__in=used)
        .delete()[1]
        .get("batches.StoredFile", 0)
    )
