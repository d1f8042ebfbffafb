"""Every change to a batch. A process that runs a batch holds its claim, and each step checks under a lock that it still
does.
"""

from __future__ import annotations

import json
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Count, Q, QuerySet

from control_plane.billing.usage.actions import Ended, record_events
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.config import current
from control_plane.core.errors import ForbiddenError, LorikeetError, NotFoundError
from control_plane.core.http.json_body import JsonError, read_object
from control_plane.core.jobs import claims, clocks, fair_queue
from control_plane.gateway.batches import files
from control_plane.gateway.batches.models import OPEN, Batch, BatchLine, BatchState, Purpose
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.keys.queries import get_key
from control_plane.identity.tenants.models import Tenant
from control_plane.identity.tenants.roles import Capability

# Open batches of one tenant; more are refused with 429.
MAX_OPEN = 20
# Batches of one tenant that run at the same time; further ones wait.
TENANT_BATCHES = 2
# Errors that one batch's validation reports before it stops reading; more would not help the user.
MAX_ERRORS = 100
# Lines that one query inserts or reads: bounds the memory of a batch of any length.
PORTION = 200
# Maximum bytes of one line of an input file.
LONGEST_LINE = 1 << 20
# Time after which a batch that is over is deleted.
KEPT = timedelta(days=90)
SUSPENDED = "suspended"
WINDOW = timedelta(hours=24)
Check = Callable[[Mapping[str, Any]], None]


class NoSuchBatchError(NotFoundError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"No such Batch object: {name[:64]}.",
            "GET /v1/batches lists the batches that exist.",
            code="batch_not_found",
            param="batch_id",
        )


def create_batch(
    *,
    acting: Principal,
    api_key: ApiKey,
    input_file: str,
    endpoint: ApiEndpoint,
    metadata: Mapping[str, str] | None = None,
) -> Batch:
    """Create a batch of `api_key`; its requests count against the key's limits. Raises NoSuchFileError (404),
    LorikeetError (429).
    """
    with transaction.atomic():
        tenant = files.lock_tenant(acting)  # serializes the count below
        batches = Batch.objects.for_tenant(tenant)
        if batches.filter(state__in=OPEN).count() >= MAX_OPEN:
            raise LorikeetError(
                "too_many_batches", f"{MAX_OPEN} batches are open already.", "Wait until one is over.", status=429
            )
        file = files.get_file(tenant, input_file)
        now = clocks.database_time()
        batch = batches.create(
            tenant=tenant,
            api_key=api_key,
            endpoint=endpoint,
            input_file=file,
            file_names={"input": str(file)},
            metadata=metadata,
            created_at=now,
            expires_at=now + WINDOW,
        )
        audit.record(acting.actor, "batch.create", batch, tenant=tenant, endpoint=endpoint, file=str(file))
    return batch


def upload_batch(
    *, acting: Principal, key_id: UUID | None, endpoint: ApiEndpoint, name: str, content: Iterable[bytes], size: int
) -> Batch:
    """Store a file and create the batch that reads it, or neither. Raises LorikeetError (403, 404, 409, 413, 429)."""
    api_key = key_for(acting, key_id)
    with transaction.atomic():
        file = files.upload_file(acting=acting, name=name, content=content, size=size)
        return create_batch(acting=acting, api_key=api_key, input_file=str(file), endpoint=endpoint)


def key_for(acting: Principal, key_id: UUID | None) -> ApiKey:
    """Return the key whose requests a new batch runs. A key creates batches for itself only; a user who may write keys
    may choose any key of the tenant.

    Raises LorikeetError (403, 404, 409).
    """
    if acting.api_key is not None:
        if key_id not in (None, acting.api_key.pk):
            raise ForbiddenError(
                "An API key creates batches for itself only.", "Leave `key` out.", code="key_not_own"
            )  # fmt: skip
        return acting.api_key
    acting.require(Capability.WRITE_KEYS)
    if key_id is None:
        raise LorikeetError(
            "key_required", "The API key whose requests these are is missing.", "Name a key in `key`.", param="key"
        )
    key = get_key(acting.tenant, key_id)
    if not key.usable_at() or not Principal.of_key(key).may(Capability.INFER):
        raise LorikeetError(
            "key_not_usable", f"{key.name} is revoked, has expired or may not infer.", "Choose another key.",
            param="key", status=409,
        )  # fmt: skip
    return key


def get_batch(tenant: Tenant, name: str) -> Batch:
    """Return the tenant's batch. Raises NoSuchBatchError (404)."""
    batch = Batch.objects.for_tenant(tenant).filter(pk__in=files.ids(name, "batch_")).first()
    if batch is None:
        raise NoSuchBatchError(name)
    return batch


def cancel_batch(*, acting: Principal, name: str) -> Batch:
    """Cancel a batch; its runner ends it within seconds. Results are kept. Raises LorikeetError (404, 409)."""
    with transaction.atomic():
        pk = get_batch(acting.tenant, name).pk
        batch = Batch.objects.for_tenant(acting.tenant).select_for_update(of=("self",)).filter(pk=pk).first()
        if batch is None:  # deleted meanwhile, with its tenant
            raise NoSuchBatchError(name)
        if batch.state not in OPEN:
            raise LorikeetError(
                "batch_is_over", f"The batch is {batch.state}.", "There is nothing left to cancel.", status=409
            )
        if batch.state != BatchState.CANCELLING:
            _enter(batch, BatchState.CANCELLING)
            audit.record(acting.actor, "batch.cancel", batch, tenant=acting.tenant)
    return batch


# -- for the process that runs a batch -----------------------------------------------------------------------


def claim_next() -> Batch | None:
    """Claim a batch that no process runs, of the tenant that is next in the fair queue; None if there is none."""
    queue = fair_queue.FairQueue("batches", _waiting(), _running(), TENANT_BATCHES)
    if not queue.is_open():
        return None
    with transaction.atomic():
        batch = queue.choose()
        if batch is not None:
            claims.take(batch)
    return batch


def _waiting() -> QuerySet[Batch]:
    waiting = Batch.objects.filter(claims.unclaimed(), state__in=OPEN, tenant__suspended_at=None)
    return waiting.select_related("tenant", "api_key__tenant", "input_file").order_by("created_at")


def _running() -> QuerySet[Batch]:
    return Batch.objects.filter(claims.claimed(), state__in=OPEN)


@contextmanager
def _locked(batch: Batch) -> Iterator[Batch]:
    """Lock the batch's row in a transaction, so that no other process claims it. Raises ClaimLostError if one has."""
    with transaction.atomic():
        rows = Batch.objects.select_for_update(of=("self",)).select_related("tenant", "api_key__tenant")
        locked = rows.filter(pk=batch.pk).first()
        if locked is None or not claims.holds(batch, locked):
            raise claims.ClaimLostError
        yield locked


@dataclass(frozen=True)
class LineError:
    code: str
    message: str
    line: int
    param: str | None = None


def validate(batch: Batch, check: Check) -> None:
    """Read the input file into lines. The batch is then in progress, or failed with the errors of its lines."""
    with _locked(batch):
        BatchLine.objects.filter(batch=batch).delete()  # rows of a process that was killed while validating
    reader = _LineReader(batch, check)
    portion: list[BatchLine] = []
    for number, raw in enumerate(files.lines(batch.input_file) if batch.input_file else (), start=1):
        if raw.strip() and (line := reader.read(number, raw)) is not None:
            portion.append(line)
        if reader.is_hopeless:
            break
        if len(portion) >= PORTION:
            _insert(batch, portion)
            portion = []
    _insert(batch, portion)
    reader.end()
    with _locked(batch) as locked:
        if locked.state != BatchState.VALIDATING:
            return  # cancelled meanwhile
        if reader.errors:
            BatchLine.objects.filter(batch=batch).delete()
            locked.errors = [vars(error) for error in reader.errors]
            _end(locked, BatchState.FAILED)
        else:
            locked.total = reader.count
            _enter(locked, BatchState.IN_PROGRESS)


def _insert(batch: Batch, portion: list[BatchLine]) -> None:
    if portion:
        with _locked(batch):
            BatchLine.objects.bulk_create(portion)


class _LineReader:
    """A reader of the lines of an input file, which collects their errors."""

    def __init__(self, batch: Batch, check: Check) -> None:
        self.errors: list[LineError] = []
        self.count = 0
        self.is_hopeless = False  # stop reading: there are too many errors, or too many lines
        self._batch, self._check, self._seen = batch, check, set[str]()
        self._url = f"/v1/{batch.endpoint.replace('.', '/')}"

    def read(self, number: int, raw: bytes) -> BatchLine | None:
        self.count += 1
        try:
            return self._read(number, raw)
        except LorikeetError as error:
            self.errors.append(LineError(error.code, f"{error} {error.fix}", number, error.param))
            self.is_hopeless = self.is_hopeless or len(self.errors) >= MAX_ERRORS
            return None

    def end(self) -> None:
        if not self.count and not self.errors:
            self.errors.append(LineError("empty_file", "The input file holds no request.", 0))

    def _read(self, number: int, raw: bytes) -> BatchLine:
        if self.count > (most := current().batch_max_lines):
            self.is_hopeless = True
            raise LorikeetError(
                "too_many_tasks", f"The file holds more than {most} requests.", "Split it into several files."
            )
        line = _object(raw)
        custom_id = line.get("custom_id")
        if not isinstance(custom_id, str) or not 0 < len(custom_id) <= 64 or "\0" in custom_id:
            raise _bad("missing_required_parameter", "custom_id must be a text of 1 to 64 characters.", "custom_id")
        if custom_id in self._seen:
            raise _bad("duplicate_custom_id", f"The custom_id {custom_id} appears twice.", "custom_id")
        self._seen.add(custom_id)
        if line.get("method") != "POST":
            raise _bad("invalid_method", "method must be POST.", "method")
        if line.get("url") != self._url:
            raise _bad("mismatched_endpoint", f"url must be {self._url}, the batch's endpoint.", "url")
        body = line.get("body")
        if not isinstance(body, dict):
            raise _bad("missing_required_parameter", "body must be an object.", "body")
        if body.get("stream"):
            raise _bad("invalid_request", "Requests of a batch cannot stream: leave stream out.", "body.stream")
        self._check(body)
        text = json.dumps(body, ensure_ascii=False)
        return BatchLine(batch=self._batch, number=number, custom_id=custom_id, body=text)


def _object(raw: bytes) -> dict[str, Any]:
    if len(raw) > LONGEST_LINE:
        raise _bad("line_too_long", f"The line is longer than {LONGEST_LINE} bytes.", None)
    try:
        # Some editors begin a file with a byte order mark. A body is stored as JSON, in which NUL is an escape.
        return read_object(raw.removeprefix(BOM_UTF8), nul=True)
    except JsonError as error:
        raise _bad("invalid_json_line", error.message.replace("The body", "This line", 1), None) from None


def _bad(code: str, message: str, param: str | None) -> LorikeetError:
    return LorikeetError(code, message, "Correct it and upload the file again.", param=param)


def lines_to_run(batch: Batch, after: int, count: int) -> list[BatchLine]:
    return list(BatchLine.objects.filter(batch=batch, result=None, number__gt=after).order_by("number")[:count])


def state_of(batch: Batch) -> str:
    """Return the batch's state, which decides the runner's next step; SUSPENDED while its tenant is suspended. A batch
    whose window is over expires; one whose key may no longer infer is cancelled.

    Raises ClaimLostError.
    """
    with _locked(batch) as locked:
        if locked.tenant.suspended_at is not None:
            return SUSPENDED
        if locked.state in (BatchState.VALIDATING, BatchState.IN_PROGRESS):
            if locked.expires_at <= clocks.database_time() and clocks.is_trusted():
                # Not saved: `finish` does so once no line runs, and answers that come until then are results.
                locked.state = BatchState.EXPIRED
            elif not _may_run(locked):
                _enter(locked, BatchState.CANCELLING)
                audit.record(SYSTEM, "batch.cancel", locked, tenant=locked.tenant)
        return locked.state


def _may_run(batch: Batch) -> bool:
    return batch.api_key.usable_at() and Principal.of_key(batch.api_key).may(Capability.INFER)


def keep_result(
    batch: Batch, line: BatchLine, result: Mapping[str, Any], ended: Sequence[Ended], *, failed: bool
) -> bool:
    """Store a line's result and its usage in one transaction: once, however often the line ran. Returns whether it was
    new.

    Raises ClaimLostError.
    """
    body = {"id": f"batch_req_{uuid4().hex}", "custom_id": line.custom_id, **result}
    text = json.dumps(body, ensure_ascii=False)
    with _locked(batch):
        without_result = BatchLine.objects.filter(pk=line.pk, result=None)
        if not without_result.update(result=text, failed=failed):
            return False
        record_events(ended)
    return True


def finish(batch: Batch, state: BatchState) -> None:
    """Write the results to files and end the batch; no line may be running. Raises ClaimLostError."""
    if state == BatchState.COMPLETED:
        with _locked(batch) as locked:
            if locked.state == BatchState.IN_PROGRESS:
                _enter(locked, BatchState.FINALIZING)
    with _locked(batch) as locked:
        if state == BatchState.CANCELLED:
            _finish_lines(locked, "batch_cancelled", "The batch was cancelled before this request was answered.")
        if state == BatchState.EXPIRED:
            _finish_lines(locked, "batch_expired", "The batch expired before this request was answered.")
        counts = _counts(locked)
        locked.completed, locked.failed = counts["completed"], counts["failed"]
        locked.total = locked.completed + locked.failed  # also of a batch that ended while it was validated
        for failed, name in ((False, "output"), (True, "error")):
            if counts["failed" if failed else "completed"]:
                file = files.store(
                    locked.tenant, f"{locked}_{name}.jsonl", Purpose.BATCH_OUTPUT, _results(locked, failed)
                )
                setattr(locked, f"{name}_file", file)
                locked.file_names[name] = str(file)
        BatchLine.objects.filter(batch=locked).delete()
        _end(locked, state)


def _finish_lines(batch: Batch, code: str, message: str) -> None:
    """Give an error result to every request without one."""
    for line in BatchLine.objects.filter(batch=batch, result=None).only("pk", "custom_id").iterator(PORTION):
        body = {
            "id": f"batch_req_{uuid4().hex}",
            "custom_id": line.custom_id,
            "response": None,
            "error": {"code": code, "message": message},
        }
        BatchLine.objects.filter(pk=line.pk).update(result=json.dumps(body, ensure_ascii=False), failed=True)


def _results(batch: Batch, failed: bool) -> Iterator[bytes]:
    rows = BatchLine.objects.filter(batch=batch, failed=failed, result__isnull=False).order_by("number")
    for result in rows.values_list("result", flat=True).iterator(PORTION):
        yield (result or "").encode() + b"\n"


def _counts(batch: Batch) -> dict[str, int]:
    done = Q(result__isnull=False)
    counts: dict[str, int] = BatchLine.objects.filter(batch=batch).aggregate(
        completed=Count("pk", filter=done & Q(failed=False)), failed=Count("pk", filter=done & Q(failed=True))
    )
    return counts


def is_open(batch: Batch) -> bool:
    return Batch.objects.filter(pk=batch.pk, state__in=OPEN).exists()


def counts_of(batch: Batch) -> dict[str, int]:
    """Return OpenAI's `request_counts`."""
    counts = {"completed": batch.completed, "failed": batch.failed} if batch.state not in OPEN else _counts(batch)
    return {"total": batch.total, **counts}


def release(batch: Batch) -> None:
    """End the claim, so that another process may continue the batch."""
    claims.end(batch)


def rest(batch: Batch, seconds: float) -> None:
    """Keep every process from continuing the batch for so many seconds. Raises ClaimLostError."""
    with _locked(batch) as locked:
        claims.rest(locked, seconds)


def _enter(batch: Batch, state: BatchState) -> None:
    batch.state = state
    batch.times = {**batch.times, state.value: int(time.time())}
    batch.save()


def _end(batch: Batch, state: BatchState) -> None:
    _enter(batch, state)
    claims.end(batch)
    audit.record(
        SYSTEM, f"batch.{state.value}", batch, tenant=batch.tenant, completed=batch.completed, failed=batch.failed
    )


def forget() -> int:
    """Delete batches that ended long ago, and expired files. Returns the number of rows.

    Raises DeletionPausedError.
    """
    old = Batch.objects.filter(created_at__lt=clocks.deletion_time() - KEPT).exclude(state__in=OPEN)
    return old.delete()[0] + files.forget()
