"""The life of an upload: received → validating → accepted or refused. Each step is one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.core.files.uploadedfile import TemporaryUploadedFile
from django.db import transaction
from django.db.models import Max, Q, QuerySet

from control_plane.adapters.artifacts.store import KnownDigests
from control_plane.adapters.registry.base_of_adapter import (
    OtherBaseOfAdapterError,
    other_base,
    require_base_of,
    wanted_base,
)
from control_plane.adapters.registry.locks import lock_claimed, lock_upload
from control_plane.adapters.registry.models import Adapter, AdapterVersion, VersionState
from control_plane.adapters.registry.payloads import upload_json
from control_plane.adapters.registry.signals import version_in_use
from control_plane.adapters.registry.storage_limits import require_room, require_room_for_contents
from control_plane.adapters.registry.upload_bounds import require_upload_size
from control_plane.adapters.registry.versions import label_of, tell_adapter, unarchive_version
from control_plane.adapters.uploads import spool
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.config import current
from control_plane.core.db import release_connections
from control_plane.core.errors import LorikeetError
from control_plane.core.jobs import claims, clocks, fair_queue
from control_plane.core.writes import announce, enqueue
from control_plane.fleet.base_models.base_model import ServedBase, ServedBases, served_bases
from control_plane.identity.access.actor import SYSTEM, Actor, ActorKind
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant
from lora_engine.peft_format import adapter_digest

Problem = Mapping[str, Any]

# Maximum number of attempts at validating one upload.
MAX_ATTEMPTS = 5
# Minimum and maximum seconds between attempts of an upload that waits for an unavailable server.
SHORTEST_REST_S, LONGEST_REST_S = 10.0, 300.0
# Maximum number of uploads of one tenant that wait for validation: their files take room on the disk.
MAX_WAITING = 500
UNDECIDED = Q(state__in=[UploadState.RECEIVED, UploadState.VALIDATING])
GIVEN_UP = {
    "code": "validation_crashed",
    "message": f"The check of these files was interrupted {MAX_ATTEMPTS} times.",
    "fix": "Upload again; if it persists, ask the operator to check the worker's log.",
}
CANCELLED = {
    "code": "upload_cancelled",
    "message": "The upload was cancelled by its sender.",
    "fix": "Upload again if that was a mistake.",
}
WAITING_FOR_HOST = {
    "code": "waiting_for_host",
    "message": "It is not decided yet which base model is served, so there is nothing to check against.",
    "fix": "Start the first host in LORIKEET_ENGINE_HOSTS, or ask the operator to run manage.py set_base_model; the "
    "upload is then checked automatically.",
}


class NameTakenByBaseError(LorikeetError):
    def __init__(self, name: str) -> None:
        super().__init__(
            "name_is_base_model",
            f'"{name}" is the name of a base model.',
            "Choose another name for the adapter.",
            param="name",
            status=409,
        )


class TooManyWaitingError(LorikeetError):
    retry_after_s = 10.0

    def __init__(self) -> None:
        super().__init__(
            "too_many_unfinished_uploads",
            f"{MAX_WAITING} uploads of this tenant wait to be checked.",
            "Send more when some of them are decided.",
            status=429,
        )


class UploadEndedError(LorikeetError):
    def __init__(self, upload: Upload) -> None:
        super().__init__(
            "upload_ended",
            f"This upload is {upload.state} already: it accepts no more bytes and cannot be cancelled.",
            f"GET uploads/{upload.pk} shows its result.",
            status=410,
        )


def require_free_name(name: str) -> None:
    """Raise NameTakenByBaseError (409) for the name of a base model."""
    if served_bases().named(name) is not None:
        raise NameTakenByBaseError(name)


def receive_upload(
    *,
    acting: Principal,
    name: str,
    description: str,
    files: list[TemporaryUploadedFile],
    announced: Mapping[str, str] | None = None,
    base_model: str = "",
) -> Upload:
    """Store the spooled files and queue their validation.

    `announced`: file name → the SHA-256 that it must have. `base_model`: name or digest of the adapter's base model.

    Raises NameTakenByBaseError, UnknownBaseError, OtherBaseOfAdapterError, UploadTooLargeError, StoredLimitError or
    TooManyWaitingError.
    """
    require_free_name(name)
    base_digest = wanted_base(acting.tenant, name, base_model)
    require_upload_size(acting.tenant, name, base_digest, sum(file.size or 0 for file in files))
    upload_id = uuid4()
    listing = [listed(file.name or "", file.size or 0, (announced or {}).get(file.name or "")) for file in files]
    folder = spool.keep(upload_id, files)
    try:
        return _create_upload(acting, upload_id, name, description, folder, listing, base_digest)
    except BaseException:
        spool.forget(folder)
        raise


def listed(name: str, size: int, sha256: str | None) -> dict[str, Any]:
    """Return an entry of `Upload.files`."""
    return {"name": name, "bytes": size} | ({"sha256": sha256} if sha256 else {})


def _create_upload(
    acting: Principal,
    upload_id: UUID,
    name: str,
    description: str,
    folder: Path,
    listing: list[dict[str, Any]],
    base_digest: str,
) -> Upload:
    require_room(acting.tenant, name, sum(file["bytes"] for file in listing))
    with transaction.atomic():
        require_short_backlog(acting.tenant)
        upload = Upload.objects.create(
            id=upload_id,
            tenant=acting.tenant,
            adapter_name=name,
            description=description,
            base_digest=base_digest,
            bytes=sum(file["bytes"] for file in listing),
            files=listing,
            folder=str(folder),
            created_by=acting.user,
            created_by_key=acting.api_key,
        )
        audit.record(acting.actor, "upload.receive", upload, tenant=acting.tenant, label=name, bytes=upload.bytes)
        tell_upload(upload)
        enqueue("uploads.validate_next")
    return upload


def require_short_backlog(tenant: Tenant) -> None:
    """Raise TooManyWaitingError (429) for a long backlog. Call it inside the transaction that adds an upload."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)  # makes the count exact
    undecided = Upload.objects.for_tenant(tenant).filter(state__in=[UploadState.RECEIVED, UploadState.VALIDATING])
    if undecided.count() >= MAX_WAITING:
        raise TooManyWaitingError


def claim_next() -> tuple[Upload, ServedBases] | None:
    """Claim the next upload for validation, by fair order of tenants. None if there is none to claim now."""
    bases = served_bases()
    if not bases:
        _record_waiting_for_host()
        return None
    queue = fair_queue.FairQueue("validation", _waiting(), _validating(), current().tenant_validations)
    while queue.is_open():
        with transaction.atomic():
            upload = queue.choose()
            if upload is None:
                return None
            if upload.attempts < MAX_ATTEMPTS:
                upload.attempts += 1
                move_upload(upload, UploadState.VALIDATING, None)
                claims.take(upload)
                return upload, bases
            move_upload(upload, UploadState.REFUSED, GIVEN_UP)
            forget_after_commit(upload)
    return None


def _waiting() -> QuerySet[Upload]:
    """Return the undecided uploads without a claim, those of workers that died included."""
    undecided = Upload.objects.filter(state__in=[UploadState.RECEIVED, UploadState.VALIDATING])
    return undecided.filter(claims.unclaimed()).select_related("tenant").order_by("created_at")


def _validating() -> QuerySet[Upload]:
    return Upload.objects.filter(claims.claimed(), state=UploadState.VALIDATING)


def has_others_undecided(upload: Upload) -> bool:
    """Return True if more uploads of its tenant are being checked, or wait to be."""
    undecided = Upload.objects.filter(state__in=[UploadState.RECEIVED, UploadState.VALIDATING])
    return undecided.filter(tenant=upload.tenant_id).exclude(pk=upload.pk).exists()


def others_wait(upload: Upload) -> bool:
    """Return True if other tenants' uploads wait for a slot such as this upload's."""
    waits = _waiting().exclude(tenant=upload.tenant_id).exists()
    release_connections()
    return waits


def return_upload(upload: Upload) -> None:
    """Return an upload whose validation was interrupted by a worker's orderly stop, without counting the attempt."""
    with transaction.atomic():
        locked = lock_claimed(upload)
        if locked is not None:
            locked.attempts -= 1
            move_upload(locked, UploadState.RECEIVED, None)


def put_off_upload(upload: Upload, problem: Problem) -> bool:
    """Let an upload wait because a server that the check needs is unavailable, without counting the attempt. Returns
    False if it was cancelled meanwhile, or another worker has it.

    The longer that lasts, the longer the pauses; after LORIKEET_UPLOAD_EXPIRE_S the upload is refused.
    """
    with transaction.atomic():
        locked = lock_claimed(upload)
        if locked is None:
            return False
        waited_s = (clocks.database_time() - locked.created_at).total_seconds()
        if waited_s > current().upload_expire_s and clocks.is_trusted():
            move_upload(locked, UploadState.REFUSED, {**problem, "fix": f"Upload again. {problem['fix']}"})
            forget_after_commit(locked)
            return True
        locked.attempts -= 1
        move_upload(locked, UploadState.RECEIVED, problem)
        claims.rest(locked, min(max(SHORTEST_REST_S, waited_s / 4), LONGEST_REST_S))
    return True


def refuse_upload(upload: Upload, problem: Problem, report: Mapping[str, Any] | None) -> None:
    """Refuse files that cannot become an adapter. `problem` is `{code, message, fix}`."""
    with transaction.atomic():
        locked = lock_claimed(upload)
        if locked is None:
            return
        locked.report = dict(report) if report else None
        move_upload(locked, UploadState.REFUSED, problem)
        forget_after_commit(locked)


@dataclass(frozen=True)
class CheckedAdapter:
    """A valid adapter in `folder`, and what its check reported."""

    folder: Path
    file_digests: dict[str, str]
    # The digests of the files that were read already.
    known: KnownDigests
    # Bytes of both files.
    bytes: int
    report: dict[str, Any]
    # The base model against which it was checked.
    base: ServedBase
    # The adapter's chat template, if it differs from the base's.
    chat_template: dict[str, Any] | None
    chat_template_digest: str

    @property
    def digest(self) -> str:
        return adapter_digest(self.file_digests)


def accept_upload(upload: Upload, checked: CheckedAdapter) -> bool:
    """Create the immutable version of stored files, or reuse the one with the same content, and stage it.

    The upload is refused if the adapter has versions of another base model. Returns False if the upload was decided
    elsewhere. Raises StoredLimitError if the version would exceed a limit of the tenant.
    """
    base, manifest, digest = checked.base, checked.report["manifest"], checked.digest
    with transaction.atomic():
        locked = lock_claimed(upload)
        if locked is None:
            return False
        require_room_for_contents(locked.tenant, locked.adapter_name, {digest: checked.bytes})
        locked.report = checked.report
        adapter, uploader = _adapter_for(locked), uploader_of(locked)
        try:
            require_base_of(adapter, base)
        except OtherBaseOfAdapterError as other:
            move_upload(locked, UploadState.REFUSED, other.body())
            forget_after_commit(locked)
            return True
        versions = AdapterVersion.objects.for_tenant(locked.tenant).filter(adapter=adapter)
        content = {
            "digest": digest,
            "base_digest": base.digest,
            "chat_template_digest": checked.chat_template_digest,
        }
        version = versions.filter(**content).exclude(state=VersionState.DELETED).first()
        locked.reused_version = version is not None
        if version is None:
            version = AdapterVersion.objects.create(
                **content,
                tenant=locked.tenant,
                adapter=adapter,
                number=(versions.aggregate(n=Max("number"))["n"] or 0) + 1,
                file_digests=checked.file_digests,
                rank=manifest["rank"],
                targets=manifest["targets"],
                dtype=manifest["dtype"],
                bytes=checked.bytes,
                num_parameters=manifest["num_parameters"],
                base_model=base.name,
                named_base=other_base(manifest["base_model_name"], base),
                report=checked.report,
                created_by=locked.created_by,
                chat_template=checked.chat_template,
            )
            facts = {"label": label_of(version), "digest": digest}
            audit.record(uploader, "version.create", version, tenant=locked.tenant, **facts)
        unarchive_version(version, uploader)
        locked.version = version
        move_upload(locked, UploadState.ACCEPTED, _same_content(version) if locked.reused_version else None)
        version_in_use.send(AdapterVersion, version=version)
        tell_adapter(adapter)
        forget_after_commit(locked)
    return True


def cancel_upload(*, acting: Principal, upload: Upload) -> Upload:
    """Cancel an upload that is not decided. A worker that is checking it notices that, and stops.

    Raises UploadEndedError (410).
    """
    return cancel_as(acting.actor, upload)


def cancel_as(actor: Actor, upload: Upload) -> Upload:
    """Cancel an upload, also without an acting member. Raises UploadEndedError (410)."""
    with transaction.atomic():
        locked = lock_upload(upload.pk) or upload
        if locked.state not in (UploadState.RECEIVED, UploadState.VALIDATING):
            raise UploadEndedError(locked)
        move_upload(locked, UploadState.CANCELLED, CANCELLED, actor)
        forget_after_commit(locked)
    return locked


def sweep() -> int:
    """Remove files of uploads that are decided or were never recorded. Returns how many files and folders.

    Raises DeletionPausedError.
    """
    now = file_deletion_time()
    undecided = Upload.objects.filter(state__in=[UploadState.ARRIVING, UploadState.RECEIVED, UploadState.VALIDATING])
    return spool.sweep({str(pk) for pk in undecided.values_list("pk", flat=True)}, now)


def forget() -> int:
    """Delete uploads that were refused or cancelled long ago. Returns the number of rows. Raises DeletionPausedError.

    Accepted ones stay: they are the origin of a version.
    """
    oldest = clocks.deletion_time() - timedelta(days=current().closed_rows_days)
    ended = Upload.objects.filter(state__in=[UploadState.REFUSED, UploadState.CANCELLED])
    return ended.filter(updated_at__lt=oldest).delete()[0]


def file_deletion_time() -> datetime:
    """Return the time by which to delete older files. Raises DeletionPausedError.

    The time of a file comes from the clock of the file system, which may be another machine's.
    """
    now = clocks.deletion_time()
    if (file_time := spool.file_time()) is not None:
        clocks.require_near(now, "The clock of the artifact file system", file_time)
    return now


def _record_waiting_for_host() -> None:
    recorded = Q(reason__code=WAITING_FOR_HOST["code"])
    for upload_id in Upload.objects.filter(state=UploadState.RECEIVED).exclude(recorded).values_list("pk", flat=True):
        with transaction.atomic():
            upload = lock_upload(upload_id)
            if upload is not None and upload.state == UploadState.RECEIVED:
                move_upload(upload, UploadState.RECEIVED, WAITING_FOR_HOST)


def move_upload(upload: Upload, state: UploadState, reason: Problem | None, actor: Actor = SYSTEM) -> None:
    """Move an upload to a state, with audit row and event. Call it inside a transaction that locked the upload."""
    upload.state, upload.reason = state, dict(reason) if reason else None
    upload.claim = upload.claimed_until = None
    upload.save()
    code = reason["code"] if reason else None
    audit.record(actor, f"upload.{state.value}", upload, tenant=upload.tenant, label=upload.adapter_name, reason=code)
    tell_upload(upload)


def tell_upload(upload: Upload) -> None:
    """After commit, publish the event `upload.updated`."""
    announce(upload.tenant_id, "upload.updated", lambda: upload_json(upload))


def forget_after_commit(upload: Upload) -> None:
    """After commit, delete the files of an upload that is decided."""
    transaction.on_commit(lambda: spool.forget(Path(upload.folder)), robust=True)


def _adapter_for(upload: Upload) -> Adapter:
    """Return the active adapter of that name, locked so that version numbers are assigned one at a time."""
    adapters = Adapter.objects.for_tenant(upload.tenant).select_for_update(of=("self",), no_key=True)
    active = adapters.filter(archived_at__isnull=True)
    new = {"tenant": upload.tenant, "description": upload.description, "created_by": upload.created_by}
    adapter, created = active.get_or_create(name=upload.adapter_name, defaults=new)
    if created:
        audit.record(uploader_of(upload), "adapter.create", adapter, tenant=upload.tenant)
    return adapter


def uploader_of(upload: Upload) -> Actor:
    """Return the actor who began the upload."""
    if upload.created_by is not None:
        return Actor(ActorKind.USER, str(upload.created_by.pk), upload.created_by.email)
    if upload.created_by_key is not None:
        return Actor(ActorKind.KEY, str(upload.created_by_key.pk), str(upload.created_by_key))
    return SYSTEM


def _same_content(version: AdapterVersion) -> Problem:
    return {
        "code": "same_content",
        "message": f"Version {version.number} already has exactly this content, so no new version was made.",
        "fix": f"Use version {version.number}, or upload files that differ.",
    }
